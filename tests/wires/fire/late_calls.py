"""Calls of a server whose store is late: what their clients receive meanwhile, and that a repeat gets the outcome."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import trio
from late_sqlite import LONG_TIMEOUT, MOST_LATE

from trio_mcp import PeerError
from trio_mcp.errors import OutcomeUnknown
from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.protocol.revisions import IDEMPOTENCY_KEY
from trio_mcp.types import JsonObject

T = TypeVar("T")


def make_late(home: Path, in_time: int, timeout: float) -> None:
    """Delay the writes of the server except for the first ones of each process; each is given up after some seconds."""
    # A server may look at any time.
    (home / "late.new").write_text(f"{in_time} {in_time} {timeout}")
    (home / "late.new").rename(home / "late")


async def has_landed(home: Path) -> None:
    """Wait until what is late is made, if anything is and its process lives."""
    with trio.move_on_after(MOST_LATE + LONG_TIMEOUT):
        # It is in another process.
        while (home / "late").exists() and not (home / "landed").exists():  # noqa: ASYNC110
            await trio.sleep(0.02)


def works_again(home: Path) -> None:
    (home / "late").unlink(missing_ok=True)


def new_key() -> JsonObject:
    """Return the `_meta` of a call that can be repeated."""
    return {IDEMPOTENCY_KEY: secrets.token_urlsafe(16)}


async def ended(home: Path, call: Callable[[], Awaitable[T]]) -> T | None:
    """Return what a call ends with, repeated until it does; None if its outcome is not known.

    The first error names the store, or the unknown outcome; then the store works again.
    """
    try:
        return await call()
    except OutcomeUnknown:
        pass
    except PeerError as error:
        check_refused(error, "store")
    works_again(home)
    while True:
        try:
            return await call()
        except OutcomeUnknown:
            return None
        except PeerError as error:
            # The process that had it, or what it wrote, is about to be settled.
            check_refused(error)
        await trio.sleep(0.05)  # nothing tells when it is


def check_refused(error: PeerError, *names: str) -> None:
    """Check that nothing was run, and that the call may be sent again; the error names the cause."""
    assert error.code == SERVER_BUSY, error
    assert all(name in str(error) for name in names), error


def assert_once(effects: list[str]) -> None:
    """No effect was had twice."""
    assert set(Counter(effects).values()) <= {1}, effects
