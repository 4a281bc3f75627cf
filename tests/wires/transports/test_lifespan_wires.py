"""The lifespan of a server, once over each real way to serve it."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from serving import MODULE, Child, child, served

from trio_mcp import Client, Disconnected, PeerError
from trio_mcp.server import Server

APP = Path(__file__).with_name("lifespan_app.py")
BOUND = 40.0


HYPERCORN = ("hypercorn", "-k", "trio", "-b", "127.0.0.1:0")
process = partial(child, limit=BOUND, strict=False, cwd=APP.parent, start_new_session=True)


@asynccontextmanager
async def hypercorn(name: str, **variables: str) -> AsyncIterator[tuple[Child, str]]:
    """Serve an application of the file with hypercorn itself, and give its URL."""
    async with process(MODULE, *HYPERCORN, f"lifespan_app:{name}", variables=variables) as served:
        yield served, f"{await served.announced()}/mcp"


async def notes_of(url: str, mode: Any) -> list[object]:
    async with Client.connect(url, mode=mode) as client:
        await client.call_tool("note", {"text": "a"})
        result = await client.call_tool("note", {"text": "b"})
        assert isinstance(result.structured_content, dict)
        return result.structured_content["result"]  # type: ignore[return-value]


async def test_on_stdio_the_lifespan_lasts_as_long_as_the_process() -> None:
    async with process(APP) as child:
        await child.stdin.aclose()
        assert await child.errors() == b"opened\nclosed\n"
        assert await child.end() == 0


async def test_on_stdio_a_failed_start_ends_the_process_with_its_exception() -> None:
    async with process(APP, variables={"BROKEN": "1"}) as child:
        assert b"Broken: no database" in await child.errors()
        assert await child.end() == 1


@pytest.mark.parametrize("name", ["app", "mounted", "managed"])
async def test_hypercorn_runs_it_once_for_all_requests_of_both_eras(name: str) -> None:
    async with hypercorn(name) as (child, url):
        assert await notes_of(url, "legacy") == ["a", "b"]
        assert await notes_of(url, "modern") == ["a", "b", "a", "b"]
        child.process.send_signal(signal.SIGTERM)
        left = await child.errors()
        assert left.count(b"closed\n") == 1
        assert b"Traceback" not in left


async def test_hypercorn_ends_when_it_cannot_start() -> None:
    async with process(MODULE, *HYPERCORN, "lifespan_app:app", variables={"BROKEN": "1"}) as child:
        assert b"Broken: no database" in await child.errors()  # and it has ended; its exit status is hypercorn's own


async def test_a_mounted_application_that_cannot_start_answers_503_and_logs_the_cause() -> None:
    async with hypercorn("mounted", BROKEN="1") as (child, url):
        for _ in range(2):
            with pytest.raises((PeerError, Disconnected), match="could not be started"):
                await Client.connect(url, mode="modern").open()
        child.process.send_signal(signal.SIGTERM)
        assert (await child.errors()).count(b"Broken: no database") == 1


async def test_trio_mcp_serve_ends_with_the_exception_of_a_lifespan_that_fails() -> None:
    async with process(MODULE, "trio_mcp", "serve", str(APP), "--port", "0") as child:
        async with Client.connect(await child.announced(), mode="modern") as client:
            with pytest.raises((PeerError, Disconnected)):
                await client.call_tool("crash")
        assert b"lifespan failed: Broken: the database has left" in await child.errors()
        assert await child.end() == 3


@pytest.mark.parametrize("transport", ["http", "sse", "websocket"])
async def test_a_served_server_opens_it_before_the_first_connection(transport: str) -> None:
    opened: list[str] = []

    @asynccontextmanager
    async def lifespan(_server: Server) -> AsyncIterator[None]:
        opened.append("opened")
        yield
        opened.append("closed")

    async with served(Server("x", lifespan=lifespan), transport):
        assert opened == ["opened"]
    assert opened == ["opened", "closed"]
