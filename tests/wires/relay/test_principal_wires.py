"""Principals of an authenticated proxy over each wire of a network: what is of one of them is unknown to the others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from serving import served

from trio_mcp import Client, Context, PeerError, Server, accept, proxy
from trio_mcp.protocol.meta import IDEMPOTENCY_KEY
from trio_mcp.types import ResourceLink, TextResourceContents

BOUND = 30.0

wires = pytest.mark.parametrize(
    ("transport", "mode"),
    [("http", "legacy"), ("http", "modern"), ("websocket", "legacy"), ("websocket", "modern"), ("sse", "legacy")],
)
fronts = pytest.mark.parametrize("behind", ["http", "websocket", "proxy"])


async def authenticate(headers: Mapping[str, str]) -> str | None:
    return headers.get("authorization")


def shop() -> Server:
    server = Server("shop")
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

    return server


@asynccontextmanager
async def hosts(transport: str, mode: str, behind: str) -> AsyncIterator[tuple[Client, Client]]:
    """Clients of two principals, of one proxy of a server at a URL."""
    with trio.fail_after(BOUND):
        async with served(shop(), "websocket" if behind == "websocket" else "http") as url:
            async with served(proxy(url), authenticate=authenticate) as inner:
                target = proxy(inner, headers={"authorization": "the outer proxy"}) if behind == "proxy" else proxy(url)
                async with served(target, transport, authenticate=authenticate) as outer:
                    alice, bob = (
                        Client.connect(
                            outer,
                            mode=mode,
                            headers={"authorization": name},
                            on_elicit=lambda _question, name=name: accept(value=name),
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
