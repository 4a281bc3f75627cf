"""Callers with scopes over real connections: HTTP, HTTP+SSE and WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from serving import served

from trio_mcp import Caller, Client, Context, PeerError, Server

BOUND = 30.0
WIRES = {
    "http legacy": ("http", "/mcp", "legacy"),
    "http modern": ("http", "/mcp", "modern"),
    "websocket legacy": ("ws", "/mcp", "legacy"),
    "websocket modern": ("ws", "/mcp", "modern"),
    "sse": ("http", "/sse", "2024-11-05"),
}


def as_caller(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def by_token(headers: Mapping[str, str]) -> Caller | str | None:
    token = headers.get("authorization", "").removeprefix("Bearer ")
    known = {"reader": Caller("alice", ["read"]), "writer": Caller("alice", ["read", "write"], {"team": "blue"})}
    return "bob" if token == "bob" else known.get(token)


@asynccontextmanager
async def library() -> AsyncIterator[str]:
    server = Server("library", version="1")

    @server.tool(scopes=["write"])
    async def donate() -> str:
        return "thank you"

    @server.tool(visible=lambda caller: caller is not None and "write" in caller.scopes)
    async def clear() -> str:
        return "cleared"

    @server.tool
    async def whoami(ctx: Context) -> str:
        caller = ctx.caller
        return "nobody" if caller is None else f"{caller.principal} {sorted(caller.scopes)} {caller.claims}"

    with trio.fail_after(BOUND):
        async with served(server, authenticate=by_token, sse_path="/sse") as url:
            yield url.removeprefix("http://").partition("/")[0]


@pytest.fixture(params=WIRES.values(), ids=WIRES)
def wire(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    return request.param


async def test_the_caller_of_a_connection_is_known_to_its_tools(wire: tuple[str, str, str]) -> None:
    scheme, path, mode = wire
    async with library() as host:
        url = f"{scheme}://{host}{path}"
        async with Client.connect(url, mode=mode, headers=as_caller("writer")) as client:
            assert (await client.call_tool("whoami")).text == "alice ['read', 'write'] {'team': 'blue'}"
            assert [tool.name for tool in await client.list_tools()] == ["donate", "clear", "whoami"]
        async with Client.connect(url, mode=mode, headers=as_caller("bob")) as client:
            assert (await client.call_tool("whoami")).text == "bob [] {}"
            assert [tool.name for tool in await client.list_tools()] == ["donate", "whoami"]


async def test_missing_scopes_are_403_where_there_is_a_status_and_an_error_result_elsewhere(
    wire: tuple[str, str, str],
) -> None:
    scheme, path, mode = wire
    async with library() as host:
        async with Client.connect(f"{scheme}://{host}{path}", mode=mode, headers=as_caller("reader")) as client:
            if scheme == "ws":
                result = await client.call_tool("donate")
                assert (result.is_error, (result.meta or {})["trio-mcp/requiredScopes"]) == (True, ["write"])
            else:
                with pytest.raises(PeerError) as caught:
                    await client.call_tool("donate")
                assert caught.value.data == {"trio-mcp/requiredScopes": ["write"]}
            assert (await client.call_tool("whoami")).text == "alice ['read'] {}"
