"""Principals of an authenticated proxy over each wire of a network: what is of one of them is unknown to the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from serving import served
from wire_terms import IDEMPOTENCY_KEY, MODERN

from trio_mcp import Client, Context, PeerError, Server, accept, proxy
from trio_mcp.client import Change
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.relay import Proxy
from trio_mcp.session import MessageFacts
from trio_mcp.types import ResourceLink, TextResourceContents

BOUND = 30.0

wires = pytest.mark.parametrize(
    ("transport", "mode"),
    [("http", "legacy"), ("http", "modern"), ("websocket", "legacy"), ("websocket", "modern"), ("sse", "legacy")],
)
FRONTS = ("http", "websocket", "proxy")
fronts = pytest.mark.parametrize("behind", FRONTS)
all_fronts = pytest.mark.parametrize("behind", [*FRONTS, "other era", "mount", "mount of other era"])
"""With a server that speaks only the era that the hosts do not, and with a proxy that is mounted, whose hosts share more."""


async def authenticate(headers: Mapping[str, str]) -> str | None:
    return headers.get("authorization")


class Meeting:
    """Holds up those of two who come first."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._is_full = trio.Event()

    async def all_are_there(self, name: str) -> None:
        self._names.add(name)
        if len(self._names) == 2:
            self._is_full.set()
        await self._is_full.wait()


def shop(missing: str = "") -> Server:
    """The server; of requests of the era that it misses it knows the first as little as others do."""
    server = Server("shop")

    @server.message_middleware
    def reject(message: MessageFacts) -> None:
        if missing == "legacy" and message.method == "initialize":
            raise RemoteProtocolError("too old", code=-32022, data={"supported": [MODERN], "requested": "x"})
        if missing == "modern" and message.method == "server/discover":
            raise RemoteProtocolError("what?", code=-32601)

    receipts: list[int] = []

    @server.tool
    async def pay(order: int) -> str:
        receipts.append(order)
        return f"receipt {len(receipts)}"

    @server.tool(max_result=2048)
    async def big() -> str:
        return "private " * 1000

    @server.tool(task=True)
    async def job(ctx: Context) -> str:
        return str((await ctx.elicit("who?", str)).content)

    thinking = Meeting()

    @server.tool
    async def think(name: str, ctx: Context) -> str:
        await thinking.all_are_there(name)
        return (await ctx.sample("who?")).text

    @server.tool
    async def change(uris: list[str]) -> None:
        for uri in uris:
            server.resource_updated(uri)

    server.add_resource("note://{name}", lambda name: name)
    return server


@asynccontextmanager
async def hosts(
    transport: str, mode: str, behind: str, heard: list[tuple[str, str | None]] | None = None
) -> AsyncIterator[tuple[Client, Client]]:
    """Clients of two principals, of one proxy of a server at a URL. Each answers what it is asked with its name.

    Args:
        heard: receives the name of each client that is notified of a change, and the resource.
    """
    asked = Meeting()

    def note(name: str, change: Change) -> None:
        if heard is not None:
            heard.append((name, change.uri))

    async def answer(name: str) -> str:
        await asked.all_are_there(name)
        return name

    with trio.fail_after(BOUND):
        server = shop(missing=mode if behind.endswith("other era") else "")
        async with served(server, "websocket" if behind == "websocket" else "http") as url:
            async with served(proxy(url), authenticate=authenticate) as inner:
                target: Server | Proxy = proxy(url)
                if behind == "proxy":
                    target = proxy(inner, headers={"authorization": "the outer proxy"})
                elif behind.startswith("mount"):
                    target = Server("hub")
                    target.mount("far", proxy(url))
                async with served(target, transport, authenticate=authenticate) as outer:
                    alice, bob = (
                        Client.connect(
                            outer,
                            mode=mode,
                            headers={"authorization": name},
                            on_elicit=lambda _question, name=name: accept(value=name),
                            on_sample=lambda _question, name=name: answer(name),
                            on_change=partial(note, name),
                        )
                        for name in ("alice", "bob")
                    )
                    async with alice, bob:
                        yield alice, bob


@wires
@fronts
async def test_keys_and_links_are_those_of_their_principal(transport: str, mode: str, behind: str) -> None:
    async with hosts(transport, mode, behind) as (alice, bob):
        key = {IDEMPOTENCY_KEY: "order 7"}
        first = (await alice.call_tool("pay", {"order": 7}, meta=key)).text
        assert (await bob.call_tool("pay", {"order": 7}, meta=key)).text != first
        assert (await alice.call_tool("pay", {"order": 7}, meta=key)).text == first
        link = (await alice.call_tool("big")).content[-1]
        assert isinstance(link, ResourceLink)
        with pytest.raises(PeerError, match="not found"):
            await bob.read_resource(link.uri)
        (contents,) = (await alice.read_resource(link.uri)).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "private " * 1000


@wires
@fronts
async def test_a_task_asks_the_user_of_its_principal(transport: str, mode: str, behind: str) -> None:
    async with hosts(transport, mode, behind) as principals, trio.open_nursery() as nursery:
        found: dict[str, str] = {}

        async def run(name: str, client: Client) -> None:
            found[name] = (await client.call_tool("job")).text

        for name, client in zip(("alice", "bob"), principals, strict=True):
            nursery.start_soon(run, name, client)
    assert found == {"alice": "alice", "bob": "bob"}


@wires
@all_fronts
async def test_a_sample_is_answered_by_the_host_of_its_principal(transport: str, mode: str, behind: str) -> None:
    prefix = "far_" if behind.startswith("mount") else ""
    async with hosts(transport, mode, behind) as principals, trio.open_nursery() as nursery:
        found: dict[str, str] = {}

        async def run(name: str, client: Client) -> None:
            found[name] = (await client.call_tool(f"{prefix}think", {"name": name})).text

        for name, client in zip(("alice", "bob"), principals, strict=True):
            nursery.start_soon(run, name, client)
    assert found == {"alice": "alice", "bob": "bob"}


@wires
@all_fronts
async def test_a_subscription_is_that_of_its_principal(transport: str, mode: str, behind: str) -> None:
    heard: list[tuple[str, str | None]] = []
    tool, notes = ("far_change", "note://far/") if behind.startswith("mount") else ("change", "note://")
    async with hosts(transport, mode, behind, heard) as (alice, bob):
        async with bob.listen(uris=[f"{notes}bob", f"{notes}all"]) as of_bob:
            async with alice.listen(uris=[f"{notes}alice", f"{notes}all"]) as of_alice:
                # Those of one stream come in their order.
                await alice.call_tool(tool, {"uris": ["note://bob", "note://alice"]})
                assert (await anext(of_alice)).uri == f"{notes}alice"
                assert (await anext(of_bob)).uri == f"{notes}bob"
            await bob.call_tool(tool, {"uris": ["note://all"]})
            assert (await anext(of_bob)).uri == f"{notes}all"
    # A change may be announced twice: a proxy has several connections.
    assert {*heard} == {("alice", f"{notes}alice"), ("bob", f"{notes}all"), ("bob", f"{notes}bob")}
