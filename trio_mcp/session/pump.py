"""Carrying envelopes between a channel and a session: one reader, one writer, owned by the task that awaits `serve_channel`."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import trio

from ..runtime import CancelReason, Outbox
from .channel import AnyChannel, MessageChannel, as_message_channel, read_all, write_all
from .envelope import SESSION_SIZE, STREAM_SIZE, Envelope
from .middleware import make_session
from .service import Service

CLEAN_UP = 2.0
"""Seconds that the clean-up of a connection's calls, and the writing of their last messages, may take."""

MOST_KEPT: Final = 512 * 1024
"""Bytes of the memory budget that stay counted between the calls of a process with one client: those of about thirty calls."""

BROKEN: Final = "the connection broke: %s"


async def serve_channel(service: Service, channel: AnyChannel) -> None:
    """Serve one client until its channel ends; its calls are cancelled then and have `CLEAN_UP` seconds to unwind.

    A channel may ask that they be answered first, if they end soon (`MessageChannel.drain`).

    If the channel calls `on_stop`, the service is drained, and running calls are answered before this returns.
    """
    channel = as_message_channel(channel)
    with service.open_outbox(channel.peer, STREAM_SIZE + SESSION_SIZE) as outbox:
        if channel.one_client and outbox.account is not None:
            outbox.account.keep(MOST_KEPT)
        await _serve(service, channel, outbox)


async def _serve(service: Service, channel: MessageChannel, outbox: Outbox[Envelope]) -> None:
    session = make_session(service, account=outbox.account)
    session.network = channel.network
    # The answer of a call that runs alone need not wake the writer. Where there are more, their answers share a write.
    outbox.send_now, outbox.queue_while = channel.send_nowait, session.connection.open_ids
    take = partial(session.receive, outbox=outbox)
    session.attach(outbox)
    reading = trio.CancelScope()
    over = trio.CancelScope()
    channel.on_stop, channel.account = reading.cancel, outbox.account
    channel.stop_reading = session.on_over = over.cancel
    channel.is_busy = lambda: session.busy
    async with channel, trio.open_nursery() as nursery:
        nursery.start_soon(_write_then_stop, service, channel, outbox, nursery.cancel_scope)
        try:
            with reading, over:
                await read_all(channel, take, outbox, service.turn)
                # No more requests come, and what came is answered if its peer still reads.
                with trio.move_on_after(channel.drain):
                    await session.drain()
            if reading.cancelled_caught:
                await service.drain(0, CLEAN_UP)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            service.records.log(BROKEN, error, level=logging.INFO)
        finally:
            if session.working:
                service.records.log("the client is gone: what still runs for it is cancelled", level=logging.INFO)
            session.close(CancelReason.DISCONNECT)
            with trio.move_on_after(CLEAN_UP, shield=True):
                await session.requests.wait_none_left()
            outbox.close()
            channel.account = None
            del channel.is_busy
            nursery.cancel_scope.deadline = trio.current_time() + CLEAN_UP


async def _write_then_stop(
    service: Service, channel: MessageChannel, outbox: Outbox[Envelope], connection: trio.CancelScope
) -> None:
    try:
        await write_all(channel, outbox)
    except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
        service.records.log(BROKEN, error, level=logging.INFO)
    connection.cancel()
