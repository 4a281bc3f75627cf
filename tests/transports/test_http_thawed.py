"""A process that stood still for longer than its lease: it asks its store whether it was buried before it serves a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing
from asgi_peer import JSON_HEADERS, AsgiPeer, initialize, legacy_call, served
from noticing_store import NoticingDisk, NoticingStore
from task_process import KEYS

from trio_mcp import Server, ServiceOptions
from trio_mcp_transports.http import asgi_app

STOPPED = 4.0
"""Seconds; longer than a lease."""


class Process:
    """A process of a server, and its client."""

    peer: AsgiPeer

    def __init__(self, store: NoticingStore) -> None:
        self.store = store
        self.charged = 0
        self.may_charge = trio.Event()
        self.may_charge.set()

    async def charge(self) -> None:
        self.charged += 1
        await self.may_charge.wait()

    async def opens(self) -> int:
        """Return the status of the handshake of a session, which has to be stored."""
        return (await self.peer.post(initialize({}), JSON_HEADERS)).status


@asynccontextmanager
async def process(disk: NoticingDisk | None = None) -> AsyncIterator[Process]:
    new = Process(NoticingStore(disk or NoticingDisk()))
    server = Server("shop", version="1", options=ServiceOptions(keys=KEYS, store=new.store))
    server.tool(new.charge)
    async with served(asgi_app(server)) as new.peer:
        await trio.testing.wait_all_tasks_blocked()
        yield new


def stand_still() -> None:
    # The fixture of the clock is another object than the clock of the run.
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    clock.jump(STOPPED)


async def test_a_process_that_was_buried_while_it_stood_still_refuses_no_request() -> None:
    async with process() as first:
        for _ in range(2):
            first.store.be_buried()
            stand_still()
            assert [await first.opens(), (await first.peer.get("/ready")).status] == [200, 200]


async def test_a_request_waits_until_a_process_that_was_buried_has_joined_again() -> None:
    async with process() as first:
        first.store.be_buried()
        # The thread of the leases was faster.
        first.store.lapses += 1
        assert await first.opens() == 200


async def test_a_request_of_a_session_that_is_in_use_elsewhere_meanwhile_runs_nothing() -> None:
    disk = NoticingDisk()
    async with process(disk) as first, process(disk) as second:
        headers = await first.peer.open_session()
        assert (await first.peer.post(legacy_call("charge"), headers)).status == 200
        first.store.be_buried()
        # A session at rest would be released to the first one.
        second.may_charge = trio.Event()
        running = second.peer.start(legacy_call("charge"), headers)
        await trio.testing.wait_all_tasks_blocked()
        stand_still()
        assert (await first.peer.post(legacy_call("charge", id=3), headers)).status == 503
        second.may_charge.set()
        assert (await running.end()).status == 200
    assert (first.charged, second.charged) == (1, 1)


async def test_a_process_that_stood_still_while_its_store_went_away_serves_what_needs_none_at_once() -> None:
    async with process() as first:
        headers = await first.peer.open_session()
        first.store.join_fails = True
        stand_still()
        began = trio.current_time()
        assert (await first.peer.post(legacy_call("charge"), headers)).status == 200
        assert trio.current_time() == began
