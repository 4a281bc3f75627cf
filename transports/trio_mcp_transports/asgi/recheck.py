"""Checking again whether a client may keep its connection, which may outlive its credentials (reliability row 57)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio


class CredentialCheck(NamedTuple):
    """How to check the credentials of an open connection: its headers came once, and what they prove may expire.

    Attributes:
        seconds: between two checks.
        is_authorized: asks the author's hook; False if it no longer returns the same principal.
    """

    seconds: float
    is_authorized: Callable[[], Awaitable[bool]]


async def credentials_expired(check: CredentialCheck) -> None:
    """Check again and again; return when the credentials are no longer accepted."""
    while True:
        # After the answer and not at fixed times: a slow hook is not asked again while it still works.
        await trio.sleep(check.seconds)
        if not await check.is_authorized():
            return
