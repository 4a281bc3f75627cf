"""What a client tells its program of lost connections, and the delays between its own attempts."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

import pytest
import trio
from connected import connected
from ends import memory_ends
from programs import Programs, programs
from scripted import Wire, answered, as_modern, client_over, said
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Client, Server
from trio_mcp.client.reconnecting import reconnecting
from trio_mcp.client.session_reconnecting import LEAST_PAUSE
from trio_mcp.errors import Unreachable
from trio_mcp.session import AnyChannel

__all__ = ["programs"]

BOUND = 1000.0


@pytest.fixture
def server(programs: Programs) -> Server:
    server = Server("files")

    @server.tool(annotations={"readOnlyHint": True})
    async def read() -> str:
        return "content"

    programs.servers = {"files": server}
    return server


async def test_a_lost_connection_is_reported_and_opened_by_a_request(
    programs: Programs, server: Server, mode: str
) -> None:
    seen: list[str] = []
    with trio.fail_after(BOUND):
        async with Client.connect(["files"], mode=mode, on_disconnect=seen.append) as client:
            assert client.is_open
            await programs.kill("files")
            assert len(seen) == 1
            assert "closed the connection" in seen[0]
            await trio.sleep(100)
            assert programs.starts["files"] == 1  # an idle client starts nothing
            assert (await client.call_tool("read")).text == "content"
            assert client.is_open
        assert not client.is_open
    assert len(seen) == 1  # closing is no loss


async def test_a_connection_that_breaks_is_reported_once() -> None:
    seen: list[str] = []
    wires: list[Wire] = []
    breaks = trio.Event()

    async def break_down() -> None:
        await breaks.wait()
        raise OSError("broken")

    @asynccontextmanager
    async def connect() -> AsyncIterator[AnyChannel]:
        ours, theirs = memory_ends()
        wires.append(Wire(theirs))
        with closing(ours):
            async with trio.open_nursery() as nursery:
                if len(wires) > 1:  # what breaks the first one is raised by the client
                    nursery.start_soon(break_down)
                yield ours

    async with client_over(reconnecting(connect), mode="modern", on_disconnect=seen.append) as (client, start):
        opened = start(client.open)
        await wait_all_tasks_blocked()
        await as_modern(wires[0])
        await opened.result()
        await wires[0].close()
        call = start(client.call_tool, "fine")
        await wait_all_tasks_blocked()
        await answered(wires[1], call, "tools/call", said("fine"))
        del seen[:]
        breaks.set()
        await wait_all_tasks_blocked()
        assert len(seen) == 1


async def test_without_reconnecting_a_lost_connection_ends_the_client(
    programs: Programs, server: Server, mode: str
) -> None:
    seen: list[str] = []
    async with connected(["files"], mode=mode, on_disconnect=seen.append, reconnect=False, bound=BOUND) as client:
        await programs.kill("files")
        assert len(seen) == 1
        assert not client.is_open


async def test_a_subscriber_is_connected_again_with_growing_delays(
    programs: Programs, server: Server, mode: str
) -> None:
    async with connected(["files"], mode=mode, bound=BOUND) as client, client.listen(tools=True) as changes:
        await trio.sleep(60)
        lost_at = trio.current_time()
        programs.broken["files"] = OSError("gone")
        await programs.kill("files")
        await trio.sleep(200)
        attempts = [at - lost_at for at in programs.started_at["files"][1:]]
        assert attempts[0] <= 0.5
        assert 5 < len(attempts) < 30
        assert max(later - earlier for earlier, later in itertools.pairwise(attempts)) <= 30
        del programs.broken["files"]
        assert (await changes.__anext__()).kind == "tools"


async def test_requests_share_the_failure_of_an_attempt_for_a_subscriber(programs: Programs, server: Server) -> None:
    async with connected(["files"], mode="legacy", bound=BOUND) as client, client.listen(tools=True):
        programs.broken["files"] = OSError("gone")
        await programs.kill("files")
        await wait_all_tasks_blocked()
        attempts = programs.starts["files"]
        for _ in range(10):
            with pytest.raises(Unreachable, match="gone"):
                await client.ping()
        assert programs.starts["files"] == attempts
        del programs.broken["files"]
        await trio.sleep(LEAST_PAUSE)
        await client.ping()


async def test_a_failing_on_disconnect_is_logged_and_changes_nothing(
    programs: Programs, server: Server, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: str) -> None:
        raise ZeroDivisionError

    async with connected(["files"], mode=mode, on_disconnect=fail, bound=BOUND) as client:
        await programs.kill("files")
        await wait_all_tasks_blocked()
        assert (await client.call_tool("read")).text == "content"
    assert "ZeroDivisionError" in caplog.text


async def test_on_disconnect_is_a_plain_function() -> None:
    async def later(_: str) -> None:
        raise NotImplementedError

    with pytest.raises(TypeError, match="on_disconnect"):
        Client.connect(["files"], on_disconnect=later)  # type: ignore[arg-type]
