"""Authentication: the author's hook returns the principal of a request, or rejects it (reliability row 101)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import trio

from trio_mcp.logs import RepeatedRecords

from .access import HttpRejection
from .failures import log_failures

Authenticate: TypeAlias = Callable[[Mapping[str, str]], Awaitable[str | None]]
"""An async function from the headers of a request (names in lower case) to its principal, or None to reject the request."""

Expiry: TypeAlias = Callable[[], Awaitable[None]]
"""Returns when the credentials of an open connection are no longer accepted: its headers came once, and may expire."""

AUTHENTICATION_SECONDS: Final = 10.0
"""How long the hook may take for one request."""

MAX_PRINCIPAL: Final = 1024
"""Characters of a principal: sessions, calls and their states carry it along."""

CHALLENGE = (b"www-authenticate", b"Bearer")
"""A 401 says how to do better (RFC 9110, 11.6.1)."""


async def authenticated_principal(
    authenticate: Authenticate, headers: Mapping[str, str], records: RepeatedRecords
) -> str:
    """Return the principal that the hook finds in these headers.

    Args:
        records: what is wrong with the hook, which every request may show again.

    Raises:
        HttpRejection: 401, the hook returned None; 503, it took longer than `AUTHENTICATION_SECONDS`; 500, it failed or
            returned something else. The log says what was wrong with the hook, the response does not.
    """
    principal: str | None = None
    with trio.move_on_after(AUTHENTICATION_SECONDS) as asking:
        principal = await call_hook(authenticate, headers, records)
    if asking.cancelled_caught:
        refused = "authenticate did not answer within %g seconds; the request was refused"
        records.log(refused, AUTHENTICATION_SECONDS, level=logging.ERROR)
        raise HttpRejection(503, "Who you are cannot be checked now. Try again in a moment.")
    if not principal:
        raise HttpRejection(
            401, "This server must know who calls: send an Authorization header that it accepts.", [CHALLENGE]
        )
    return principal


async def call_hook(authenticate: Authenticate, headers: Mapping[str, str], records: RepeatedRecords) -> str | None:
    """Return what the hook returns. Anything but a principal or None is a failure: a guess could let an attacker in."""
    with log_failures("authenticate failed; the request was refused", records):
        # Read-only, since the session keeps the same mapping.
        answer: object = authenticate(MappingProxyType(headers))
        if not isinstance(answer, Awaitable):
            raise TypeError(
                f"authenticate is an async function: write `async def`; this one returned {type(answer).__name__}"
            )
        principal: object = await answer
        if isinstance(principal, str):
            # It becomes a part of keys, digests and sealed states, which are bytes. A lone surrogate cannot be encoded.
            principal.encode()
            if len(principal) > MAX_PRINCIPAL:
                raise ValueError(f"authenticate returned {len(principal)} characters; {MAX_PRINCIPAL} are allowed")
        elif principal is not None:
            raise TypeError(f"authenticate returned {type(principal).__name__}, neither a principal nor None")
        return principal
    raise HttpRejection(500, "Who you are cannot be checked: something is wrong at the server.")
