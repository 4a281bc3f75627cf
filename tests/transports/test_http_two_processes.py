"""Two processes over HTTP that share a store: which status a client reads from the one that cannot serve it."""

from __future__ import annotations

import trio
import trio.testing
from asgi_peer import AsgiPeer, modern_call, served
from crashing_store import CrashingStore, Disk

from trio_mcp import Context, Server, ServiceOptions
from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.protocol.revisions import IDEMPOTENCY_KEY
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp_transports.http import McpApp, asgi_app

KEYS = KeyRing.random()


def process(disk: Disk) -> McpApp:
    server = Server("form", version="1", options=ServiceOptions(keys=KEYS, store=CrashingStore(disk)))

    @server.tool
    async def fill(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    @server.tool
    async def pay() -> str:
        await trio.sleep_forever()
        return ""

    return asgi_app(server)


async def answered(peer: AsgiPeer, asked: dict[str, object]) -> tuple[int, str | None, object]:
    """Send the answer to a round; return the status, `Retry-After` and the message."""
    keys = asked["inputRequests"]
    assert isinstance(keys, dict)
    answers = {key: {"action": "accept", "content": {"value": True}} for key in keys}
    reply = await peer.post(*modern_call("fill", requestState=asked["requestState"], inputResponses=answers))
    return reply.status, reply.headers.get("retry-after"), reply.json


async def test_an_answer_that_cannot_be_taken_here_is_a_503_that_says_when_to_try_again() -> None:
    disk = Disk()
    async with served(process(disk)) as first, served(process(disk)) as second:
        asked = (await first.post(*modern_call("fill"))).json["result"]
        status, retry_after, message = await answered(second, asked)
        assert (status, retry_after) == (503, "1")
        assert isinstance(message, dict)
        assert message["error"]["code"] == SERVER_BUSY
        assert (await answered(first, asked))[0] == 200


async def test_a_repeat_of_a_call_that_runs_elsewhere_is_a_503_after_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = Disk()
    async with served(process(disk)) as first, served(process(disk)) as second:
        meta = {IDEMPOTENCY_KEY: "k"}
        running = first.start(*modern_call("pay", meta=meta))
        await trio.sleep(1)
        repeat = await second.start(*modern_call("pay", meta=meta)).end(seconds=30)
        assert (repeat.status, repeat.headers["retry-after"]) == (503, "1")
        running.gone.set()
