"""Finding out the era of old servers, sessions that are lost whatever the status, and servers that are busy."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx2
import pytest
import trio
from scripted import discovered, said
from scripted_http import Exchange, calling, http_conversation, in_session

from trio_mcp import Client
from trio_mcp.client.requester import ATTEMPTS
from trio_mcp.errors import PeerError, RequestTimeout, ServerBusy, SessionLost


@pytest.mark.parametrize("status", [202, 200, 204, 400, 404, 405, 500])
async def test_a_server_without_an_answer_to_the_probe_is_a_legacy_one(status: int) -> None:
    async with http_conversation(mode="auto") as (client, wire, _start):
        (await wire.post("server/discover")).answer(status)
        await wire.without_stream()
        assert client.protocol_version.startswith("2025")


async def test_a_server_that_closes_the_connection_at_the_probe_is_a_legacy_one() -> None:
    async with http_conversation(mode="auto") as (client, wire, _start):
        probe = await wire.post("server/discover")
        probe.fail(httpx2.RemoteProtocolError("Server disconnected without sending a response."))
        await wire.without_stream()
        assert client.protocol_version.startswith("2025")


async def test_a_server_that_is_busy_at_the_probe_is_not_taken_for_a_legacy_one() -> None:
    async with http_conversation(mode="auto", wait_if_busy=5) as (client, wire, _start):
        (await wire.post("server/discover")).answer(503, headers={"retry-after": "2"})
        (await wire.post("server/discover")).result(discovered())
    assert trio.current_time() >= 2
    assert client.protocol_version == "2026-07-28"


async def test_a_server_that_restarts_while_the_session_is_opened_is_waited_for() -> None:
    async with http_conversation() as (client, wire, _start):
        post = await wire.post("initialize")
        post.stream()
        post.break_off()
        for _ in range(ATTEMPTS - 1):
            (await wire.post("initialize")).fail(httpx2.ConnectError("refused"))
        await wire.without_stream()
    assert client.protocol_version.startswith("2025")


# sessions that are lost

SAYINGS: list[tuple[int, Any]] = [
    (400, {"id": None, "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}}),
    (400, {"id": "server-error", "error": {"code": -32600, "message": "Session not found"}}),
    (400, {"error": {"code": -32000, "message": "Bad Request: Server not initialized"}}),
    (400, b"Invalid session ID"),
    (404, b""),
    (410, b"The session has expired."),
    (422, {"error": {"code": -32600, "message": "Unexpected message: unknown Mcp-Session-Id session"}}),
    (500, b"<html>Session does not exist</html>"),
    (200, {"error": {"code": -32001, "message": "Session not found"}}),
]


@pytest.mark.parametrize(("status", "body"), SAYINGS)
async def test_a_lost_session_is_opened_again_for_each_form_of_the_error(status: int, body: Any) -> None:
    async with calling() as (wire, call, post):
        post.answer(status, {"id": post.message["id"], **body} if status == 200 else body)
        await wire.without_stream("S2")
        again = await wire.post()
        assert again.headers["mcp-session-id"] == "S2"
        again.answer(status, {"id": again.message["id"], **body} if status == 200 else body)
        await call.fails(SessionLost)
        wire.nothing()


@pytest.mark.parametrize(
    ("status", "text"),
    [(400, "Unknown tool"), (401, "Session expired"), (403, "Invalid session"), (400, "The value is invalid")],
)
async def test_another_rejection_is_no_lost_session(status: int, text: str) -> None:
    async with calling() as (wire, call, post):
        post.answer(status, text.encode())
        await call.fails(Exception, f"{status}")
        wire.nothing()


async def test_an_error_of_a_tool_about_sessions_is_no_lost_session() -> None:
    async with calling() as (wire, call, post):
        post.refuse(200, -32603, "Session not found")
        await call.fails(PeerError)
        wire.nothing()


def busy(post: Exchange, status: int = 429, after: str | None = None) -> None:
    post.answer(status, b"slow down", {} if after is None else {"retry-after": after})


AFTER = [("2", 2.0), ("0.5", 0.5), ("soon", None), ("Fri, 01 Jan 1999 00:00:00 GMT", 0.0)]


@pytest.mark.parametrize(
    ("status", "after", "expected"), [(429, None, None), *((status, *each) for status in (429, 503) for each in AFTER)]
)
async def test_a_busy_server_is_an_error_with_a_status_and_a_wait(
    status: int, after: str | None, expected: float | None
) -> None:
    async with in_session() as (client, wire, start):
        call = start(client.call_tool, "book")
        busy(await wire.post(), status, after)
        caught = await call.fails(ServerBusy)
        assert (caught.status, caught.retry_after) == (status, expected)
        wire.nothing()


async def test_a_busy_server_keeps_the_code_and_the_data_of_its_error() -> None:
    async with calling() as (_wire, call, post):
        post.answer(503, {"error": {"code": -32050, "message": "full", "data": {"a": 1}}})
        caught = await call.fails(ServerBusy)
        assert (caught.code, caught.message, caught.data) == (-32050, "full", {"a": 1})


async def test_a_busy_server_is_waited_for_as_it_asks_and_then_with_growing_delays() -> None:
    async with in_session(wait_if_busy=10) as (client, wire, start):
        began = trio.current_time()
        call = start(client.call_tool, "book")
        for after in ("3", "2", None):
            busy(await wire.post(), after=after)
        (await wire.post()).result(said("booked"))
        assert (await call.result()).text == "booked"
        assert 5 < trio.current_time() - began < 10


@pytest.mark.parametrize("after", ["11", "6"])
async def test_a_request_waits_no_longer_in_all_than_it_may(after: str) -> None:
    async with in_session(wait_if_busy=10) as (client, wire, start):
        began = trio.current_time()
        call = start(client.call_tool, "book")
        if after == "6":
            busy(await wire.post(), after="6")
        busy(await wire.post(), after=after)
        await call.fails(ServerBusy)
        assert trio.current_time() - began == (6 if after == "6" else 0)


async def test_the_attempts_count_in_the_wait() -> None:
    async with in_session(wait_if_busy=8) as (client, wire, start):
        began = trio.current_time()
        call = start(client.call_tool, "book")
        for _ in range(3):
            post = await wire.post()
            await trio.sleep(2.5)
            busy(post, 503, after="1")
        await call.fails(ServerBusy)
        assert trio.current_time() - began == 9.5


async def test_the_timeout_of_a_call_ends_its_wait() -> None:
    async with in_session(wait_if_busy=60) as (client, wire, start):
        began = trio.current_time()
        call = start(partial(client.call_tool, "book", timeout=5))
        busy(await wire.post(), after="30")
        await call.fails(RequestTimeout)
        assert trio.current_time() - began == 5


@pytest.mark.parametrize("value", [-1, float("nan"), "5"])
def test_a_wait_is_a_number_of_seconds(value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="wait_if_busy"):
        Client.connect("http://a.example/mcp", wait_if_busy=value)
