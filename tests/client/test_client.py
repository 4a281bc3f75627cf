"""A client's calls: answers, cancels, timeouts, questions of the server, and the end of the connection."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from naming import naming, unnamed
from scripted import (
    FOLLOWS_TASKS,
    FORM,
    Gathering,
    Json,
    answered,
    as_legacy,
    as_modern,
    calling,
    conversation,
    handshake,
    opening_client,
    said,
    unopened,
    works,
)
from trio.testing import wait_all_tasks_blocked
from wire_terms import CLIENT_CAPABILITIES, LOG_LEVEL, METHOD_NOT_FOUND, MODERN, PROTOCOL_VERSION

from trio_mcp import Client, Context, Server
from trio_mcp.client import decline
from trio_mcp.errors import Disconnected, LocalProtocolError, PeerError, RequestTimeout
from trio_mcp.types import CallToolResult, ReadResourceResult


async def test_a_tool_is_called_and_its_result_returned(opening: Any) -> None:
    async with calling(opening, meta={"x/y": 1}) as (wire, call, request):
        assert (request["params"]["name"], request["params"]["arguments"]) == ("book", {"to": "Lisbon"})
        assert request["params"]["_meta"]["x/y"] == 1
        await wire.respond(request, said("booked"))
        result = await call.result()
        assert (result.text, result.is_error) == ("booked", False)


@pytest.mark.parametrize(
    ("opening", "meta"),
    [
        (as_modern, {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {"elicitation": {"form": {}}, **FOLLOWS_TASKS}}),
        (as_legacy, {PROTOCOL_VERSION: None, CLIENT_CAPABILITIES: None}),
    ],
    ids=["modern", "legacy"],
)
async def test_every_modern_request_says_who_asks_and_no_legacy_one_does(opening: Any, meta: Json) -> None:
    async with conversation(opening, on_elicit=lambda _params: decline()) as (client, wire, start):
        start(client.call_tool, "book")
        sent = (await wire.request("tools/call"))["params"].get("_meta", {})
        assert {name: sent.get(name) for name in meta} == meta


async def test_an_error_result_is_a_result_and_an_error_is_raised(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        error = {**said("sold out"), "isError": True}
        assert (await answered(wire, start(client.call_tool, "book"), "tools/call", error))[1].is_error
        call = start(client.call_tool, "fly")
        await wire.refuse("tools/call", -32602, "Unknown tool: fly", {"a": 1})
        raised = await call.fails(PeerError, "Unknown tool")
        assert (raised.code, raised.data) == (-32602, {"a": 1})


async def test_calls_run_side_by_side_and_answers_find_their_own(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        calls = [start(client.call_tool, str(number)) for number in range(20)]
        requests = [await wire.request("tools/call") for _ in calls]
        assert len({request["id"] for request in requests}) == 20
        for request in reversed(requests):
            await wire.respond(request, said(request["params"]["name"]))
        assert [str(number) for number in range(20)] == [(await call.result()).text for call in calls]


@pytest.mark.parametrize(
    ("opening", "answer"),
    [(as_legacy, lambda wire: wire.reply("ping", {})), (as_modern, as_modern)],
    ids=["legacy", "modern"],
)
async def test_a_ping_asks_for_a_sign_of_life_in_each_era(opening: Any, answer: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        ping = start(client.ping)
        await answer(wire)
        await ping.result()


@pytest.mark.parametrize("price", [float("nan"), 10**320], ids=["no number", "321 digits"])
async def test_arguments_that_json_cannot_say_are_refused_and_the_connection_lives(opening: Any, price: float) -> None:
    async with conversation(opening) as (client, wire, start):
        with pytest.raises(LocalProtocolError, match=naming("params.arguments.price")):
            await client.call_tool("book", {"price": price}, on_progress=lambda _params: None)
        await works(client, wire, start)


async def test_progress_reaches_the_call_it_belongs_to(opening: Any) -> None:
    seen: list[tuple[str, float]] = []
    async with conversation(opening) as (client, wire, start):
        calls = {
            name: start(client.call_tool, name, on_progress=lambda p, name=name: seen.append((name, p.progress)))
            for name in ("a", "b")
        }
        requests = [await wire.request("tools/call") for _ in calls]
        for request in requests:
            await wire.report(request, 0.5)
        await wire.notify("notifications/progress", {"progressToken": "unknown", "progress": 1})
        for request in requests:
            await wire.respond(request, said("done"))
        for call in calls.values():
            await call.result()
        token = requests[0]["params"]["_meta"]["progressToken"]
        await wire.notify("notifications/progress", {"progressToken": token, "progress": 1})  # too late
        await wait_all_tasks_blocked()
    assert sorted(seen) == [("a", 0.5), ("b", 0.5)]


async def test_without_a_handler_no_progress_is_asked_for(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        start(client.call_tool, "book")
        assert "progressToken" not in (await wire.request("tools/call"))["params"].get("_meta", {})


async def test_log_messages_reach_the_handler(opening: Any) -> None:
    seen: list[tuple[str, object]] = []
    async with conversation(opening, on_log=lambda p: seen.append((p.level, p.data))) as (_client, wire, _start):
        await wire.notify("notifications/message", {"level": "error", "data": {"a": 1}})
        await wait_all_tasks_blocked()
    assert seen == [("error", {"a": 1})]


async def test_a_notification_handler_that_fails_ends_nothing(opening: Any, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_params: object) -> None:
        raise LookupError

    with caplog.at_level(logging.CRITICAL):
        async with calling(opening, {"on_log": broken}, on_progress=broken) as (wire, call, request):
            token = request["params"]["_meta"]["progressToken"]
            await wire.notify("notifications/message", {"level": "error", "data": 1})
            await wire.notify("notifications/progress", {"progressToken": token, "progress": 1})
            await wire.respond(request, said("fine"))
            assert (await call.result()).text == "fine"


async def test_a_flood_of_notifications_does_not_stop_calls(opening: Any) -> None:
    async with calling(opening, {"on_log": lambda _params: None}) as (wire, call, request):
        for number in range(500):
            await wire.notify("notifications/message", {"level": "error", "data": number})
        await wire.respond(request, said("through"))
        assert (await call.result()).text == "through"


@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/unheard_of", "params": {}},
        {"method": "notifications/progress", "params": {"progress": "much"}},
        {"id": 99, "result": {}},
        {"id": "99", "error": {"code": 1, "message": "?"}},
        {"error": {"code": -32700, "message": "?"}},
    ],
    ids=str,
)
async def test_an_unexpected_message_is_ignored(opening: Any, message: Json) -> None:
    async with conversation(opening) as (client, wire, start):
        await wire.send(message)
        await works(client, wire, start)


async def test_an_answer_that_comes_too_late_is_dropped_and_the_next_call_is_clean(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        with pytest.raises(RequestTimeout):
            await client.call_tool("slow", timeout=1)
        late = await wire.request("tools/call")
        await wire.notification("notifications/cancelled")
        call = start(client.call_tool, "next")
        request = await wire.request("tools/call")
        await wire.respond(late, said("late"))
        await wire.respond(request, said("in time"))
        assert (await call.result()).text == "in time"


async def test_a_call_that_was_answered_is_not_cancelled_afterwards(opening: Any) -> None:
    async with calling(opening, timeout=10) as (wire, call, request):
        await wire.respond(request, said("done"))
        await call.result()
        await wire.silence(20)


@pytest.mark.parametrize("on_log", [None, lambda _params: None], ids=["without a handler", "with one"])
async def test_a_modern_server_receives_the_log_level_with_every_request_if_there_is_a_handler(on_log: Any) -> None:
    async with conversation(as_modern, on_log=on_log) as (client, wire, start):
        start(client.call_tool, "book")
        meta = (await wire.request("tools/call"))["params"]["_meta"]
        assert (None if on_log is None else "info") == meta.get(LOG_LEVEL)


@pytest.mark.parametrize("refuses", [False, True], ids=["agrees", "refuses"])
async def test_a_legacy_server_receives_the_log_level_once_if_it_has_logs(refuses: bool) -> None:
    async with opening_client(mode="legacy", on_log=lambda _params: None) as (client, wire, opened):
        await handshake(wire, capabilities={"logging": {}})
        answered = wire.refuse("logging/setLevel", METHOD_NOT_FOUND) if refuses else wire.reply("logging/setLevel", {})
        assert (await answered)["params"]["level"] == "info"
        assert await opened.result() is client


async def test_questions_are_answered_side_by_side_and_while_calls_wait() -> None:
    async with calling(as_legacy, {"on_elicit": Gathering(2)}) as (wire, call, request):
        for name in ("a", "b"):
            await wire.ask(name, "elicitation/create", FORM)
        assert {(await wire.receive())["id"] for _ in range(2)} == {"a", "b"}
        await wire.respond(request, said("done"))
        await call.result()


async def test_a_client_may_be_closed_from_several_tasks_and_its_calls_raise_an_error(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.request("tools/call")
        for closing in [start(client.aclose) for _ in range(3)]:
            await closing.result()
        await call.fails(Disconnected, naming("client", "closed"))
        await wire.end()


async def test_a_closed_client_refuses_every_use(opening: Any) -> None:
    async with conversation(opening) as (client, _wire, _start):
        await client.aclose()
        uses = (client.list_tools, client.ping, lambda: client.call_tool("book"), client.listen(tools=True).__aenter__)
        for use in uses:
            with pytest.raises(Disconnected, match="not open"):
                await use()


async def test_a_client_that_was_never_opened_has_no_revision() -> None:
    async with unopened() as (client, _wire, _start):
        with pytest.raises(Disconnected, match="not open"):
            _ = client.protocol_version


async def test_what_was_said_before_the_close_is_still_sent(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            scope.cancel()
            await client.aclose()
        await wire.request("tools/call")
        await call.fails(Disconnected)


async def test_a_close_is_bounded_though_the_server_reads_nothing() -> None:
    async with conversation(as_modern) as (client, _wire, start):
        calls = [start(client.call_tool, "book") for _ in range(200)]  # more than the channel's buffer
        await wait_all_tasks_blocked()
        await client.aclose()
        assert trio.current_time() <= 15
        for call in calls:
            await call.fails(Disconnected)


@pytest.mark.parametrize("asks", [False, True], ids=["reports", "asks"])
async def test_a_thousand_calls_at_once_do_not_stop_a_connection_whose_ends_both_have_much_to_send(
    mode: str, asks: bool
) -> None:
    server, ended = Server("busy"), list[None]()

    @server.tool
    async def work(ctx: Context) -> None:
        for step in range(3):
            await ctx.progress(step)
        if asks:
            await ctx.elicit("Sure?", bool)

    async with Client.connect(server, mode=mode, on_elicit=lambda _params: decline()) as client:

        async def call() -> None:
            await client.call_tool("work", on_progress=lambda *_: None)
            ended.append(None)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                # More than any queue has room for, while the one before is being written.
                for _ in range(4):
                    for _ in range(300):
                        nursery.start_soon(call)
                    await trio.lowlevel.checkpoint()
    assert len(ended) == 1200


@pytest.mark.parametrize(
    ("result", "written"),
    [(CallToolResult(content=[]), ".content[0]"), (ReadResourceResult(contents=[]), ".contents[0]")],
    ids=["a tool", "a resource"],
)
def test_a_result_that_is_read_as_a_list_names_what_to_write(result: Any, written: str) -> None:
    with pytest.raises(TypeError) as caught:
        result[0]
    assert unnamed(str(caught.value), "not subscriptable", written) == []
