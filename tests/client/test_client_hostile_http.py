"""A server that is broken or means harm, over HTTP: it fails its own answers and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
import trio
from listening import subscribed
from naming import naming
from scripted import initialized, said, works
from scripted_http import Exchange, calling, event, http_conversation, in_session, modern_http
from trio.testing import wait_all_tasks_blocked

from trio_mcp.client import Change
from trio_mcp.errors import Disconnected, PeerError, RemoteProtocolError, RequestRejected, RequestTimeout


async def test_an_event_id_of_any_characters_is_where_the_stream_goes_on() -> None:
    async with calling() as (wire, call, post):
        post.pieces(event(id="é-1", retry=10))
        get = await wire.next("GET")
        assert (b"last-event-id", "é-1".encode()) in get.headers.raw
        get.pieces(event({"id": post.message["id"], "result": said("booked")}))
        assert (await call.result()).text == "booked"


@pytest.mark.parametrize(
    ("session", "version", "named"),
    [
        *((odd, "2025-11-25", "session id") for odd in ("é", "a b", "x" * 10_000, "\x7f")),
        ("S1", "é\r\n", "wants to speak"),
    ],
)
async def test_a_session_id_or_version_that_no_header_can_have_is_an_error(
    session: str, version: str, named: str
) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(RemoteProtocolError, match=named), flatten_subgroups=True):
        async with http_conversation() as (_client, wire, _start):
            request = await wire.post("initialize")
            request.result(initialized(version), {"mcp-session-id": session.encode()})  # type: ignore[dict-item]


@pytest.mark.parametrize("location", ["http://a:b/", "//@..xn--80", "http://[::1", "/" + "x" * 70_000])
async def test_a_response_that_leads_to_what_is_no_url_fails_its_request_alone(location: str) -> None:
    async with modern_http() as (client, wire, start):
        call = start(client.call_tool, "book")
        (await wire.post()).answer(400, headers={"location": location})
        await call.fails(RequestRejected, naming("HTTP 400"))
        await works(client, wire, start)


async def test_a_notification_whose_acceptance_never_ends_holds_nothing_up() -> None:
    async with in_session(on_roots=list) as (client, wire, start):
        client.roots_changed()
        posted = await wire.post("notifications/roots/list_changed")
        posted.stream()

        async def drip() -> None:
            with suppress(trio.BrokenResourceError):
                while not posted.left.is_set():
                    posted.say(b"x")
                    await trio.sleep(0.7)

        dripping = start(drip)
        await works(client, wire, start)
        with trio.fail_after(30):
            await dripping.result()


async def test_a_flood_of_questions_is_answered_a_few_at_a_time() -> None:
    async with http_conversation() as (_client, wire, _start):
        get = await wire.with_stream()
        get.stream()
        for block in range(10):
            get.say(b"".join(event({"id": f"{block}-{n}", "method": "ping"}) for n in range(200)))
        await wait_all_tasks_blocked()
        assert 0 < wire.unseen <= 64


async def test_the_rest_of_a_stream_is_asked_for_in_the_session_it_began_in() -> None:
    async with in_session() as (client, wire, start):
        await subscribed(client, wire, start, "a://b")
        slow = start(client.call_tool, "slow")
        post = await wire.post()
        post.pieces(event(id="1-0", retry=1000))
        await wait_all_tasks_blocked()
        call = start(client.call_tool, "book")
        await wire.lose()
        await wire.reply("resources/subscribe", {})
        await wire.finish(call)
        get = await wire.next("GET")
        assert get.headers["mcp-session-id"] == "S1"
        get.answer(404)
        await slow.fails(Disconnected)
        await trio.sleep(10)
        wire.nothing()  # the session of today is not lost


async def test_a_server_that_knows_no_session_for_long_is_asked_for_one_less_and_less_often() -> None:
    async with in_session() as (client, wire, start):
        await subscribed(client, wire, start, "a://b")
        call = start(client.call_tool, "book")
        (await wire.post()).answer(404)
        opened: list[float] = []
        with trio.move_on_after(60):
            while len(opened) < 1000:
                await wire.without_stream(f"S{len(opened)}")
                opened.append(trio.current_time())
                (await wire.post("resources/subscribe")).answer(404)
        assert len(opened) < 15, opened
        await call.fails(Disconnected)


async def test_a_caller_that_gives_up_leaves_no_session_half_opened() -> None:
    async with in_session() as (client, wire, start):
        call = start(client.call_tool, "book", timeout=1)
        (await wire.post()).answer(404)
        opening = await wire.post("initialize")
        await call.fails(RequestTimeout)
        call = start(client.call_tool, "book")  # waits for the session that is being opened
        opening.result(initialized(), {"mcp-session-id": "S2"})
        (await wire.post("notifications/initialized")).answer(202)
        (await wire.next("GET")).answer(405)
        post = await wire.post()
        assert post.headers["mcp-session-id"] == "S2"
        post.result(said("booked"))
        assert (await call.result()).text == "booked"
        wire.nothing()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda opening: None, RequestTimeout),
        (lambda opening: opening.refuse(200, -32000, "closed for today"), PeerError),
        (lambda opening: opening.result(initialized("é\r\n"), {"mcp-session-id": "S2"}), RemoteProtocolError),
    ],
    ids=["silence", "refused", "nonsense"],
)
async def test_calls_that_lose_their_session_together_fail_together_when_none_can_be_opened(
    answer: Callable[[Exchange], None], error: type[Exception]
) -> None:
    async with in_session() as (client, wire, start):
        calls = [start(client.call_tool, str(number)) for number in range(10)]
        for _ in calls:
            (await wire.post()).answer(404)
        answer(await wire.post("initialize"))
        for call in calls:
            await call.fails(error)
        assert trio.current_time() < 40
        wire.nothing()
        call = start(client.call_tool, "book")  # tries again
        await wire.lose("S3")
        await wire.finish(call)


async def test_a_subscription_that_cannot_be_restored_does_not_take_the_others_along() -> None:
    async with in_session() as (client, wire, start):
        listener = await subscribed(client, wire, start, "a://b", "a://c")
        call = start(client.call_tool, "book")
        await wire.lose()
        (await wire.post("resources/subscribe")).answer(200, b"nonsense")
        await wire.reply("resources/subscribe", {})
        await wire.finish(call)
        assert await listener.__anext__() == Change("updated", "a://b")


async def test_a_request_waits_for_a_session_that_is_open_and_slow_to_be_restored() -> None:
    async with in_session() as (client, wire, start):
        await subscribed(client, wire, start, "a://b")
        call = start(client.call_tool, "book")
        (await wire.post()).answer(404)
        opening = await wire.post("initialize")
        await trio.sleep(20)
        opening.result(initialized(), {"mcp-session-id": "S2"})
        (await wire.post("notifications/initialized")).answer(202)
        (await wire.next("GET")).answer(405)
        subscribing = await wire.post("resources/subscribe")
        await trio.sleep(20)
        subscribing.result({})
        await wire.finish(call)


async def test_a_subscriber_has_the_session_opened_again_that_a_request_has_found_lost() -> None:
    lost: list[str] = []
    async with in_session(on_disconnect=lost.append) as (client, wire, start):
        await subscribed(client, wire, start, "a://b")
        call = start(client.call_tool, "book")
        (await wire.post()).answer(404)
        (await wire.post("initialize")).answer(502)
        await call.fails(Disconnected)
        assert len(lost) == 1
        await wire.without_stream("S2")
        await wire.reply("resources/subscribe", {})


async def test_subscriptions_that_cannot_be_restored_share_a_record(caplog: pytest.LogCaptureFixture) -> None:
    async with in_session() as (client, wire, start):
        uris = [f"a://{number}" for number in range(20)]
        await subscribed(client, wire, start, *uris)
        call = start(client.call_tool, "book")
        await wire.lose()
        for _ in uris:
            (await wire.post("resources/subscribe")).answer(200, b"nonsense")
        await wire.finish(call)
        assert len([record for record in caplog.records if "announces" in record.getMessage()]) == 1


async def test_closing_fails_the_calls_that_wait_for_a_session() -> None:
    async with in_session() as (client, wire, start):
        calls = [start(client.call_tool, str(number)) for number in range(3)]
        for _ in calls:
            (await wire.post()).answer(404)
        await wire.post("initialize")  # never answered
        start(wire.farewell)
        await client.aclose()
        for call in calls:
            await call.fails(Disconnected)


async def test_the_time_of_a_request_includes_opening_a_session_again() -> None:
    async with in_session() as (client, wire, start):
        pings = [start(client.ping, timeout=2) for _ in range(2)]
        for _ in pings:
            (await wire.post("ping")).answer(404)
        await wire.post("initialize")  # never answered
        for ping in pings:
            await ping.fails(RequestTimeout, naming("ping", "2 seconds"))
        assert trio.current_time() < 4


async def test_an_answer_on_another_stream_ends_the_response_that_should_have_brought_it() -> None:
    async with http_conversation() as (client, wire, start):
        get = await wire.with_stream()
        get.stream()
        call = start(client.call_tool, "book")
        post = await wire.post()
        post.stream()
        post.say(event(id="1-0"))
        get.say(event({"id": post.message["id"], "result": said("booked")}))
        assert (await call.result()).text == "booked"
        with trio.fail_after(5):
            await post.left.wait()


async def test_a_handshake_that_was_given_up_ends_with_the_next() -> None:
    async with in_session() as (client, wire, start):
        call = start(client.call_tool, "book")
        (await wire.post()).answer(404)
        late = await wire.post("initialize")
        await call.fails(RequestTimeout)
        call = start(client.call_tool, "book")
        await wire.lose()
        assert late.left.is_set()
        await wire.finish(call)
