"""Two processes over HTTP that share a store: which status a client reads from the one that cannot serve it."""

from __future__ import annotations

import trio
import trio.testing
from asgi_peer import AsgiPeer, legacy_call, modern_call, served
from crashing_store import CrashingStore, Disk

from trio_mcp import Context, Server, ServiceOptions
from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.protocol.revisions import IDEMPOTENCY_KEY
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.session.options import HandOver
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


# a process that another one replaces

SECONDS = 30.0


def handing_over(begun: list[str]) -> HandOver:
    return HandOver(SECONDS, lambda: True, lambda: begun.append("begun"))


async def test_a_process_that_is_replaced_hands_over_the_sessions_at_rest_and_keeps_the_others_until_their_calls_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, begun = Disk(), list[str]()
    old, new = process(disk), process(disk)
    async with served(old) as first, served(new) as second, trio.open_nursery() as nursery:
        idle, busy = await first.open_session(), await first.open_session()
        call = first.start(legacy_call("fill"), busy)
        await call.until("elicitation/create")
        nursery.start_soon(old.hand_over, handing_over(begun), ())
        await trio.sleep(1)
        assert begun == ["begun"]
        assert (await second.post(legacy_call("none", id=3), idle)).status == 200
        assert (await second.post(legacy_call("none", id=3), busy)).status == 503
        question = call.events[-1]["id"]
        answer = {"action": "accept", "content": {"value": True}}
        assert (await first.post({"jsonrpc": "2.0", "id": question, "result": answer}, busy)).status == 202
        assert "accept" in str((await call.end()).last)
        await trio.sleep(1)
        assert (await second.post(legacy_call("none", id=3), busy)).status == 200


async def test_a_hand_over_gives_calls_its_seconds_and_answers_those_that_wait_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    app, begun = process(Disk()), list[str]()
    async with served(app) as peer, trio.open_nursery() as nursery:
        waiting = (await peer.post(*modern_call("fill"))).json["result"]
        running = peer.start(*modern_call("pay"))
        statuses: list[int] = []

        async def answer() -> None:
            await trio.sleep(SECONDS / 2)
            statuses.append((await answered(peer, waiting))[0])

        nursery.start_soon(answer)
        started = trio.current_time()
        await app.hand_over(handing_over(begun), ())
        assert SECONDS <= trio.current_time() - started < SECONDS + 1
        assert statuses == [200]
        running.gone.set()
