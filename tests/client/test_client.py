"""A client's calls: answers, cancels, timeouts, questions of the server, and the end of the connection."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from naming import naming
from scripted import Json, as_legacy, as_modern, conversation, initialized, opening_client, said, unopened
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.client import Client, ClientOptions, Handlers, accept, decline, dismiss
from trio_mcp.errors import Disconnected, LocalProtocolError, PeerError, RemoteProtocolError, RequestTimeout
from trio_mcp.protocol.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND, dump, parse
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION
from trio_mcp.protocol.revisions import MODERN
from trio_mcp.session import Envelope
from trio_mcp.types import CreateMessageResult, Implementation, Root, TextContent

FORM = {"mode": "form", "message": "Which?", "requestedSchema": {"type": "object", "properties": {}}}
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 5}


@pytest.fixture(params=[as_legacy, as_modern], ids=["legacy", "modern"])
def opening(request: pytest.FixtureRequest) -> Any:
    return request.param


# calling


async def test_a_tool_is_called_and_its_result_returned(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book", {"to": "Lisbon"}, meta={"x/y": 1})
        request = await wire.request("tools/call")
        assert (request["params"]["name"], request["params"]["arguments"]) == ("book", {"to": "Lisbon"})
        assert request["params"]["_meta"]["x/y"] == 1
        await wire.respond(request, said("booked"))
        result = await call.result()
        assert (result.text, result.is_error) == ("booked", None)


async def test_every_modern_request_says_who_asks_and_no_legacy_one_does() -> None:
    for opening, stamped in ((as_modern, True), (as_legacy, False)):
        async with conversation(opening, on_elicit=lambda _params: decline()) as (client, wire, start):
            start(client.call_tool, "book")
            meta = (await wire.request("tools/call"))["params"].get("_meta", {})
            if stamped:
                assert (meta[PROTOCOL_VERSION], meta[CLIENT_CAPABILITIES]) == (MODERN, {"elicitation": {"form": {}}})
            else:
                assert meta == {}


async def test_an_error_result_is_a_result_and_an_error_is_raised(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.respond(await wire.request("tools/call"), {**said("sold out"), "isError": True})
        assert (await call.result()).is_error
        call = start(client.call_tool, "fly")
        await wire.fail(await wire.request("tools/call"), -32602, "Unknown tool: fly", {"a": 1})
        with pytest.raises(PeerError, match="Unknown tool") as raised:
            await call.result()
        assert (raised.value.code, raised.value.data) == (-32602, {"a": 1})


async def test_calls_run_side_by_side_and_answers_find_their_own(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        calls = [start(client.call_tool, str(number)) for number in range(20)]
        requests = [await wire.request("tools/call") for _ in calls]
        assert len({request["id"] for request in requests}) == 20
        for request in reversed(requests):
            await wire.respond(request, said(request["params"]["name"]))
        assert [str(number) for number in range(20)] == [(await call.result()).text for call in calls]


async def test_a_ping_asks_for_a_sign_of_life_in_each_era() -> None:
    for opening, method, answer in ((as_legacy, "ping", {}), (as_modern, "server/discover", None)):
        async with conversation(opening) as (client, wire, start):
            ping = start(client.ping)
            if answer is None:
                await as_modern(wire)
            else:
                await wire.respond(await wire.request(method), answer)
            await ping.result()


async def test_arguments_that_json_cannot_say_are_refused_and_the_connection_lives(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        with pytest.raises(LocalProtocolError, match="arguments"):
            await client.call_tool("book", {"price": float("nan")}, on_progress=lambda _params: None)
        call = start(client.call_tool, "book")
        await wire.respond(await wire.request("tools/call"), said("fine"))
        assert (await call.result()).text == "fine"


# progress and logs


async def test_progress_reaches_the_call_it_belongs_to(opening: Any) -> None:
    seen: list[tuple[str, float]] = []
    async with conversation(opening) as (client, wire, start):
        calls = {
            name: start(client.call_tool, name, on_progress=lambda p, name=name: seen.append((name, p.progress)))
            for name in ("a", "b")
        }
        requests = [await wire.request("tools/call") for _ in calls]
        for request in requests:
            token = request["params"]["_meta"]["progressToken"]
            await wire.notify("notifications/progress", {"progressToken": token, "progress": 0.5})
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
        async with conversation(opening, on_log=broken) as (client, wire, start):
            call = start(client.call_tool, "book", on_progress=broken)
            request = await wire.request("tools/call")
            token = request["params"]["_meta"]["progressToken"]
            await wire.notify("notifications/message", {"level": "error", "data": 1})
            await wire.notify("notifications/progress", {"progressToken": token, "progress": 1})
            await wire.respond(request, said("fine"))
            assert (await call.result()).text == "fine"


async def test_a_flood_of_notifications_does_not_stop_calls(opening: Any) -> None:
    async with conversation(opening, on_log=lambda _params: None) as (client, wire, start):
        call = start(client.call_tool, "book")
        request = await wire.request("tools/call")
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
async def test_a_message_that_nobody_waits_for_is_ignored(opening: Any, message: Json) -> None:
    async with conversation(opening) as (client, wire, start):
        await wire.send(message)
        call = start(client.call_tool, "book")
        await wire.respond(await wire.request("tools/call"), said("fine"))
        assert (await call.result()).text == "fine"


# not waiting any longer


async def test_a_call_over_its_time_is_cancelled_at_the_server_and_raises(
    opening: Any, autojump_clock: MockClock
) -> None:
    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=3)
        request = await wire.request("tools/call")
        assert request["id"] == (await wire.notification("notifications/cancelled"))["requestId"]
        with pytest.raises(RequestTimeout, match=naming("book", "3 seconds")):
            await call.result()
        assert trio.current_time() == 3


async def test_a_ping_over_its_time_raises(opening: Any, autojump_clock: MockClock) -> None:
    async with conversation(opening) as (client, _wire, _start):
        with pytest.raises(RequestTimeout, match=naming("2 seconds")):
            await client.ping(timeout=2)


async def test_an_answer_that_comes_too_late_is_dropped_and_the_next_call_is_clean(
    opening: Any, autojump_clock: MockClock
) -> None:
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


async def test_a_call_that_was_answered_is_not_cancelled_afterwards(opening: Any, autojump_clock: MockClock) -> None:
    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book", timeout=10)
        await wire.respond(await wire.request("tools/call"), said("done"))
        await call.result()
        await wire.silence(20)


@pytest.mark.parametrize("result", [{}, {"content": 7}, {"content": [{"type": "text"}]}], ids=str)
async def test_a_malformed_result_raises_in_its_own_call_only(opening: Any, result: Json) -> None:
    async with conversation(opening) as (client, wire, start):
        broken, fine = start(client.call_tool, "broken"), start(client.call_tool, "fine")
        for _ in range(2):
            request = await wire.request("tools/call")
            await wire.respond(request, result if request["params"]["name"] == "broken" else said("fine"))
        with pytest.raises(RemoteProtocolError, match=r"result\.content"):
            await broken.result()
        assert (await fine.result()).text == "fine"


# which log messages


@pytest.mark.parametrize("on_log", [None, lambda _params: None], ids=["without a handler", "with one"])
async def test_a_modern_server_is_told_the_log_level_with_every_request_if_there_is_a_handler(on_log: Any) -> None:
    async with conversation(as_modern, on_log=on_log) as (client, wire, start):
        start(client.call_tool, "book")
        meta = (await wire.request("tools/call"))["params"]["_meta"]
        assert (None if on_log is None else "info") == meta.get(LOG_LEVEL)


@pytest.mark.parametrize("refuses", [False, True], ids=["agrees", "refuses"])
async def test_a_legacy_server_is_told_the_log_level_once_if_it_has_logs(refuses: bool) -> None:
    async with opening_client(mode="legacy", on_log=lambda _params: None) as (client, wire, opened):
        result = initialized()
        await wire.respond(await wire.request("initialize"), {**result, "capabilities": {"logging": {}}})
        await wire.notification("notifications/initialized")
        request = await wire.request("logging/setLevel")
        assert request["params"]["level"] == "info"
        await (wire.fail(request, METHOD_NOT_FOUND) if refuses else wire.respond(request, {}))
        assert await opened.result() is client


# the server's questions (handshake era)


async def later(value: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return value


ANSWERS = [
    ("elicitation/create", FORM, {"on_elicit": lambda _p: accept(a=1)}, {"action": "accept", "content": {"a": 1}}),
    ("elicitation/create", FORM, {"on_elicit": lambda _p: later(decline())}, {"action": "decline"}),
    ("elicitation/create", FORM, {"on_elicit": lambda _p: dismiss()}, {"action": "cancel"}),
    (
        "sampling/createMessage",
        SAMPLE,
        {"on_sample": lambda p: f"{p.max_tokens} tokens"},
        {
            "role": "assistant",
            "content": {"type": "text", "text": "5 tokens"},
            "model": "unnamed",
            "stopReason": "endTurn",
        },
    ),
    (
        "sampling/createMessage",
        SAMPLE,
        {
            "on_sample": lambda _p: later(
                CreateMessageResult(role="assistant", content=TextContent(text="x"), model="m")
            )
        },
        {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"},
    ),
    (
        "roots/list",
        {},
        {"on_roots": lambda: [Path("/tmp/a"), Root(uri="file:///b", name="B")]},
        {"roots": [{"uri": "file:///tmp/a", "name": "a"}, {"uri": "file:///b", "name": "B"}]},
    ),
    ("roots/list", {}, {"on_roots": lambda: later([])}, {"roots": []}),
]


@pytest.mark.parametrize(("method", "params", "handlers", "expected"), ANSWERS)
async def test_a_question_is_answered_by_its_handler(method: str, params: Json, handlers: Json, expected: Json) -> None:
    async with conversation(as_legacy, **handlers) as (_client, wire, _start):
        await wire.ask("q", method, params)
        assert expected == (await wire.reply("q"))["result"]


@pytest.mark.parametrize(("method", "params", "handlers", "_expected"), ANSWERS)
async def test_only_what_has_a_handler_is_declared(method: str, params: Json, handlers: Json, _expected: Json) -> None:
    async with opening_client(mode="legacy", **handlers) as (_client, wire, opened):
        request = await wire.request("initialize")
        expected = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
        assert {expected[method]} == set(request["params"]["capabilities"])
        await wire.respond(request, initialized())
        await wire.notification("notifications/initialized")
        await opened.result()


@pytest.mark.parametrize(("method", "params"), [("elicitation/create", FORM), ("roots/list", {}), ("no/such", {})])
async def test_a_question_without_a_handler_is_refused(method: str, params: Json) -> None:
    async with conversation(as_legacy) as (_client, wire, _start):
        await wire.ask("q", method, params)
        error = (await wire.reply("q"))["error"]
        assert error["code"] == METHOD_NOT_FOUND
        assert method in error["message"]


async def test_a_handler_that_fails_is_an_error_for_the_server_without_internals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_params: object) -> None:
        raise LookupError("hunter2")

    with caplog.at_level(logging.CRITICAL):
        async with conversation(as_legacy, on_elicit=broken) as (client, wire, start):
            await wire.ask("q", "elicitation/create", FORM)
            error = (await wire.reply("q"))["error"]
            assert error["code"] == INTERNAL_ERROR
            assert "hunter2" not in error["message"]
            call = start(client.call_tool, "book")
            await wire.respond(await wire.request("tools/call"), said("fine"))
            assert (await call.result()).text == "fine"


async def test_a_handler_may_refuse_with_an_error_of_its_own() -> None:
    def refuses(_params: object) -> None:
        raise PeerError(-1, "User rejected sampling", {"a": 1})

    async with conversation(as_legacy, on_sample=refuses) as (_client, wire, _start):
        await wire.ask("q", "sampling/createMessage", SAMPLE)
        expected = {"code": -1, "message": "User rejected sampling", "data": {"a": 1}}
        assert expected == (await wire.reply("q"))["error"]


async def test_questions_are_answered_side_by_side_and_while_calls_wait() -> None:
    both = trio.Event()
    asked: list[str] = []

    async def slow(params: Any) -> Any:
        asked.append(params.message)
        if len(asked) == 2:
            both.set()
        await both.wait()
        return decline()

    async with conversation(as_legacy, on_elicit=slow) as (client, wire, start):
        call = start(client.call_tool, "book")
        request = await wire.request("tools/call")
        for name in ("a", "b"):
            await wire.ask(name, "elicitation/create", {**FORM, "message": name})
        answers = {(await wire.receive())["id"] for _ in range(2)}
        assert {"a", "b"} == answers
        await wire.respond(request, said("done"))
        await call.result()


async def test_a_question_that_the_server_withdraws_is_cancelled_and_not_answered(autojump_clock: MockClock) -> None:
    events: list[str] = []
    entered = trio.Event()

    async def slow(_params: object) -> Any:
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            events.append("cancelled")

    async with conversation(as_legacy, on_elicit=slow) as (_client, wire, _start):
        await wire.ask("q", "elicitation/create", FORM)
        await entered.wait()
        await wire.notify("notifications/cancelled", {"requestId": "q"})
        await wire.silence()
        assert events == ["cancelled"]


class Burst(trio.abc.Channel[Envelope]):
    """A channel on which everything the server says once it is open arrives in one piece: receiving it never waits."""

    def __init__(self, burst: list[Json]) -> None:
        self._burst = burst
        self._arrived: list[Json] = []
        self._news = trio.Event()
        self.sent: list[Json] = []

    async def send(self, value: Envelope) -> None:
        message = json.loads(dump(value.message))  # type: ignore[arg-type]
        self.sent.append(message)
        match message["method"]:
            case "initialize":
                self._arrived.append({"id": message["id"], "result": initialized()})
            case "notifications/initialized":
                self._arrived += self._burst
        self._news.set()
        await trio.lowlevel.checkpoint()

    async def receive(self) -> Envelope:
        while not self._arrived:
            self._news = trio.Event()
            await self._news.wait()
        return Envelope(parse(json.dumps({"jsonrpc": "2.0", **self._arrived.pop(0)}).encode()))

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_question_that_is_withdrawn_before_its_handler_starts_is_not_answered() -> None:
    asked: list[object] = []
    question = {"id": "q", "method": "elicitation/create", "params": FORM}
    withdrawal = {"method": "notifications/cancelled", "params": {"requestId": "q"}}
    burst = Burst([question, withdrawal])

    @asynccontextmanager
    async def channel() -> AsyncIterator[Burst]:
        yield burst

    async def slow(params: object) -> Any:
        await trio.lowlevel.checkpoint()
        asked.append(params)
        return decline()

    info = Implementation(name="tester", version="1")
    client = Client(channel(), ClientOptions(handlers=Handlers(slow), mode="legacy", info=info))
    async with client:
        await wait_all_tasks_blocked()
    assert asked == []
    assert [message["method"] for message in burst.sent] == ["initialize", "notifications/initialized"]


# the end


async def test_every_waiting_call_gets_disconnected_when_the_server_goes_away(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        calls = [start(client.call_tool, "book") for _ in range(5)]
        for _ in calls:
            await wire.request("tools/call")
        await wire.close()
        for call in calls:
            with pytest.raises(Disconnected, match="closed the connection"):
                await call.result()
        with pytest.raises(Disconnected):
            await client.call_tool("book")
        with pytest.raises(Disconnected):
            await client.ping()


async def test_a_running_handler_is_cancelled_when_the_client_is_closed() -> None:
    events: list[str] = []
    entered = trio.Event()

    async def slow(_params: object) -> Any:
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            events.append("cancelled")

    async with conversation(as_legacy, on_elicit=slow) as (client, wire, _start):
        await wire.ask("q", "elicitation/create", FORM)
        await entered.wait()
        await client.aclose()
        assert events == ["cancelled"]
        await wire.end()


async def test_a_client_may_be_closed_from_another_task_and_its_calls_say_so(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        call = start(client.call_tool, "book")
        await wire.request("tools/call")
        closing = start(client.aclose)
        await closing.result()
        with pytest.raises(Disconnected, match=naming("client", "closed")):
            await call.result()
        await wire.end()


async def test_closing_twice_and_at_once_is_fine(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        closings = [start(client.aclose) for _ in range(3)]
        for closing in closings:
            await closing.result()
        await client.aclose()
        await wire.end()


async def test_a_closed_client_refuses_every_use(opening: Any) -> None:
    async with conversation(opening) as (client, _wire, _start):
        await client.aclose()
        for use in (client.list_tools, client.ping, lambda: client.call_tool("book")):
            with pytest.raises(Disconnected, match="not open"):
                await use()


async def test_a_client_that_was_never_opened_refuses_every_use() -> None:
    async with unopened() as (client, _wire, _start):
        with pytest.raises(Disconnected, match="not open"):
            await client.ping()
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
        with pytest.raises(Disconnected):
            await call.result()


async def test_a_closed_client_leaves_no_task_behind(opening: Any) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with conversation(opening) as (client, _wire, _start):
        await client.aclose()
    assert before == trio.lowlevel.current_statistics().tasks_living


async def test_a_close_is_bounded_though_the_server_reads_nothing(autojump_clock: MockClock) -> None:
    async with conversation(as_modern) as (client, _wire, start):
        calls = [start(client.call_tool, "book") for _ in range(200)]  # more than the channel's buffer
        await wait_all_tasks_blocked()
        await client.aclose()
        assert trio.current_time() <= 15
        for call in calls:
            with pytest.raises(Disconnected):
                await call.result()


# a whole conversation in one process
