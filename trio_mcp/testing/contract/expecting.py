"""Expectations that many rules share."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from .pair import Pair
    from .peer import Call, Peer

E = TypeVar("E", bound=Exception)


async def failure(kind: type[E], doing: Awaitable[object]) -> E:
    """Return the error of this kind that the awaitable raises.

    Raises:
        AssertionError: it returned instead.
    """
    try:
        result = await doing
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {result!r}")


async def nothing_more_of(peer: Peer, call: Call) -> None:
    """Raise `AssertionError` if a reply, a question or a report of this call has come."""
    await peer.ping()
    said = [message for message in peer.unread() if not message.get("unanswered")]
    assert said == [], f"{call.id!r} should be silent, but there came {said}"


async def read_until(peer: Peer, pair: Pair, mark: str) -> None:
    """Read and drop messages until the server has made this mark."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_on, peer)
        await pair.stage.marked(mark)
        nursery.cancel_scope.cancel()


async def read_on(peer: Peer) -> None:
    while True:
        await peer.receive()
