"""Carrying envelopes between a channel and a session: one reader, one writer, owned by whoever awaits `serve_channel`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

import trio

from ..runtime import CancelReason, Outbox
from .envelope import Envelope
from .server import ServerSession
from .service import Service

logger = logging.getLogger("trio_mcp.session")

CLEAN_UP = 2.0
"""Seconds that the clean-up of a connection's calls, and the writing of their last messages, may take."""


@runtime_checkable
class SendsMany(Protocol):
    """A channel that can write several envelopes at the price of one."""

    def send_many(self, envelopes: Sequence[Envelope], /) -> Awaitable[None]: ...


@runtime_checkable
class ReceivesMany(Protocol):
    """A channel that may have several envelopes at once, as one read brings them."""

    def receive_ready(self) -> Iterable[Envelope]:
        """What can be received without waiting."""
        ...


def nothing_more() -> Iterable[Envelope]:
    return ()


@runtime_checkable
class SendsNow(Protocol):
    """A channel that can often write a small envelope at once."""

    def send_nowait(self, envelope: Envelope, /) -> bool:
        """Write all of it without waiting, or nothing of it; False for nothing.

        Raises nothing: what is wrong with the channel shows in the next `send`.
        """
        ...


@runtime_checkable
class Stoppable(Protocol):
    """A channel that hears when its process is told to end, with the client still there."""

    on_stop: Callable[[], None] | None
    """Called then, if somebody has set it who will end in order."""


@runtime_checkable
class Delivers(Protocol):
    """A channel that can hand a message over as soon as it has come, without waking who receives."""

    def deliver_to(self, take: Callable[[Envelope], bool], /) -> None:
        """Offer messages to `take` while somebody waits in `receive` and none came before; what it refuses is received."""
        ...


async def serve_channel(service: Service, channel: trio.abc.Channel[Envelope]) -> None:
    """Serve one client until its channel ends; its calls are cancelled then and have `CLEAN_UP` seconds to unwind.

    Where the channel is `Stoppable` and told to stop, the service is drained, and the callers are told so before this returns.
    """
    outbox: Outbox[Envelope] = Outbox(service.options.outbox)
    session = ServerSession(service)
    if isinstance(channel, SendsNow):
        now, requests = channel.send_nowait, session.requests
        # The answer of a call that runs alone need not wake the writer. Where there are more, their answers share a write.
        outbox.shortcut = lambda envelope: not requests.count and now(envelope)
    if isinstance(channel, Delivers):
        channel.deliver_to(partial(_take, session, outbox))
    session.attach(outbox)
    reading = trio.CancelScope()
    if isinstance(channel, Stoppable):
        channel.on_stop = reading.cancel
    async with channel, trio.open_nursery() as nursery:
        nursery.start_soon(_write_then_stop, channel, outbox, nursery.cancel_scope)
        try:
            with reading:
                await _read_all(channel, session, outbox)
            if reading.cancelled_caught:
                await service.drain(0, CLEAN_UP)
        finally:
            if session.working:
                logger.warning("the client is gone: what still runs for it is cancelled")
            session.close(CancelReason.DISCONNECT)
            with trio.move_on_after(CLEAN_UP, shield=True):
                await session.idle()
            outbox.close()
            nursery.cancel_scope.deadline = trio.current_time() + CLEAN_UP


async def write_all(channel: trio.abc.Channel[Envelope], outbox: Outbox[Envelope]) -> None:
    """Send everything from the outbox until it is closed and empty.

    Raises:
        trio.BrokenResourceError: the channel broke; what was queued is lost.
    """
    many = channel if isinstance(channel, SendsMany) else None
    while envelopes := await outbox.take():
        if many is not None:
            await many.send_many(envelopes)
        else:
            envelopes.reverse()
            while envelopes:
                await channel.send(envelopes.pop())
        del envelopes  # the next ones may come in an hour, and these may be large


def _take(session: ServerSession, outbox: Outbox[Envelope], envelope: Envelope) -> bool:
    if outbox.full:
        return False
    session.receive(envelope, outbox)
    return True


async def _read_all(channel: trio.abc.Channel[Envelope], session: ServerSession, outbox: Outbox[Envelope]) -> None:
    came_with = channel.receive_ready if isinstance(channel, ReceivesMany) else nothing_more
    try:
        async for envelope in channel:
            session.receive(envelope, outbox)
            for further in came_with():
                session.receive(further, outbox)
                del further
            del envelope  # the next one may come in an hour, and this one may be large
            if outbox.full:  # a client that does not read its answers is not read either
                await outbox.room()
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        logger.info("the connection broke: %s", error)


async def _write_then_stop(
    channel: trio.abc.Channel[Envelope], outbox: Outbox[Envelope], connection: trio.CancelScope
) -> None:
    try:
        await write_all(channel, outbox)
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        logger.info("the connection broke: %s", error)
    connection.cancel()
