"""The proxy between hosts and servers of each era: a server and a client of this project, on a wire in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from naming import unnamed
from one_era import one_era
from relaying import FORM, HELLO, SECONDS, Json, Model, Relayed, ask as question, initialized, modern, relayed
from wire_terms import CLIENT_CAPABILITIES, INTERNAL_ERROR

from trio_mcp import Client, Context, Server, accept
from trio_mcp.errors import PeerError, ProviderError, ProviderErrorKind
from trio_mcp.relay import Backfill, RelayServer
from trio_mcp.session import find_transport
from trio_mcp.types import CreateMessageRequestParams, ElicitRequestFormParams, ElicitResult

ERAS = ("legacy", "modern")
PAIRS = [(host, server) for host in ERAS for server in ERAS]


def behind(era: str) -> Server:
    """The server behind the proxy."""
    server = one_era(Server("behind"), era)
    for tool in (ask, both):
        server.tool(tool)
    return server


async def ask(ctx: Context) -> str:
    return (await ctx.sample("say hello")).text


async def both(ctx: Context) -> str:
    said, name = await ctx.branch_all(ask, ask_name)
    return f"{said} {name}"


async def ask_name(ctx: Context) -> str:
    return str((await ctx.elicit("Your name?", str)).content)


@asynccontextmanager
async def connected(host: str, far: Server, provider: object = None, **options: Any) -> AsyncIterator[Client]:
    """A host of this era, connected through a proxy."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        async with find_transport("memory").connect(far) as channel:
            yield channel

    relay = RelayServer(connect, Backfill(provider or Model()))  # type: ignore[arg-type]
    with trio.fail_after(SECONDS):
        async with Client.connect(relay, mode=host, **options) as client:
            yield client


async def say_bob(_form: ElicitRequestFormParams) -> ElicitResult:
    return accept(value="Bob")


both_eras = pytest.mark.parametrize(("host", "server"), PAIRS)


@both_eras
async def test_a_question_for_the_host_reaches_it_and_a_sample_beside_it_does_not(host: str, server: str) -> None:
    async with connected(host, behind(server), on_elicit=say_bob) as client:
        assert (await client.call_tool("both")).text == "hello Bob"


@both_eras
async def test_a_host_with_a_model_that_uses_no_tools_is_asked(host: str, server: str) -> None:
    model = Model()

    def said(_request: CreateMessageRequestParams) -> str:
        return "by the host"

    async with connected(host, behind(server), model, on_sample=said) as client:
        assert (await client.call_tool("ask")).text == "by the host"
    assert not model.asked


@both_eras
async def test_a_failure_of_the_provider_is_reported_without_its_message(host: str, server: str) -> None:
    model = Model(fails=ProviderError("sk-secret", kind=ProviderErrorKind.TIMEOUT))
    async with connected(host, behind(server), model) as client:
        try:
            outcome = (await client.call_tool("ask")).text
        except PeerError as error:
            outcome = f"{error.code}: {error}"
    assert "sk-secret" not in outcome
    assert unnamed(outcome, INTERNAL_ERROR, "sampling/createMessage") == []


async def translated(proxy: Relayed, first: Json, refusal: Json, answers: Mapping[str, Json]) -> list[Json]:
    """Let a host open a connection to a server of the other era; return what else the server was sent."""
    others: list[Json] = []
    await proxy.host.send(first)
    while len(answers) > len(others):
        got = await proxy.server.receive()
        if got["method"] in answers:
            others.append(got)
            await proxy.server.send({"jsonrpc": "2.0", "id": got["id"], "result": answers[got["method"]]})
        elif "id" in got:
            await proxy.server.send({"jsonrpc": "2.0", "id": got["id"], "error": refusal})
    return others


async def test_a_modern_host_of_a_legacy_server_can_be_asked_in_a_call_only() -> None:
    first = modern(1, "tools/list", {}, {"elicitation": {}})
    answers: dict[str, Json] = {"initialize": initialized(), "logging/setLevel": {}}
    legacy = {**initialized(), "capabilities": {"tools": {}, "logging": {}}}
    async with relayed() as proxy:
        got = await translated(proxy, first, {"code": -32601, "message": "what?"}, {**answers, "initialize": legacy})
        assert got[0]["params"]["capabilities"] == {"elicitation": {}, "sampling": {"tools": {}}}
        listing = await proxy.server.receive()
        assert (listing["method"], CLIENT_CAPABILITIES in str(listing)) == ("tools/list", False)
        await proxy.server.send({"jsonrpc": "2.0", "id": listing["id"], "result": {"tools": []}})
        assert (await proxy.host.receive())["result"]["tools"] == []
        await proxy.server.send(question("q", "elicitation/create", FORM))
        assert (await proxy.server.receive())["error"]["code"] == -32602
        await proxy.server.send(question("s"))
        assert (await proxy.server.receive())["result"] == HELLO


async def test_a_server_that_leaves_ends_a_translated_connection(autojump_clock: object) -> None:
    async with relayed() as proxy:
        await translated(
            proxy,
            modern(1, "tools/list", {}),
            {"code": -32601, "message": "what?"},
            {"initialize": {**initialized(), "capabilities": {"tools": {}}}},
        )
        assert (await proxy.server.receive())["method"] == "notifications/initialized"
        assert (await proxy.server.receive())["method"] == "tools/list"
        await proxy.server.leave()
        assert (await proxy.host.receive())["error"]["code"] == -32603
        await proxy.host.ends()
