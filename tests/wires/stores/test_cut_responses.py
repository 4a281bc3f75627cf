"""What a client reads of a call that its process has given up, as it was taken for dead: a lost connection, never an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2
import pytest
import trio
import uvicorn
from hypercorn.config import Config
from hypercorn.trio import serve
from noticing_store import NoticingDisk, NoticingStore
from orders import message
from peer import hello, modern_meta
from serving import free_port, served
from task_process import KEYS
from waiting import until
from wire_terms import NEWEST_LEGACY, headers_of

from trio_mcp import Server, ServiceOptions
from trio_mcp_transports.http import asgi_app

BOUND = 30
ACCEPT = {"Accept": "application/json, text/event-stream"}
CALL = {"name": "work", "arguments": {}}


class Shop:
    """A server with a tool that does not end."""

    def __init__(self) -> None:
        self.store = NoticingStore(NoticingDisk())
        self.server = Server("shop", version="1", options=ServiceOptions(keys=KEYS, store=self.store))
        self.begun = trio.Event()
        self.server.tool(self.work)

    async def work(self) -> str:
        self.begun.set()
        await trio.sleep_forever()
        return ""

    def be_buried(self) -> None:
        self.store.be_buried()
        self.store.lapses += 1


async def legacy_session(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    opened = await client.post(url, json=message("initialize", hello(), 1), headers=ACCEPT)
    headers = {**ACCEPT, "MCP-Protocol-Version": NEWEST_LEGACY, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
    await client.post(url, json=message("notifications/initialized", {}), headers=headers)
    return headers


Run = Callable[[Callable[[], None]], object]
"""Runs a function in the thread of a server."""


@asynccontextmanager
async def by_itself(server: Server, *, sessions: bool) -> AsyncIterator[tuple[str, Run]]:
    async with served(server, sessions=sessions) as url:
        yield url, lambda function: function()


@asynccontextmanager
async def on_hypercorn(server: Server, *, sessions: bool) -> AsyncIterator[tuple[str, Run]]:
    app: Any = asgi_app(server, sessions=sessions)
    config, ending = Config(), trio.Event()
    config.bind, config.errorlog = [f"127.0.0.1:{free_port()}"], None
    async with trio.open_nursery() as nursery:
        (address,) = await nursery.start(partial(serve, app, config, shutdown_trigger=ending.wait))
        yield f"{address}/mcp", lambda function: function()
        ending.set()


@asynccontextmanager
async def on_uvicorn(server: Server, *, sessions: bool) -> AsyncIterator[tuple[str, Run]]:
    port, loops = free_port(), list[asyncio.AbstractEventLoop]()
    host = uvicorn.Server(uvicorn.Config(asgi_app(server, sessions=sessions), port=port, log_level="critical"))

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await host.serve()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.to_thread.run_sync, abandon_on_cancel=True), asyncio.run, serve())
        await until(lambda: host.started)
        yield f"http://127.0.0.1:{port}/mcp", loops[0].call_soon_threadsafe
        host.should_exit = True


HOSTS = {"by itself": by_itself, "hypercorn": on_hypercorn, "uvicorn": on_uvicorn}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("kind", ["modern", "legacy", "without a session"])
async def test_a_call_that_was_given_up_ends_like_a_lost_connection(kind: str, host: str) -> None:
    shop = Shop()
    with trio.fail_after(BOUND):
        async with (
            HOSTS[host](shop.server, sessions=kind != "without a session") as (url, run),
            httpx2.AsyncClient(timeout=BOUND) as client,
            trio.open_nursery() as nursery,
        ):
            params, headers = dict[str, Any](CALL), ACCEPT
            if kind == "modern":
                params["_meta"] = modern_meta()
                headers = {**ACCEPT, **headers_of("tools/call", params)}
            elif kind == "legacy":
                headers = await legacy_session(client, url)

            async def call() -> None:
                with pytest.raises(httpx2.RemoteProtocolError):
                    await client.post(url, json=message("tools/call", params, 1), headers=headers)

            nursery.start_soon(call)
            # It is set in a thread.
            await until(shop.begun.is_set)
            run(shop.be_buried)
