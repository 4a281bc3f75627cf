"""Carrying messages between a connection to the server and what passes them: one reader, one writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from ..base.logs import peer_logger
from ..runtime import Outbox
from ..runtime.loop_turn import LoopTurn
from ..session import Envelope, MessageChannel
from ..session.channel import read_all
from .passing import Passage
from .upstream import Upstream

logger = peer_logger("trio_mcp.relay")

EXIT_NEWS: Final = 1.0
"""Seconds in which the system tells how a server's process has ended, for the error."""


async def read_server(
    channel: MessageChannel, passage: Passage, outbox: Outbox[Envelope], turn: LoopTurn, end: Callable[[str], None]
) -> None:
    """Read what the server sends until its connection ends.

    Args:
        outbox: while it is full, nothing is read.
        end: called with the reason.
    """
    why = "it closed the connection"
    try:
        await read_all(channel, passage.take, outbox, turn)
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        why = f"the connection broke: {error}"
    # The end of a pipe comes before the news how its process has ended.
    with trio.move_on_after(EXIT_NEWS):
        while channel.close_reason is None and passage.upstream.carries:  # noqa: ASYNC110
            await trio.sleep(0.01)
    end(channel.close_reason or why)


async def write_server(upstream: Upstream, scope: trio.CancelScope) -> None:
    """Write what is queued for the server until its connection breaks; then cancel the scope."""
    try:
        await upstream.write()
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        logger.debug("writing to the server ended: %s", error)
        # What it has written is still read. If it only stopped reading, nothing comes.
        with trio.move_on_after(EXIT_NEWS):
            await trio.sleep_forever()
        scope.cancel()


def end_with(lost: list[str], scope: trio.CancelScope, why: str) -> None:
    """End a connection to the server, for this reason."""
    lost.append(why)
    scope.cancel()
