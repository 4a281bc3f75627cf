"""A client over HTTP in the legacy era: streams that end early, the stream for what belongs to no request, lost sessions."""

from __future__ import annotations

import itertools
import logging

import pytest
import trio
from naming import naming
from scripted import Json, said, works
from scripted_http import Exchange, HttpWire, calling, event, http_conversation, in_session, modern_http
from trio.testing import wait_all_tasks_blocked

from trio_mcp.errors import Disconnected, SessionLost
from trio_mcp_transports.http.client.channel import ANSWER_ATTEMPTS


def answer_to(exchange: Exchange) -> Json:
    return {"id": exchange.message["id"], "result": said("done")}


def report_to(exchange: Exchange, progress: int) -> Json:
    token = exchange.message["params"]["_meta"]["progressToken"]
    return {"method": "notifications/progress", "params": {"progressToken": token, "progress": progress}}


def log(data: int) -> Json:
    return {"method": "notifications/message", "params": {"level": "info", "data": data}}


@pytest.mark.parametrize("answers", [True, False], ids=["answered", "silent"])
async def test_the_first_request_of_a_session_waits_for_that_stream_but_not_long(answers: bool) -> None:
    """Servers put questions there; those of one whose client calls too early are lost."""
    async with http_conversation() as (client, wire, start):
        standing = await wire.with_stream()
        call = start(client.call_tool, "quick")
        await wait_all_tasks_blocked()
        wire.nothing()
        if answers:
            standing.stream()
        assert (await wire.reply("tools/call", said("done"))).at == pytest.approx(0 if answers else 1)
        assert (await call.result()).text == "done"


async def test_a_stream_that_ends_early_is_asked_for_by_get_after_the_time_the_server_said() -> None:
    async with calling() as (wire, call, post):
        post.pieces(event(id="1-0", retry=500))
        await post.left.wait()
        ended = trio.current_time()
        get = await wire.next("GET")
        assert get.at - ended == pytest.approx(0.5)
        assert get.headers["last-event-id"] == "1-0"
        assert get.headers["mcp-session-id"] == "S1"
        assert get.headers["mcp-protocol-version"] == "2025-11-25"
        assert get.headers["accept"] == "text/event-stream"
        get.pieces(event(answer_to(post), id="1-1"))
        assert (await call.result()).text == "done"


async def test_a_connection_that_breaks_is_no_different_and_progress_goes_on() -> None:
    seen: list[float] = []
    async with calling(on_progress=lambda report: seen.append(report.progress)) as (wire, call, post):
        post.stream()
        for number in range(3):
            post.say(event(report_to(post, number), id=f"1-{number}"))
        post.break_off()
        get = await wire.next("GET")
        assert get.headers["last-event-id"] == "1-2"
        assert get.at == pytest.approx(1)  # which is the default
        get.pieces(event(report_to(post, 3), id="1-3"), event(answer_to(post), id="1-4"))
        assert (await call.result()).text == "done"
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("ids", [[f"1-{number}" for number in range(50)], ["1-0", None]], ids=["new ids", "no new id"])
async def test_a_server_may_be_polled_from_the_last_id_as_long_as_it_brings_something(ids: list[str | None]) -> None:
    async with calling() as (wire, call, post):
        exchange, last = post, ""
        for id in ids:
            exchange.pieces(event(id=id, retry=100))
            exchange, last = await wire.next("GET"), last if id is None else id
            assert exchange.headers["last-event-id"] == last
        exchange.pieces(event(answer_to(post)))
        assert (await call.result()).text == "done"


@pytest.mark.parametrize("id", [None, ""], ids=["no id", "an empty id"])
async def test_a_stream_without_event_ids_cannot_be_gone_on_with(id: str | None) -> None:
    async with calling() as (wire, call, post):
        post.pieces(event(id=id, retry=10))
        await call.fails(Disconnected, naming("answer"))
        wire.nothing()


@pytest.mark.parametrize("status", [400, 401, 405, 410])
async def test_a_server_that_keeps_no_streams_is_asked_once(status: int) -> None:
    async with calling() as (wire, call, post):
        post.pieces(event(id="1-0"))
        (await wire.next("GET")).answer(status)
        await call.fails(Disconnected, str(status))
        await wait_all_tasks_blocked()
        wire.nothing()


async def test_a_server_that_is_away_is_asked_with_growing_pauses_and_a_limit() -> None:
    async with calling() as (wire, call, post):
        post.pieces(event(id="1-0", retry=100))
        times = []
        for _ in range(20):
            get = await wire.next("GET")
            times.append(get.at)
            get.answer(503)
        await call.fails(Disconnected, r"503, 20 times")
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) >= 0.1
    assert max(gaps) <= 30
    assert gaps[-1] > 14


async def test_a_modern_stream_is_never_gone_on_with() -> None:
    async with modern_http() as (client, wire, start):
        call = start(client.call_tool, "slow")
        (await wire.post()).pieces(event(id="1-0", retry=10))
        await call.fails(Disconnected, naming("answer"))
        await trio.sleep(10)
        wire.nothing()


async def test_a_cancel_while_the_stream_is_away_tells_the_server_and_asks_no_more() -> None:
    async with calling(timeout=3) as (wire, call, post):
        post.pieces(event(id="1-0", retry=5000))
        posted = await wire.post("notifications/cancelled")
        assert posted.at == pytest.approx(3)
        posted.answer(202)
        await trio.sleep(60)
        wire.nothing()
        assert call.over


