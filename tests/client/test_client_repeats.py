"""What a client sends again when a response is lost, and when it says that it cannot know whether a tool has run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import copy
from typing import Any

import httpx2
import pytest
import trio
from naming import unnamed
from scripted import OFFERS, Json, Start, as_legacy, as_modern, asking, conversation, discovered, list_tools
from scripted_http import Exchange, HttpWire, http_conversation
from trio.testing import wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY, IDEMPOTENCY_KEY, INTERNAL_ERROR, MODERN, OUTCOME_UNKNOWN, REPEAT_OF, SERVER_BUSY

from trio_mcp import accept
from trio_mcp.client import Client
from trio_mcp.client.requester import ATTEMPTS
from trio_mcp.errors import Disconnected, OutcomeUnknown, PeerError, RequestTimeout, Unreachable, without_traceback
from trio_mcp.types import PromptReference

KEYED: Json = {**OFFERS, "experimental": {IDEMPOTENCY: {"instance": "one"}}}


@asynccontextmanager
async def http(mode: str, capabilities: Json = KEYED, **options: Any) -> AsyncIterator[tuple[Client, HttpWire, Start]]:
    """A client that is open over HTTP."""
    async with http_conversation(mode=MODERN if mode == "modern" else mode, **options) as (client, wire, start):
        if mode == "legacy":
            await wire.without_stream(capabilities=capabilities)
        else:
            await wire.reply("server/discover", {**discovered(), "capabilities": capabilities})
            await wait_all_tasks_blocked()  # the client is open
        yield client, wire, start


every_loss = pytest.mark.parametrize("proxy", [None, 502, 503, 504])


def lose(exchange: Exchange, proxy: int | None = None) -> Json:
    """Break a response off, or let a proxy lose it and answer with this status; return the request."""
    if proxy is None:
        exchange.stream()
        exchange.break_off()
    else:
        exchange.answer(proxy, b"<html><h1>Bad Gateway</h1></html>")
    return exchange.message


def meta_of(request: Json) -> Json:
    meta: Json = request["params"].get("_meta", {})
    return meta


async def test_each_call_has_a_separate_key_if_the_server_knows_keys(mode: str) -> None:
    async with http(mode) as (client, wire, start):
        keys = []
        for _ in range(2):
            call = start(client.call_tool, "book")
            request = await wire.finish(call)
            keys.append(meta_of(request.message)[IDEMPOTENCY_KEY])
            assert REPEAT_OF not in meta_of(request.message)
        assert len(set(keys)) == 2
        assert all(len(key) >= 22 for key in keys)


@pytest.mark.parametrize(
    ("capabilities", "meta", "sent"),
    [(KEYED, {IDEMPOTENCY_KEY: "order 7", "mine": 1}, "order 7"), (OFFERS, {"mine": 1}, None)],
    ids=["the key of the caller wins", "a server that knows no keys gets none"],
)
async def test_a_call_has_one_key_or_none(mode: str, capabilities: Json, meta: Json, sent: str | None) -> None:
    async with http(mode, capabilities) as (client, wire, start):
        call = start(client.call_tool, "book", meta=meta)
        request = await wire.finish(call)
        assert (meta_of(request.message).get(IDEMPOTENCY_KEY), meta_of(request.message)["mine"]) == (sent, 1)


async def test_later_legs_have_the_members_of_the_caller_and_no_key() -> None:
    async with http("modern", on_elicit=lambda _: accept(seat="1A")) as (client, wire, start):
        call = start(client.call_tool, "book", meta={"mine": 1})
        first = await wire.reply("tools/call", asking("a", state="s"))
        second = await wire.finish(call)
        assert IDEMPOTENCY_KEY in meta_of(first.message)
        assert IDEMPOTENCY_KEY not in meta_of(second.message)
        assert meta_of(second.message)["mine"] == 1


@every_loss
async def test_a_call_whose_response_is_lost_is_repeated_with_its_key(mode: str, proxy: int | None) -> None:
    async with http(mode) as (client, wire, start):
        call = start(client.call_tool, "book", {"to": "Lisbon"}, meta={"mine": 1})
        first = lose(await wire.post(), proxy)
        again = await wire.finish(call)
        assert meta_of(again.message)[IDEMPOTENCY_KEY] == meta_of(first)[IDEMPOTENCY_KEY]
        assert meta_of(again.message)[REPEAT_OF] == "one"
        assert meta_of(again.message)["mine"] == 1
        assert again.message["params"]["arguments"] == {"to": "Lisbon"}
        assert again.message["id"] != first["id"]


@every_loss
async def test_a_call_is_not_repeated_if_the_server_knows_no_keys(mode: str, proxy: int | None) -> None:
    async with http(mode, OFFERS) as (client, wire, start):
        call = start(client.call_tool, "book", meta={IDEMPOTENCY_KEY: "order 7"})
        lose(await wire.post(), proxy)
        raised = await call.fails(OutcomeUnknown)
        assert raised.tool == "book"
        assert unnamed(str(raised), "book", f"HTTP {proxy}" if proxy else "connection reset") == []
        assert isinstance(raised, Disconnected)
        await trio.sleep(100)
        wire.nothing()


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
async def test_a_tool_that_was_listed_as_harmless_is_called_again_by_any_server(mode: str, hint: str) -> None:
    async with http(mode, OFFERS) as (client, wire, start):
        harmless = {"name": "book", "inputSchema": {"type": "object"}, "annotations": {hint: True}}
        await list_tools(client, wire, start, {"tools": [harmless], "ttlMs": 0, "cacheScope": "private"})
        call = start(client.call_tool, "book")
        lose(await wire.post())
        await wire.finish(call)
        # What it was listed as last counts.
        del harmless["annotations"]
        await list_tools(client, wire, start, {"tools": [harmless], "ttlMs": 0, "cacheScope": "private"})
        call = start(client.call_tool, "book")
        lose(await wire.post())
        await call.fails(OutcomeUnknown)


@pytest.mark.parametrize("proxy", [None, 502, 504])
async def test_what_only_reads_is_sent_again(mode: str, proxy: int | None) -> None:
    async with http(mode, OFFERS) as (client, wire, start):
        page: Json = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        for method, result, fn, args in (
            ("tools/list", {**page, "tools": []}, client.list_tools, ()),
            ("resources/read", {**page, "contents": []}, client.read_resource, ("a://b",)),
            ("prompts/get", {**page, "messages": []}, client.get_prompt, ("p",)),
            ("completion/complete", {**page, "completion": {"values": []}}, client.complete, completed()),
        ):
            call = start(fn, *args)
            lose(await wire.post(method), proxy)
            await wire.reply(method, result)
            await call.result()


def completed() -> tuple[PromptReference, str, str]:
    return PromptReference(name="p"), "a", "b"


async def test_a_later_leg_is_sent_again_with_its_state() -> None:
    async with http("modern", OFFERS, on_elicit=lambda _: accept(seat="1A")) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.reply("tools/call", asking("a", state="s"))
        lost = lose(await wire.post())
        again = await wire.finish(call)
        for member in ("requestState", "inputResponses"):
            assert again.message["params"][member] == lost["params"][member]


async def test_a_later_leg_waits_for_a_server_that_restarts_while_the_user_answers() -> None:
    async with http("modern", OFFERS, on_elicit=lambda _: accept(seat="1A")) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.reply("tools/call", asking("a", state="s"))
        (await wire.post()).fail(httpx2.ConnectError("refused"))
        again = await wire.finish(call)
        assert again.message["params"]["requestState"] == "s"


async def test_a_call_that_has_asked_may_have_run_if_the_server_does_not_come_back() -> None:
    async with http("modern", OFFERS, on_elicit=lambda _: accept(seat="1A")) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.reply("tools/call", asking("a", state="s"))
        for _ in range(1 + ATTEMPTS):
            (await wire.post()).fail(httpx2.ConnectError("refused"))
        await call.fails(OutcomeUnknown, "refused")
        wire.nothing()


async def test_the_attempts_end(mode: str) -> None:
    async with http(mode) as (client, wire, start):
        call, read = start(client.call_tool, "book"), start(client.read_resource, "a://b")
        for method in ("tools/call", "resources/read"):
            for _ in range(1 + ATTEMPTS):
                lose(await wire.post(method))
        await call.fails(OutcomeUnknown)
        raised = await read.fails(Disconnected)
        assert not isinstance(raised, OutcomeUnknown)
        await trio.sleep(100)
        wire.nothing()


async def test_the_attempts_share_the_timeout_of_the_call(mode: str) -> None:
    async with http(mode) as (client, wire, start):
        before = trio.current_time()
        call, listing = start(client.call_tool, "book", timeout=3), start(client.list_tools, timeout=3)
        for method in ("tools/call", "tools/list"):
            lose(await wire.post(method))
            await wire.post(method)
        for each in (call, listing):
            await each.fails(RequestTimeout)
        assert trio.current_time() - before == pytest.approx(3)


async def test_while_the_server_restarts_it_may_be_unreachable_or_busy(mode: str) -> None:
    async with http(mode) as (client, wire, start):
        call = start(client.call_tool, "book")
        lose(await wire.post())
        (await wire.post()).fail(httpx2.ConnectError("refused"))
        (await wire.post()).refuse(503, SERVER_BUSY)
        (await wire.post()).answer(502, b"bad gateway")
        await wire.finish(call)


UNKNOWN = {"code": INTERNAL_ERROR, "message": "who knows", "data": {OUTCOME_UNKNOWN: True}}


@pytest.mark.parametrize(
    ("answer", "kind", "named"),
    [
        (lambda post: post.answer(401, b"log in"), OutcomeUnknown, None),
        (lambda post: post.answer(200, {"id": post.message["id"], "error": UNKNOWN}), OutcomeUnknown, "who knows"),
        (lambda post: post.refuse(200, INTERNAL_ERROR, "it failed"), PeerError, "it failed"),
    ],
    ids=["rejected", "unknown to the server too", "failed"],
)
async def test_what_a_repeat_is_answered_with_is_final(
    mode: str, answer: Callable[[Exchange], None], kind: type[Exception], named: str | None
) -> None:
    async with http(mode) as (client, wire, start):
        call = start(client.call_tool, "book")
        lose(await wire.post())
        answer(await wire.post())
        await call.fails(kind, named)
        wire.nothing()


async def test_a_server_that_was_not_reached_has_run_nothing(mode: str) -> None:
    async with http(mode) as (client, wire, start):
        for fn, method in ((client.call_tool, "tools/call"), (client.read_resource, "resources/read")):
            call = start(fn, "a://b")
            (await wire.post(method)).fail(httpx2.ConnectError("refused"))
            await call.fails(Unreachable)
        wire.nothing()


async def test_a_repeat_in_a_session_that_was_opened_again_names_the_process_of_the_first() -> None:
    async with http("legacy") as (client, wire, start):
        call = start(client.call_tool, "book")
        lose(await wire.post())
        (await wire.post()).answer(404)
        restarted: Json = {**OFFERS, "experimental": {IDEMPOTENCY: {"instance": "two"}}}
        await wire.without_stream("S2", restarted)
        again = await wire.finish(call)
        assert meta_of(again.message)[REPEAT_OF] == "one"


@pytest.mark.parametrize("opening", [as_legacy, as_modern], ids=["legacy", "modern"])
async def test_a_call_that_ends_with_its_connection_may_have_run_and_a_later_one_has_not(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        await wait_all_tasks_blocked()
        call, read = start(client.call_tool, "book"), start(client.read_resource, "a://b")
        await wire.receive()
        await wire.receive()
        await wire.close()
        await call.fails(OutcomeUnknown)
        raised = await read.fails(Disconnected)
        assert not isinstance(raised, OutcomeUnknown)
        with pytest.raises(Unreachable):
            await client.call_tool("book")


def test_the_error_can_be_copied_and_keeps_its_text() -> None:
    error = OutcomeUnknown("book", "lost")
    for again in (copy(error), without_traceback(error)):
        assert (str(again), again.tool) == (str(error), "book")
