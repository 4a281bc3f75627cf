"""Legacy clients without sessions (`sessions=False`): each request stands alone, and modern clients are served as ever."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import trio
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, initialize, legacy_call, modern_call, served
from scripted_http import http_channel
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Client, Context, HttpOptions, PeerError, Server, proxy
from trio_mcp.client import Client as AnyClient, ClientOptions
from trio_mcp.types import Implementation
from trio_mcp_transports.http import asgi_app

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


class Tools:
    """A server, and what its tools have seen."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("alone", http=HttpOptions(sessions=False, **options))
        self.running = trio.Event()
        self.cancelled = False

        @self.server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @self.server.tool(task=True)
        async def reports(ctx: Context) -> str:
            await ctx.progress(1, 2)
            await ctx.log("error", "a log message")
            return "reported"

        @self.server.tool
        async def asks(ctx: Context) -> str:
            return str(await ctx.elicit("Sure?"))

        @self.server.tool
        async def samples(ctx: Context) -> str:
            return str(await ctx.sample("Hello"))

        @self.server.tool
        async def waits() -> None:
            self.running.set()
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled = True

        @self.server.resource("a:b")
        async def resource() -> str:
            return "resource"


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[AsgiPeer, Tools]]:
    tools = Tools(**options)
    async with served(asgi_app(tools.server)) as peer:
        yield peer, tools


def headers(version: str | None = "2025-06-18", **more: str) -> dict[str, str]:
    return {**JSON_HEADERS, **({} if version is None else {"mcp-protocol-version": version}), **more}


def called(name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return legacy_call(name, arguments or {}, **more)


@pytest.mark.parametrize("version", LEGACY)
async def test_initialize_returns_no_session_and_declares_nothing_that_needs_one(version: str) -> None:
    async with serving() as (peer, _):
        reply = await peer.post(initialize({"elicitation": {}}, version), headers(None))
        assert reply.status == 200
        assert "mcp-session-id" not in reply.headers
        result = reply.json["result"]
        assert result["protocolVersion"] == version
        assert result["capabilities"].keys() - {"experimental"} == {"tools", "resources"}
        assert result["capabilities"]["tools"] == result["capabilities"]["resources"] == {}


@pytest.mark.parametrize("version", [*LEGACY, None])
@pytest.mark.parametrize("session", [{}, {"mcp-session-id": "of-another-process"}])
async def test_a_request_is_served_whatever_session_it_names(version: str | None, session: Any) -> None:
    async with serving() as (peer, _):
        reply = await peer.post(called("add", {"a": 1, "b": 2}), {**headers(version), **session})
        assert (reply.status, reply.json["result"]["content"][0]["text"]) == (200, "3")
        listed = await peer.post({"jsonrpc": "2.0", "id": "l", "method": "tools/list"}, {**headers(version), **session})
        assert len(listed.json["result"]["tools"]) == 5
        ping = await peer.post({"jsonrpc": "2.0", "id": 9, "method": "ping"}, {**headers(version), **session})
        assert ping.json["result"] == {}


@pytest.mark.parametrize("version", [*LEGACY, None])
@pytest.mark.parametrize("session", [{}, {"mcp-session-id": "of-another-process"}])
async def test_an_array_of_messages_is_refused_and_none_of_them_runs(version: str | None, session: Any) -> None:
    async with serving() as (peer, tools):
        batch = [called("waits", id=1), called("add", {"a": 1, "b": 2}, id=2)]
        reply = await peer.post(batch, {**headers(version), **session})
        assert (reply.status, reply.json["error"]["code"]) == (400, -32600)
        assert not tools.running.is_set()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("session", [{}, {"mcp-session-id": "any"}])
async def test_there_is_no_stream_to_get_and_no_session_to_delete(method: str, session: Any) -> None:
    async with serving() as (peer, _):
        reply = await peer.start(b"", {**headers(), **session, "accept": "text/event-stream"}, method=method).end()
        assert (reply.status, reply.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("logging/setLevel", {"level": "debug"}),
        ("resources/subscribe", {"uri": "a:b"}),
        ("resources/unsubscribe", {"uri": "a:b"}),
        ("tasks/list", {}),
        ("tasks/get", {"taskId": "t"}),
    ],
)
async def test_what_needs_a_session_is_not_found(method: str, params: Any) -> None:
    async with serving() as (peer, _):
        reply = await peer.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers("2025-11-25"))
        assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (200, -32601, 1)


@pytest.mark.parametrize("tool", ["asks", "samples"])
async def test_nothing_can_be_asked_of_a_client_without_a_session(tool: str) -> None:
    async with serving() as (peer, _):
        result = (await peer.post(called(tool), headers())).json["result"]
        assert result["isError"]
        assert "elicitation" in str(result) or "sampling" in str(result)