@pytest.mark.parametrize("statuses", [(502, 504), (503, 503)], ids=str)
async def test_an_answer_that_a_proxy_lost_or_a_busy_server_refused_is_sent_again(statuses: tuple[int, int]) -> None:
    async with calling() as (wire, call, post):
        post.stream()
        post.say(event({"id": "q", "method": "ping"}))
        for status in statuses:
            (await wire.next("POST")).answer(status, b"<html>")
        (posted := await wire.next("POST")).answer(202)
        assert posted.message == {"jsonrpc": "2.0", "id": "q", "result": {}}
        post.say(event(answer_to(post)))
        assert (await call.result()).text == "done"


async def test_an_answer_that_is_rejected_again_and_again_fails_its_call() -> None:
    async with calling() as (wire, call, post):
        post.stream()
        post.say(event({"id": "q", "method": "ping"}))
        for _ in range(ANSWER_ATTEMPTS):
            (await wire.next("POST")).answer(502, b"<html>")
        await call.fails(Disconnected, "502")


async def test_what_belongs_to_no_request_comes_on_a_separate_stream_that_is_kept_open() -> None:
    seen: list[object] = []
    async with http_conversation(on_log=lambda message: seen.append(message.data)) as (_client, wire, _start):
        get = await wire.with_stream()
        assert get.headers["accept"] == "text/event-stream"
        assert get.headers["mcp-session-id"] == "S1"
        assert "last-event-id" not in get.headers
        get.stream()
        get.say(event(log(1), id="0-1", retry=3000))
        get.end()
        await get.left.wait()
        ended = trio.current_time()
        get = await wire.next("GET")
        assert (get.headers["last-event-id"], get.at - ended) == ("0-1", pytest.approx(3))
        get.stream()
        get.say(event(log(2), id="0-2"))
        get.break_off()
        get = await wire.next("GET")
        assert get.headers["last-event-id"] == "0-2"
        get.stream()
        await wait_all_tasks_blocked()
    assert seen == [1, 2]


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_without_such_a_stream_is_left_alone(status: int) -> None:
    async with http_conversation() as (client, wire, start):
        (await wire.with_stream()).answer(status)
        await trio.sleep(100)
        wire.nothing()
        await works(client, wire, start)


async def test_without_a_session_there_is_no_such_stream() -> None:
    async with http_conversation() as (_client, wire, _start):
        await wire.handshake(session=None)
        await trio.sleep(10)
        wire.nothing()


async def test_the_stream_ends_with_the_client_and_the_session_is_deleted() -> None:
    async with http_conversation() as (client, wire, start):
        get = await wire.with_stream()
        get.stream()
        await wait_all_tasks_blocked()
        closing = start(client.aclose)
        delete = await wire.next("DELETE")
        assert delete.headers["mcp-session-id"] == "S1"
        await get.left.wait()
        delete.answer(200)
        await closing.result()


async def test_a_lost_session_is_opened_again_and_the_request_sent_once_more_under_a_new_id() -> None:
    async with http_conversation(on_log=lambda _message: None) as (client, wire, start):
        await opened(wire, "S1")
        call = start(client.call_tool, "book")
        first = await wire.post()
        first.answer(404, {"error": {"code": -32001, "message": "Session not found"}})
        await opened(wire, "S2")
        second = await wire.post()
        assert second.headers["mcp-session-id"] == "S2"
        assert second.message["id"] != first.message["id"]
        assert second.message["params"] == first.message["params"]
        second.result(said("booked"))
        assert (await call.result()).text == "booked"


async def test_sessions_that_are_lost_again_and_again_share_a_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "trio_mcp")
    async with http_conversation(on_log=lambda _message: None) as (client, wire, start):
        await opened(wire, "S0")
        for number in range(1, 21):
            call = start(client.call_tool, "book")
            (await wire.post()).answer(404)
            await opened(wire, f"S{number}")
            await wire.finish(call)
        assert len([record for record in caplog.records if record.name == "trio_mcp.client"]) == 1


async def opened(wire: HttpWire, session: str) -> None:
    """A session of a client that wants logs."""
    await wire.without_stream(session, {"tools": {}, "logging": {}})
    assert (await wire.reply("logging/setLevel", {})).headers["mcp-session-id"] == session


async def test_calls_that_lose_their_session_together_open_one_again() -> None:
    async with in_session() as (client, wire, start):
        calls = [start(client.call_tool, str(number)) for number in range(5)]
        posts = [await wire.post() for _ in calls]
        for post in posts[:4]:
            post.answer(404)
        await wire.without_stream("S2")
        posts[4].answer(404)  # late: the session is open again already
        for _ in calls:
            post = await wire.post()
            assert post.headers["mcp-session-id"] == "S2"
            post.result(said(post.message["params"]["name"]))
        assert {(await call.result()).text for call in calls} == {"0", "1", "2", "3", "4"}
        wire.nothing()


async def test_a_404_about_the_method_is_no_lost_session() -> None:
    async with in_session() as (client, wire, start):
        call = start(client.list_prompts)
        (await wire.post("prompts/list")).refuse(404, -32601, "Method not found")
        await call.fails(Exception, "Method not found")
        wire.nothing()


async def test_a_request_that_was_running_when_the_session_was_lost_is_not_sent_again() -> None:
    """It may have been carried out; only what was refused is safe to repeat."""
    async with calling() as (wire, call, post):
        post.pieces(event(id="1-0", retry=10))
        (await wire.next("GET")).answer(404)
        raised = await call.fails(Disconnected)
        assert not isinstance(raised, SessionLost)
        await trio.sleep(10)
        wire.nothing()
