"""A store behind a slow network: each answer comes 100 or 300 ms late."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest
import trio
from store_talk import BOUND, bury_none, open_at

from trio_mcp.stores import Put, Record
from trio_mcp.stores.leases import LEASE_SECONDS, QUIET_SECONDS

LATE = [0.1, pytest.param(0.3, marks=pytest.mark.long)]
"""Seconds by which an answer is late. With 300 ms a lease is renewed with half of its time left: a busy machine may take that."""
MANY = 20


async def passed_on(source: trio.SocketStream, target: trio.SocketStream, late: float) -> None:
    """Pass bytes on, each so many seconds later."""
    send, receive = trio.open_memory_channel[tuple[float, bytes]](1000)

    async def write() -> None:
        async for due, data in receive:
            await trio.sleep_until(due)
            await target.send_all(data)
        await target.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        with send:
            async for data in source:
                await send.send((trio.current_time() + late, bytes(data)))


@asynccontextmanager
async def slow_way(url: str, late: float) -> AsyncIterator[str]:
    """A URL of the same server, whose answers come late."""
    address = urlsplit(url)
    assert address.hostname is not None
    assert address.port is not None
    host, port = address.hostname, address.port

    async def serve(client: trio.SocketStream) -> None:
        try:
            server = await trio.open_tcp_stream(host, port)
            async with server, trio.open_nursery() as nursery:
                nursery.start_soon(passed_on, client, server, 0.0)
                nursery.start_soon(passed_on, server, client, late)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), serve, 0)
        own = listener.socket.getsockname()[1]
        yield url.replace(f":{port}/", f":{own}/")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("late", LATE)
async def test_a_slow_store_takes_every_write_and_its_process_is_not_taken_for_dead(
    namespace: str, late: float
) -> None:
    with trio.fail_after(BOUND):
        async with slow_way(namespace, late) as slow, open_at(slow) as store, open_at(namespace) as other:
            await store.join("slow")
            async with trio.open_nursery() as nursery:
                for number in range(MANY):
                    nursery.start_soon(store.write, [Put(Record("thing", f"slow {number}", b"value"))])
            assert len([each for each in await other.list("thing") if each.key.startswith("slow ")]) == MANY
            # Longer than until it would be buried.
            await bury_none((other, "slow"), seconds=QUIET_SECONDS + 2 * LEASE_SECONDS)
            await store.write([Put(Record("thing", "slow again", b"value"))])
            assert await store.read("thing", "slow again") is not None