async def test_progress_comes_with_the_response_and_a_task_is_not_made() -> None:
    async with serving() as (peer, _):
        call = called("reports")
        call["params"] |= {"_meta": {"progressToken": "p"}, "task": {"ttl": 1000}}
        reply = await peer.post(call, headers("2025-11-25"))
        progress, answer = reply.events
        assert progress["params"] == {"progressToken": "p", "progress": 1, "total": 2}
        assert answer["result"]["content"][0]["text"] == "reported"


async def test_a_cancellation_in_another_post_has_no_effect_and_the_end_of_the_stream_cancels_the_call() -> None:
    async with serving() as (peer, tools):
        call = peer.start(called("waits", id=5), headers())
        await tools.running.wait()
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        assert (await peer.post(cancel, headers())).status == 202
        await wait_all_tasks_blocked()
        assert not tools.cancelled
        call.gone.set()
        await wait_all_tasks_blocked()
        assert tools.cancelled


async def test_notifications_and_answers_mean_nothing_and_what_cannot_be_read_is_refused() -> None:
    async with serving() as (peer, _):
        for message in ({"method": "notifications/initialized"}, {"id": 1, "result": {}}):
            assert (await peer.post({"jsonrpc": "2.0", **message}, headers())).status == 202
        wrong = await peer.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 5}}, headers())
        assert (wrong.json["error"]["code"], wrong.json["id"]) == (-32602, 1)
        assert (await peer.post(called("add"), headers("1999-01-01"))).status == 400


async def test_modern_clients_are_served_as_ever() -> None:
    async with serving() as (peer, _):
        reply: Reply = await peer.post(*modern_call("add", {"a": 1, "b": 2}))
        assert reply.last["result"]["content"][0]["text"] == "3"


async def test_nothing_is_left_of_a_request() -> None:
    async with serving() as (peer, tools):
        (service,) = tools.server.services
        # The budget is that of the process.
        before = service.statistics().memory.drawn
        for _ in range(3):
            await peer.post(initialize({}), headers(None))
            await peer.post(called("add", {"a": 1, "b": 2}), headers())
            await peer.post({"jsonrpc": "2.0", "id": 1, "method": "tasks/list"}, headers())
        await wait_all_tasks_blocked()
        found = service.statistics()
        assert (found.actors.running, found.actors.parked, found.memory.drawn) == (0, 0, before)


@asynccontextmanager
async def client_of(handle: Any) -> AsyncIterator[Client]:
    channel = http_channel(httpx2.ASGITransport(handle), "http://localhost/mcp")
    async with AnyClient(channel, ClientOptions(info=Implementation(name="c", version="1"), mode="legacy")) as client:
        yield client


async def test_our_client_is_served_by_processes_that_take_turns() -> None:
    apps = [asgi_app(Tools().server) for _ in range(2)]
    turns = itertools.cycle(apps)

    async def balance(scope: Any, receive: Any, send: Any) -> None:
        await next(turns)(scope, receive, send)

    async with apps[0].lifespan(), apps[1].lifespan(), client_of(balance) as client:
        for number in range(5):
            assert (await client.call_tool("add", {"a": number, "b": 1})).data == number + 1
        assert (await client.read_resource("a:b")).text == "resource"


def test_it_excludes_http_sse_and_takes_a_bool() -> None:
    with pytest.raises(ValueError, match="sse_path"):
        HttpOptions(sessions=False, sse_path="/sse")
    with pytest.raises(TypeError, match="sessions"):
        HttpOptions(sessions=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="sse_path"):
        asgi_app(Server("a", http=HttpOptions(sse_path="/sse")), sessions=False)
    assert not asgi_app(Server("a"), sessions=False).options.sessions


@pytest.mark.parametrize("by_path", [False, True])
def test_a_proxy_needs_sessions(by_path: bool) -> None:
    server = proxy(["python", "x.py"])
    with pytest.raises(ValueError, match=r"sessions.*proxy.*mount"):
        asgi_app({"/a": server} if by_path else server, sessions=False)


async def test_a_mounted_proxy_is_served_without_sessions() -> None:
    hub = Server("hub", http=HttpOptions(sessions=False))
    hub.mount("far", proxy(Tools().server))
    app = asgi_app(hub)
    async with app.lifespan(), client_of(app) as client:
        assert (await client.call_tool("far_add", {"a": 1, "b": 2})).data == 3
        with pytest.raises(PeerError, match="elicitation"):
            await client.call_tool("far_asks")
