"""Several servers at one address, over real sockets: each wire leads to the server at its path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import trio
from serving import START

from trio_mcp import Client, Context, HttpOptions, Server
from trio_mcp_transports.http import serve_http


async def by_name(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-user")


def named(name: str, **http: object) -> Server:
    server = Server(name, http=HttpOptions(sse_path="/sse", **http))  # type: ignore[arg-type]

    @server.tool
    async def whoami(ctx: Context) -> str:
        await ctx.log("info", f"hello from {name}")
        return f"{name} {ctx.request.principal}"

    @server.resource("note://{number}")
    async def note(number: str) -> str:
        return number

    return server


@asynccontextmanager
async def served(servers: Mapping[str, Server]) -> AsyncIterator[list[str]]:
    async with trio.open_nursery() as nursery:
        with trio.fail_after(START):
            urls: list[str] = await nursery.start(partial(serve_http, servers, port=0, announce=False, signals=False))
        yield urls
        nursery.cancel_scope.cancel()


async def test_every_wire_leads_to_the_server_at_its_path() -> None:
    notes, shop = named("notes"), named("shop", authenticate=by_name)
    async with served({"/notes": notes, "/shop": shop}) as urls:
        base = urls[0].removesuffix("/notes/mcp")
        assert [url.removeprefix(base) for url in urls] == ["/notes/mcp", "/shop/mcp", "/notes/sse", "/shop/sse"]
        with trio.fail_after(START):
            for path, name in (("/notes", "notes None"), ("/shop", "shop ann")):
                for url in (f"{base}{path}/mcp", f"ws{base[4:]}{path}/mcp", f"{base}{path}/sse"):
                    for mode in ("legacy", "modern"):
                        if mode == "modern" and url.endswith("sse"):
                            continue
                        async with Client.connect(url, mode=mode, headers={"x-user": "ann"}) as client:
                            assert (await client.call_tool("whoami")).text == name
            async with httpx2.AsyncClient() as http:
                assert "/notes/mcp" in (await http.get(f"{base}/nothing")).text
                assert (await http.get(f"{base}/ready")).text == "ready"
