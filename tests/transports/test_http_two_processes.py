"""Two processes over HTTP that share a store: which status a client reads from the one that cannot serve it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import trio
import trio.testing
from asgi_peer import AsgiPeer, legacy_call, modern_call, served
from crashing_store import CrashingStore, Disk
from noticing_store import NoticingDisk, NoticingStore
from wire_terms import IDEMPOTENCY_KEY, SERVER_BUSY

from trio_mcp import Context, HttpOptions, Server, ServiceOptions
from trio_mcp.session import KeyRing
from trio_mcp.session.options import HandOver
from trio_mcp_transports.http import McpApp, asgi_app

KEYS = KeyRing.random()


def process(disk: Disk, **http: Any) -> McpApp:
    store = NoticingStore(disk) if isinstance(disk, NoticingDisk) else CrashingStore(disk)
    server = Server("form", version="1", options=ServiceOptions(keys=KEYS, store=store), http=HttpOptions(**http))

    numbers = count()

    @server.tool
    async def fill(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    @server.tool
    async def pay() -> str:
        await trio.sleep_forever()
        return ""

    @server.tool
    async def more() -> str:
        server.add_tool(pay, name=f"pay_{next(numbers)}")
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


async def test_a_repeat_of_a_call_that_runs_elsewhere_is_a_503_after_a_while() -> None:
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


async def test_a_process_that_is_replaced_hands_over_the_sessions_at_rest_and_keeps_the_others_until_their_calls_end() -> (
    None
):
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


async def test_a_hand_over_gives_calls_its_seconds_and_answers_those_that_wait_meanwhile() -> None:
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


# a session whose requests come to another process than the one that has it, which lives

LIST = legacy_call("none", id=3)


async def test_a_session_at_rest_is_released_to_the_process_that_its_requests_come_to() -> None:
    disk = NoticingDisk()
    async with served(process(disk)) as first, served(process(disk)) as second:
        session = await first.open_session()
        for peer in (second, first, second):
            assert (await peer.post(LIST, session)).status == 200


async def test_a_session_without_notices_in_its_store_is_not_found_after_a_while() -> None:
    disk = Disk()
    async with served(process(disk)) as first, served(process(disk)) as second:
        session = await first.open_session()
        await check_given_up(second, session)


async def test_requests_for_a_session_in_use_elsewhere_are_503_for_ten_seconds_and_then_404() -> None:
    disk = NoticingDisk()
    async with served(process(disk)) as first, served(process(disk)) as second:
        session = await first.open_session()
        call = first.start(legacy_call("fill"), session)
        await call.until("elicitation/create")
        await check_given_up(second, session)
        # The call goes on, and afterwards the session is released.
        answer = {"action": "accept", "content": {"value": True}}
        reply = {"jsonrpc": "2.0", "id": call.events[-1]["id"], "result": answer}
        assert (await first.post(reply, session)).status == 202
        assert "accept" in str((await call.end()).last)
        assert (await second.post(LIST, session)).status == 200


async def check_given_up(peer: AsgiPeer, session: str) -> None:
    """Send requests for a session until they are 404: that is soon after ten seconds, and again after the next ten."""
    for _ in range(2):
        started = trio.current_time()
        with trio.fail_after(20):
            while (reply := await peer.post(LIST, session)).status == 503:
                assert reply.headers["retry-after"] == "1"
                await trio.sleep(1)
        assert reply.status == 404
        assert 10 <= trio.current_time() - started < 15


async def test_a_stream_of_a_session_that_is_released_ends_and_goes_on_where_its_requests_come_to() -> None:
    disk = NoticingDisk()
    async with served(process(disk)) as first, served(process(disk)) as second:
        session = await first.open_session()
        stream = first.start(b"", session, method="GET")
        assert (await first.post(legacy_call("more"), session)).status == 200
        await stream.until("list_changed")
        assert (await second.post(LIST, session)).status == 200
        await stream.end()
        again = second.start(b"", {**session, "last-event-id": stream.ids[-1]}, method="GET")
        assert (await second.post(legacy_call("more"), session)).status == 200
        await again.until("list_changed")
        again.gone.set()


async def test_a_stranger_does_not_let_a_session_be_released() -> None:
    async def who(headers: Mapping[str, str]) -> str:
        return headers["who"]

    disk = NoticingDisk()
    async with served(process(disk, authenticate=who)) as first, served(process(disk, authenticate=who)) as second:
        session = await first.open_session(who={"who": "ann"})
        known = len(disk.announced)
        assert (await second.post(LIST, {**session, "who": "eve"})).status == 404
        assert len(disk.announced) == known


async def test_a_session_whose_release_the_store_does_not_keep_is_released_later() -> None:
    disk = NoticingDisk()
    holder = process(disk)
    async with served(holder) as first, served(process(disk)) as second:
        session = await first.open_session()
        store_of(holder).failing = True
        assert (await second.post(LIST, session)).status == 503
        store_of(holder).failing = False
        await trio.sleep(5)
        assert (await second.post(LIST, session)).status == 200


def store_of(app: McpApp) -> NoticingStore:
    store = app.server.options.store
    assert isinstance(store, NoticingStore)
    return store
