"""Listeners learn that no more changes will come, and why, however their stream or their connection ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from listening import next_of, subscribed, waiting
from naming import naming
from scripted import Json, Start, as_legacy, as_modern, conversation, works
from scripted_http import EVENTS, Exchange, HttpWire, event, http_conversation, modern_http
from trio.testing import wait_all_tasks_blocked
from wire_terms import SERVER_BUSY, SUBSCRIPTION_ID

from trio_mcp.client import Change, Changes, Client
from trio_mcp.errors import Disconnected, McpError, PeerError, RequestRejected

CHANGED = event({"method": "notifications/prompts/list_changed"})


def answer(exchange: Exchange, status: int, kind: str = "text/html") -> None:
    exchange.answer(status, b"<html>", {"content-type": kind})


@asynccontextmanager
async def listening(**lists: bool) -> AsyncIterator[tuple[Client, HttpWire, Start, Exchange, Changes]]:
    """A legacy session with its standing stream, and a subscriber to a resource and to these lists."""
    async with http_conversation() as (client, wire, start):
        get = await wire.with_stream()
        get.stream()
        yield client, wire, start, get, await subscribed(client, wire, start, "a://b", **lists)


@pytest.mark.parametrize(
    ("status", "names"),
    [(400, ["HTTP 400"]), (401, ["HTTP 401"]), (403, ["HTTP 403"]), (405, ["HTTP 405"]), (200, ["stream of events"])],
)
async def test_a_standing_stream_that_ends_for_good_is_named_where_the_changes_are_read(
    status: int, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(prompts=True) as (client, wire, start, get, listener):
        get.say(CHANGED)
        get.end()
        answer(await wire.next("GET"), status)
        await wait_all_tasks_blocked()
        assert await next_of(listener) == Change("prompts")  # which came before the end
        for _ in range(2):
            with pytest.raises(Disconnected, match=naming(*names)):
                await next_of(listener)
        with pytest.raises(Disconnected, match=naming(*names)):
            await client.listen(prompts=True).__aenter__()
        with pytest.raises(Disconnected, match=naming(*names)):
            await client.subscribe("a://c")
        assert [record.levelname for record in caplog.records if "belong to no request" in record.message] == [
            "WARNING"
        ]
        await works(client, wire, start)


async def test_a_standing_stream_that_cannot_be_read_is_named_where_the_changes_are_read() -> None:
    async with listening() as (_client, _wire, _start, get, listener):
        get.say(b"data: " + b"x" * 1_000_001)
        with pytest.raises(Disconnected, match=naming("1000000 bytes")):
            await next_of(listener)


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_that_never_had_a_standing_stream_may_be_listened_to(status: int) -> None:
    """It may report changes on the responses to requests."""
    async with http_conversation() as (client, wire, start):
        answer(await wire.with_stream(), status)
        listener = await subscribed(client, wire, start, "a://b")
        assert await waiting(listener) == []


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_standing_stream_is_asked_for_again_while_the_server_is_away(status: int) -> None:
    async with listening(prompts=True) as (_client, wire, _start, get, listener):
        get.end()
        for _ in range(10):
            answer(await wire.next("GET"), status)
        (again := await wire.next("GET")).stream()
        again.say(CHANGED)
        assert await next_of(listener) == Change("prompts")


async def test_another_session_has_another_standing_stream() -> None:
    async with listening(prompts=True) as (client, wire, start, get, ended):
        get.end()
        answer(await wire.next("GET"), 405)
        with pytest.raises(Disconnected):
            await next_of(ended)
        start(client.list_tools)
        (await wire.post("tools/list")).answer(404)
        again = await wire.with_stream("S2")
        again.stream()
        await wire.reply("resources/subscribe", {})
        listener = await subscribed(client, wire, start, prompts=True)
        again.say(CHANGED)
        assert await next_of(listener) == Change("prompts")
        with pytest.raises(Disconnected):
            await next_of(ended)


@pytest.mark.parametrize("status", [401, 404, 405])
async def test_another_session_whose_standing_stream_is_rejected_is_named_where_changes_are_read(status: int) -> None:
    async with listening() as (client, wire, _start, get, listener):
        get.end()
        (await wire.next("GET")).answer(404)
        answer(await wire.with_stream("S2"), status)
        await wire.reply("resources/subscribe", {})
        for _ in range(2):
            with pytest.raises(Disconnected, match=naming(f"HTTP {status}")):
                await next_of(listener)
        with pytest.raises(Disconnected, match=naming(f"HTTP {status}")):
            await client.listen(prompts=True).__aenter__()
        wire.nothing()


@pytest.mark.parametrize(
    ("body", "names"),
    [(b"<html>", ["HTTP 401"]), ({"id": 2, "error": {"code": -32600, "message": "who are you"}}, ["who are you"])],
    ids=["no JSON", "an error"],
)
async def test_a_session_that_is_not_opened_again_is_named_where_changes_are_read(body: Any, names: list[str]) -> None:
    async with listening() as (_client, wire, _start, get, listener):
        get.end()
        (await wire.next("GET")).answer(404)
        (await wire.post("initialize")).answer(401, body)
        with pytest.raises(Disconnected, match=naming(*names)):
            await next_of(listener)
        await trio.sleep(1000)
        wire.nothing()


@pytest.mark.parametrize("refusal", [(503, b"<html>"), (503, SERVER_BUSY), (200, SERVER_BUSY)])
async def test_a_session_is_asked_for_again_while_the_server_is_busy(refusal: Any) -> None:
    async with listening() as (_client, wire, _start, get, listener):
        get.end()
        (await wire.next("GET")).answer(404)
        for _ in range(5):
            request, (status, body) = await wire.post("initialize"), refusal
            request.answer(status, body) if isinstance(body, bytes) else request.refuse(status, body)
        (await wire.with_stream("S2")).stream()
        await wire.reply("resources/subscribe", {})
        assert await waiting(listener) == [Change("updated", "a://b")]


async def acknowledged(wire: HttpWire) -> Exchange:
    post = await wire.post("subscriptions/listen")
    post.stream()
    params: Json = {"notifications": {"toolsListChanged": True}, "_meta": {SUBSCRIPTION_ID: post.message["id"]}}
    post.say(event({"method": "notifications/subscriptions/acknowledged", "params": params}))
    return post


@asynccontextmanager
async def interrupted_stream() -> AsyncIterator[tuple[HttpWire, Changes]]:
    """A modern stream that has ended, and its subscriber."""
    async with modern_http() as (client, wire, start):
        listener = client.listen(tools=True)
        entered = start(listener.__aenter__)
        post = await acknowledged(wire)
        await entered.result()
        post.end()
        yield wire, listener


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, b"<html>", RequestRejected),
        (401, b"", RequestRejected),
        (403, b"<html>", RequestRejected),
        (405, b"", RequestRejected),
        (401, {"error": {"code": -32600, "message": "HTTP 401"}}, PeerError),
    ],
)
async def test_a_modern_stream_that_is_rejected_is_named_to_its_reader(
    status: int, body: Any, error: type[McpError]
) -> None:
    async with interrupted_stream() as (wire, listener):
        again = await wire.post("subscriptions/listen")
        again.answer(status, body | {"id": again.message["id"]} if isinstance(body, dict) else body)
        for _ in range(2):
            with pytest.raises(error, match=f"HTTP {status}"):
                await next_of(listener)
        await trio.sleep(1000)
        wire.nothing()


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("is_json", [False, True], ids=["no JSON", "an error"])
async def test_a_modern_stream_is_asked_for_again_while_the_server_is_away(status: int, is_json: bool) -> None:
    async with interrupted_stream() as (wire, listener):
        for _ in range(5):
            again = await wire.post("subscriptions/listen")
            again.refuse(status, SERVER_BUSY) if is_json else again.answer(status, b"<html>", EVENTS)
        await acknowledged(wire)
        assert await waiting(listener) == [Change("tools")]


@pytest.mark.parametrize("opening", [as_legacy, as_modern], ids=["legacy", "modern"])
async def test_a_connection_that_has_ended_cannot_be_listened_to(opening: Any) -> None:
    async with conversation(opening) as (client, wire, _start):
        await wire.close()
        await wait_all_tasks_blocked()
        with trio.fail_after(1), pytest.raises(Disconnected):
            await client.listen(tools=True).__aenter__()
