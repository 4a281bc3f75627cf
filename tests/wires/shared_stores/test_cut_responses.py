"""What a client reads of a call that its process has given up, as it was taken for dead: a lost connection, never an answer."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import trio
from noticing_store import NoticingDisk, NoticingStore
from peer import hello, modern_meta
from serving import served
from task_process import KEYS

from trio_mcp import Server, ServiceOptions
from trio_mcp.protocol.http.headers import headers_of
from trio_mcp.protocol.revisions import NEWEST_LEGACY

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


def message(method: str, params: Any, number: int | None = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}


async def legacy_session(client: httpx2.AsyncClient, url: str) -> dict[str, str]:
    opened = await client.post(url, json=message("initialize", hello(NEWEST_LEGACY)), headers=ACCEPT)
    headers = {**ACCEPT, "MCP-Protocol-Version": NEWEST_LEGACY, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
    await client.post(url, json=message("notifications/initialized", {}, None), headers=headers)
    return headers


@pytest.mark.parametrize("kind", ["modern", "legacy", "without a session"])
async def test_a_call_that_was_given_up_ends_like_a_lost_connection(kind: str) -> None:
    shop = Shop()
    with trio.fail_after(BOUND):
        async with (
            served(shop.server, sessions=kind != "without a session") as url,
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
                    await client.post(url, json=message("tools/call", params), headers=headers)

            nursery.start_soon(call)
            await shop.begun.wait()
            shop.be_buried()
