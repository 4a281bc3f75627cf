"""The thread that listens for notices: without a server."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import trio

from trio_mcp.stores import Missed, Notice
from trio_mcp.stores.listening import Listening

BOUND = 20


class Failing:
    """A connection that fails in a way that its driver does not document."""

    def __init__(self, may_fail: threading.Event) -> None:
        self._may_fail = may_fail

    def receive(self, seconds: float) -> Sequence[bytes]:
        if self._may_fail.wait(seconds):
            raise KeyError("pmessage")
        return ()

    def probe(self) -> None:
        """It is there."""

    def close(self) -> None:
        """Nothing is open."""


class Speaking(Failing):
    """The next connection."""

    def receive(self, seconds: float) -> Sequence[bytes]:
        self._may_fail.clear()
        return [b"topic\0content"]


async def test_whatever_a_connection_raises_it_is_replaced_and_the_reader_learns_that_it_may_have_missed_notices() -> (
    None
):
    may_fail = threading.Event()
    connections = [Failing(may_fail), Speaking(may_fail)]
    listening = Listening(lambda: connections.pop(0) if len(connections) > 1 else connections[0])
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            await nursery.start(listening.run)
            may_fail.set()
            assert await anext(aiter(listening)) is Missed.MISSED
            assert await anext(aiter(listening)) == Notice("topic", b"content")
            listening.stop()
