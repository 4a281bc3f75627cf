"""Crowds of thousands that are slow (reliability rows 34 and 35): they are cut off, and other clients are served meanwhile."""

from __future__ import annotations

import itertools
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from hypercorn_peer import running
from serving import child

from trio_mcp import CancelReason, Client, Context, Server
from trio_mcp.session import Service, ServiceOptions
from trio_mcp_transports.http import HttpLimits, asgi_app
from trio_mcp_transports.hypercorn.config import ConnectionLimits, GuardedConfig, guarded_config
from trio_mcp_transports.hypercorn.connections import connections_of

CROWD = Path(__file__).parent / "crowd.py"
OTHERS = 200
"""Files that a process has open besides its connections."""
KERNEL_BUFFER = 4096
"""Bytes that the kernel takes for one who does not read: by default it would be megabytes for each."""

# How many, the seconds that each has to read, and a bound for the whole.
crowds = pytest.mark.parametrize(
    ("count", "deadline", "bound"), [(1_000, 5.0, 100.0), pytest.param(10_000, 60.0, 900.0, marks=pytest.mark.long)]
)


@pytest.fixture
def files(count: int) -> Iterator[None]:
    """As many open files as the crowd needs."""
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < count + OTHERS:
        pytest.skip(
            f"{count} connections need {count + OTHERS} open files, and the hard limit of this process is {most}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


class Flooded:
    """A server with a tool that never stops reporting; `over` is set when a number of its runs have ended."""

    def __init__(self, count: int) -> None:
        self.server = Server("flooded", version="1", options=ServiceOptions(outbox=1))
        self.left = count
        self.over = trio.Event()
        self.server.add_tool(self.echo)
        self.server.add_tool(self.flood)

    async def echo(self, text: str) -> str:
        return text

    async def flood(self, ctx: Context) -> str:
        try:
            for number in itertools.count(1):
                await ctx.progress(number, message="x" * 30_000)
        finally:
            self.left -= 1
            if self.left == 0:
                self.over.set()
        raise AssertionError


@asynccontextmanager
async def served(
    server: Server, deadline: float, count: int, bound: float
) -> AsyncIterator[tuple[int, GuardedConfig, Service]]:
    """Serve over HTTP with these deadlines; the port, the settings with the connections, and the service."""
    limits = ConnectionLimits(send_timeout=deadline, header_timeout=deadline, max_connections=count + OTHERS)
    config = guarded_config(limits=limits)
    app = asgi_app(server, limits=HttpLimits(body_seconds=deadline))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER)
        listener.bind(("127.0.0.1", 0))
        config.listen_on([listener])
        async with running(app, config, limit=bound) as running_server:
            yield running_server.port, config, app.service


async def answered_until(over: trio.Event, client: Client) -> None:
    """Call a tool again and again until then; raise unless every call is answered."""
    for number in itertools.count():
        assert (await client.call_tool("echo", {"text": str(number)})).text == str(number)
        if over.is_set():
            return


async def until_left(config: GuardedConfig, service: Service) -> None:
    """Wait until nothing is left of a crowd. The other client has a connection or two."""
    while len(connections_of(config)) > 2 or not service.statistics().is_idle:
        await trio.testing.wait_all_tasks_blocked()


@crowds
@pytest.mark.usefixtures("files")
async def test_a_crowd_that_does_not_read_is_cut_off_and_affects_no_other_client(
    count: int, deadline: float, bound: float
) -> None:
    flooded = Flooded(count)
    async with served(flooded.server, deadline, count, bound) as (port, config, service):
        async with Client.connect(f"http://127.0.0.1:{port}/mcp") as client, trio.open_nursery() as nursery:
            async with child(CROWD, str(port), str(count), "deaf", stderr=None, limit=bound) as crowd:
                nursery.start_soon(answered_until, flooded.over, client)
                assert await crowd.line() == b"ready"
                await flooded.over.wait()
                await until_left(config, service)
            actors = service.statistics().actors
            # A client that did not get the first byte tries again, perhaps after its call had started.
            assert list(actors.cancelled) == [CancelReason.DISCONNECT]
            assert actors.cancelled[CancelReason.DISCONNECT] >= count
            assert actors.ever_stuck == 0


@crowds
@pytest.mark.usefixtures("files")
async def test_a_crowd_of_slow_senders_is_cut_off_and_affects_no_other_client(
    count: int, deadline: float, bound: float
) -> None:
    server, over = Flooded(0).server, trio.Event()
    async with served(server, deadline / 2, count, bound) as (port, config, service):
        async with Client.connect(f"http://127.0.0.1:{port}/mcp") as client, trio.open_nursery() as nursery:
            async with child(CROWD, str(port), str(count), "slow", stderr=None, limit=bound) as crowd:
                nursery.start_soon(answered_until, over, client)
                assert await crowd.line() == b"ready"
                assert await crowd.line() == b"%d ended, 0 with 200" % count
                over.set()
                await until_left(config, service)
