"""Group E: the life of a connection, and what is refused in it."""

from __future__ import annotations

from ..makers import Trait
from ..pair import Pair
from ..rules import LEGACY, MODERN, rule


@rule("E")
async def a_tool_is_called(pair: Pair) -> None:
    async with pair.client() as client:
        assert client.protocol_version == pair.revision
        assert (await client.call_tool("echo", {"text": "hello"})).text == "hello"


@rule("E")
async def an_unknown_method_is_refused_by_name(pair: Pair) -> None:
    async with pair.peer() as peer:
        error = await peer.error(await peer.request("no/such"))
        assert error["code"] == -32601
        await peer.ping()


@rule("E", needs=(Trait.SHARED,))
async def an_id_in_use_is_refused_on_a_shared_channel(pair: Pair) -> None:
    async with pair.peer() as peer:
        await peer.request("tools/call", {"name": "wait", "arguments": {}}, id="twice")
        await pair.stage.marked("wait began")
        error = await peer.error(
            await peer.request("tools/call", {"name": "echo", "arguments": {"text": "x"}}, id="twice")
        )
        assert error["code"] == -32600
        await pair.stage.open("wait")
        assert "result" in await peer.reply("twice")


@rule("E", revisions=LEGACY, why="the modern era has no ping")
async def a_ping_is_answered(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await peer.result(await peer.request("ping")) == {}


@rule("E", revisions=MODERN, why="the handshake era has no discovery")
async def a_server_is_discovered(pair: Pair) -> None:
    async with pair.peer() as peer:
        result = await peer.result(await peer.request("server/discover"))
        assert pair.revision in result["supportedVersions"]  # type: ignore[operator]
