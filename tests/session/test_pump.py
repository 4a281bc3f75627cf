"""Carrying messages between a channel and a session: one reader, one writer, and an end that cleans up."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from ends import memory_ends
from peer import ChannelClient, hello, message_of, modern_meta
from talk import offering
from trio.testing import wait_all_tasks_blocked

from trio_mcp import CancelReason
from trio_mcp.server import Context, Server
from trio_mcp.session import Envelope, MemoryBudget, MessageChannel


class Served(ChannelClient):
    """A client of a server that serves the other end of its channel; what has become of that shows here."""

    def __init__(self, channel: MessageChannel) -> None:
        super().__init__(channel)
        self.over = trio.Event()

    async def serve(self, server: Server, channel: trio.abc.Channel[Envelope]) -> None:
        await server.serve_channel(channel)
        self.over.set()

    async def ended(self) -> None:
        with trio.fail_after(50):
            await self.over.wait()


@asynccontextmanager
async def serving(server: Server, buffer: int = 64) -> AsyncIterator[Served]:
    ours, theirs = memory_ends(buffer)
    served = Served(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.serve, server, theirs)
        yield served
        ours.close()


@pytest.fixture
def reasons() -> list[CancelReason | None]:
    return []


@pytest.fixture
def server(reasons: list[CancelReason | None]) -> Server:
    async def wait(ctx: Context) -> str:
        try:
            await trio.sleep_forever()
        finally:
            reasons.append(ctx.cancel_reason)
        return "never"

    async def echo(text: str) -> str:
        return text

    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(3600)
        return "too late"

    return offering(wait, echo, stubborn)


async def test_the_end_of_the_channel_cancels_every_call_and_waits_for_its_clean_up(
    server: Server, reasons: list[CancelReason | None]
) -> None:
    async with serving(server) as served:
        await served.initialize()
        for _ in range(3):
            await served.call("wait")
        await wait_all_tasks_blocked()
        await served.close()
        await served.ended()
    assert reasons == [CancelReason.DISCONNECT] * 3


@pytest.mark.parametrize("method", ["tools/call", "subscriptions/listen"])
async def test_a_client_that_leaves_work_behind_is_logged_and_one_that_only_listened_is_not(
    server: Server, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    params = {"name": "wait", "notifications": {"toolsListChanged": True}, "_meta": modern_meta()}
    caplog.set_level(logging.INFO)
    async with serving(server) as served:
        await served.request(method, params)
        await wait_all_tasks_blocked()
        await served.close()
        await served.ended()
    # No warning: a peer that connects and leaves again and again must not fill the log.
    left = [record.levelno for record in caplog.records if "client is gone" in record.message]
    assert left == ([logging.INFO] if method == "tools/call" else [])


class Watched(trio.abc.Channel[Envelope]):
    """A channel that reports when it is collected."""

    def __init__(self, inner: MessageChannel) -> None:
        self._inner = inner
        self.closed = trio.Event()

    async def send(self, value: Envelope) -> None:
        await self._inner.send(value)

    async def receive(self) -> Envelope:
        return await self._inner.receive()

    async def aclose(self) -> None:
        self.closed.set()
        await self._inner.aclose()


async def test_a_tool_that_does_not_unwind_is_waited_for_within_a_bound(server: Server) -> None:
    async with trio.open_nursery() as nursery:
        ours, theirs = memory_ends()
        watched, served = Watched(theirs), Served(ours)
        nursery.start_soon(served.serve, server, watched)
        await served.initialize()
        await served.call("stubborn")
        await served.call("wait")
        await wait_all_tasks_blocked()
        await served.close()
        with trio.fail_after(10):
            await watched.closed.wait()
        nursery.cancel_scope.cancel()


async def test_a_client_that_reads_nothing_is_not_read_either(server: Server) -> None:
    async with serving(server, buffer=1) as served:
        await served.initialize()
        sent = 0
        with trio.move_on_after(5):
            while sent < 10_000:
                await served.call("echo", {"text": "x" * 1000})
                sent += 1
        assert sent < 1000
        for _ in range(sent):
            await served.receive()
        await served.silence()
        await served.text(await served.call("echo", {"text": "again"}))


async def test_a_cancel_overtakes_all_work(server: Server, reasons: list[CancelReason | None]) -> None:
    async with serving(server) as served:
        await served.initialize()
        call = await served.call("wait")
        await wait_all_tasks_blocked()
        await served.cancel(call)
        await wait_all_tasks_blocked()
        assert reasons == [CancelReason.CLIENT]


HELLO = message_of({"id": 0, "method": "initialize", "params": hello()})


class Broken(MessageChannel):
    """A channel on which a client says hello and calls a tool, and whose writing breaks then."""

    def __init__(self) -> None:
        self._messages = [HELLO, message_of({"id": 1, "method": "tools/call", "params": {"name": "wait"}})]
        self._all_read = trio.Event()
        self.closed = False

    async def send(self, value: Envelope) -> None:
        await self._all_read.wait()
        raise trio.BrokenResourceError

    async def receive(self) -> Envelope:
        await trio.lowlevel.checkpoint()
        if not self._messages:
            self._all_read.set()
            await trio.sleep_forever()
        return Envelope(self._messages.pop(0))

    async def aclose(self) -> None:
        self.closed = True
        await trio.lowlevel.checkpoint()


async def test_a_broken_writer_ends_the_connection_and_cancels_its_calls(
    server: Server, reasons: list[CancelReason | None]
) -> None:
    channel = Broken()
    with trio.fail_after(5):
        await server.serve_channel(channel)
    assert channel.closed
    assert reasons == [CancelReason.DISCONNECT]


class Many(Broken):
    """A channel that can write several messages at the price of one."""

    def __init__(self) -> None:
        super().__init__()
        self._messages = [HELLO, *(message_of({"id": n, "method": "ping"}) for n in range(1, 10))]
        self.writes: list[int] = []
        self._done = trio.Event()

    async def receive(self) -> Envelope:
        if not self._messages:
            await self._done.wait()
            raise trio.EndOfChannel
        return Envelope(self._messages.pop(0))

    async def send_many(self, envelopes: Sequence[Envelope]) -> None:
        await trio.lowlevel.checkpoint()
        self.writes.append(len(envelopes))
        if sum(self.writes) == 10:
            self._done.set()


async def test_messages_that_are_ready_together_are_written_together(server: Server) -> None:
    channel = Many()
    with trio.fail_after(5):
        await server.serve_channel(channel)
    assert sum(channel.writes) == 10
    assert len(channel.writes) < 10


@pytest.mark.parametrize("is_alone", [True, False])
async def test_what_a_call_drew_stays_counted_for_the_only_client_of_a_process_until_it_has_gone(
    is_alone: bool,
) -> None:
    async def echo(text: str) -> str:
        return text

    budget = MemoryBudget(64 * 1024 * 1024)
    ours, theirs = memory_ends()
    theirs.one_client = is_alone
    served = Served(ours)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.serve, offering(echo, memory=budget), theirs)
        await served.initialize()
        await wait_all_tasks_blocked()
        before = budget.statistics().drawn
        await served.result(await served.call("echo", {"text": "hi"}))
        await wait_all_tasks_blocked()
        assert (budget.statistics().drawn > before) is is_alone
        await served.close()
        await served.ended()
    assert budget.statistics().drawn == 0
