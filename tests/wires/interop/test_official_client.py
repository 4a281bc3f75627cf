"""The official Python SDK's client (`mcp`) against our servers: both eras, over stdio and over HTTP.

It runs on Trio, through anyio, in the process of the tests; the server is always a process of its own.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import trio
from peer_server import PIXEL
from processes import HERE, child_environment

mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")

import mcp_types as wire  # noqa: E402
from mcp import Client, StdioServerParameters  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402

LIMIT = 20.0
"""Seconds that anything here may take."""

pytestmark = [
    # the SDK calls logging deprecated, and says so on every use
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    # it leaves the iterators of its event streams to the garbage collector
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]

Connect = Callable[..., "AsyncIterator[Client]"]

http_only = pytest.mark.parametrize("transport", ["http"], indirect=True)
"""For rules that one transport is enough for."""

ERAS = {"modern": "2026-07-28", "legacy": "2025-11-25"}


@pytest.fixture(params=["stdio", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=list(ERAS))
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def connect(transport: str, era: str, request: pytest.FixtureRequest) -> Connect:
    """Connects the official client to the server with a tool for everything."""
    script = [str(HERE / "peer_server.py"), "stdio"]
    child = StdioServerParameters(command=sys.executable, args=script, env=child_environment())
    target = request.getfixturevalue("peer_url") if transport == "http" else child

    @asynccontextmanager
    async def connect(**options: object) -> AsyncIterator[Client]:
        with trio.fail_after(LIMIT):
            async with Client(target, mode="legacy" if era == "legacy" else "auto", **options) as client:
                assert client.protocol_version == ERAS[era]
                yield client

    return connect


def only_text(result: wire.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, wire.TextContent)
    return block.text


# who the server is, and what it lists


async def test_the_server_says_who_it_is_and_what_it_offers(connect: Connect) -> None:
    async with connect() as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("peer", "1.2.3")
        assert client.server_info.title == "The peer"
        assert client.instructions == "Call anything."
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.logging is not None
        if client.protocol_version == ERAS["legacy"]:
            await client.send_ping()


async def test_every_tool_is_listed_with_its_schemas(connect: Connect) -> None:
    async with connect() as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"text", "number", "plan_trip", "hold"} <= set(listed)
    assert listed["number"].description == "Add two numbers."
    assert listed["number"].input_schema["required"] == ["a"]
    assert listed["number"].output_schema["properties"]["result"]["type"] == "integer"
    assert "ctx" not in listed["count"].input_schema["properties"]


# what tools return


async def test_what_a_tool_returns_comes_back_whole(connect: Connect) -> None:
    said = 'line one\nline two\r\n\u2028 "quoted" \\ 🛫 \x7f data: x\n\n'
    async with connect() as client:
        assert only_text(await client.call_tool("text", {"value": said})) == said
        number, place = await client.call_tool("number", {"a": 2, "b": 3}), await client.call_tool("place")
        [image] = (await client.call_tool("picture")).content
        [link] = (await client.call_tool("link")).content
        text, _, embedded = (await client.call_tool("several")).content
        result = await client.call_tool("whole")
        assert (await client.call_tool("nothing")).content == []
    assert (number.structured_content, json.loads(only_text(number))) == ({"result": 5}, {"result": 5})
    assert place.structured_content == {"name": "Žižkov ⛰", "height": 263.5, "tags": ["hill"]}
    assert isinstance(image, wire.ImageContent)
    assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", base64.b64decode(PIXEL))
    assert isinstance(link, wire.ResourceLink)
    assert (str(link.uri), link.name, link.mime_type, link.size) == ("file:///notes.txt", "notes", "text/plain", 12)
    assert isinstance(text, wire.TextContent)
    assert isinstance(embedded, wire.EmbeddedResource)
    assert isinstance(embedded.resource, wire.TextResourceContents)
    assert embedded.resource.text == "inside"
    assert (result.structured_content, (result.meta or {})["example.com/k"]) == ({"seen": True}, 1)


# what goes wrong


async def test_what_goes_wrong_is_a_result_or_a_protocol_error_and_the_next_call_is_served(connect: Connect) -> None:
    async with connect() as client:
        refused = await client.call_tool("refuse", {"why": "no seat is left"})
        assert (refused.is_error, only_text(refused)) == (True, "no seat is left")
        crashed = await client.call_tool("crash")
        assert (crashed.is_error, "hunter2" in only_text(crashed)) == (True, False)
        for arguments, named in (({}, "a: "), ({"a": "many"}, "a: "), ({"a": 1, "c": 2}, "c: ")):
            wrong = await client.call_tool("number", arguments)
            assert (wrong.is_error, named in only_text(wrong)) == (True, True)
        with pytest.raises(MCPError, match="nowhere") as unknown:
            await client.call_tool("nowhere")
        with pytest.raises(MCPError) as missing:
            await client.list_prompts()
        assert (unknown.value.code, missing.value.code) == (wire.INVALID_PARAMS, wire.METHOD_NOT_FOUND)
        assert only_text(await client.call_tool("text", {"value": "still here"})) == "still here"


# what tools ask


def answering(*answers: wire.ElicitResult) -> SimpleNamespace:
    """A user who gives these answers, one after the other."""
    user = SimpleNamespace(asked=[])
    left = list(answers)

    async def answer(_context: object, params: wire.ElicitRequestFormParams) -> wire.ElicitResult:
        user.asked.append(params)
        return left.pop(0)

    user.answer = answer
    return user


def accepting(**content: object) -> wire.ElicitResult:
    return wire.ElicitResult(action="accept", content=content)


async def test_a_form_with_every_kind_of_field_is_asked_and_answered(connect: Connect) -> None:
    user = answering(
        accepting(traveller="Ada", nights=3, budget=99.5, breakfast=False, seat="window", extras=["wifi", "bag"])
    )
    async with connect(elicitation_callback=user.answer) as client:
        result = await client.call_tool("plan_trip")
    assert only_text(result) == "Ada 3 99.5 False window wifi,bag"
    [asked] = user.asked
    assert asked.message == "Where to?"
    assert asked.requested_schema["required"] == ["traveller", "nights"]
    assert asked.requested_schema["properties"]["nights"]["maximum"] == 30
    assert asked.requested_schema["properties"]["seat"]["enum"] == ["aisle", "window"]
    assert asked.requested_schema["properties"]["extras"]["items"]["enum"] == ["wifi", "meal", "bag"]


@http_only
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_may_say_no_or_look_away(connect: Connect, action: str) -> None:
    user = answering(wire.ElicitResult(action=action))
    async with connect(elicitation_callback=user.answer) as client:
        assert only_text(await client.call_tool("plan_trip")) == action


async def test_an_answer_that_breaks_the_form_is_asked_for_again(connect: Connect) -> None:
    user = answering(accepting(traveller="Ada", nights=99), accepting(traveller="Ada", nights=9))
    async with connect(elicitation_callback=user.answer) as client:
        assert only_text(await client.call_tool("plan_trip")).startswith("Ada 9 ")
    assert len(user.asked) == 2
    assert "nights" in user.asked[1].message


async def test_questions_of_branches_are_all_answered(connect: Connect) -> None:
    user = answering(accepting(value=1), accepting(value=20), accepting(value=300))
    async with connect(elicitation_callback=user.answer) as client:
        assert (await client.call_tool("add_up")).structured_content == {"result": 321}


async def test_the_clients_model_is_asked(connect: Connect) -> None:
    asked: list[wire.CreateMessageRequestParams] = []

    async def sample(_context: object, params: wire.CreateMessageRequestParams) -> wire.CreateMessageResult:
        asked.append(params)
        return wire.CreateMessageResult(
            role="assistant",
            content=wire.TextContent(type="text", text="So be it."),
            model="m-1",
            stop_reason="endTurn",
        )

    async with connect(sampling_callback=sample) as client:
        assert only_text(await client.call_tool("think", {"about": "rain"})) == "m-1: So be it."
    [params] = asked
    assert (params.max_tokens, params.system_prompt) == (50, "Be brief.")
    assert params.messages[0].content.text == "Think about rain."


async def test_the_clients_folders_are_asked_for(connect: Connect) -> None:
    async def roots(_context: object) -> wire.ListRootsResult:
        return wire.ListRootsResult(roots=[wire.Root(uri="file:///home/ada", name="home")])

    async with connect(list_roots_callback=roots) as client:
        result = await client.call_tool("folders")
    assert result.structured_content == {"result": ["home=file:///home/ada"]}


async def test_a_client_that_cannot_be_asked_is_told_which_capability_is_missing(connect: Connect, era: str) -> None:
    async with connect() as client:
        with pytest.raises(MCPError, match="elicitation") as caught:
            await client.call_tool("plan_trip")
    assert caught.value.code == (wire.MISSING_REQUIRED_CLIENT_CAPABILITY if era == "modern" else wire.INVALID_REQUEST)
    assert caught.value.error.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_a_client_that_fails_to_answer_does_not_hang_the_call(connect: Connect, era: str) -> None:
    async def refuse(_context: object, _params: object) -> wire.ErrorData:
        return wire.ErrorData(code=-32099, message="the user is asleep")

    async with connect(elicitation_callback=refuse) as client:
        if era == "modern":  # the client gives up by itself and owes the server nothing
            with pytest.raises(MCPError, match="asleep"):
                await client.call_tool("plan_trip")
        else:
            assert (await client.call_tool("plan_trip")).is_error
        assert only_text(await client.call_tool("text", {"value": "on we go"})) == "on we go"


# what tools tell


async def test_every_progress_report_arrives_in_order(connect: Connect) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async with connect() as client:
        assert only_text(await client.call_tool("count", {"n": 5}, progress_callback=on_progress)) == "counted"
        await until(lambda: len(seen) == 5)
    assert seen == [(n, 5, f"step {n}") for n in range(1, 6)]


async def test_log_messages_arrive_from_the_level_on_that_was_asked_for(connect: Connect, era: str) -> None:
    seen: list[tuple[str, object, str | None]] = []

    async def on_log(params: wire.LoggingMessageNotificationParams) -> None:
        seen.append((params.level, params.data, params.logger))

    async with connect(logging_callback=on_log, log_level="warning") as client:
        if era == "legacy":
            await client.set_logging_level("warning")
        assert only_text(await client.call_tool("talk")) == "talked"
        await until(lambda: len(seen) == 2)
    assert seen == [("warning", {"said": "aloud"}, "peer"), ("error", "shout", None)]


async def until(condition: Callable[[], bool]) -> None:
    """The SDK starts its callbacks in tasks of their own: let them run."""
    with trio.fail_after(LIMIT):
        while not condition():
            await trio.lowlevel.checkpoint()


# how calls end


async def reason_of_the_end(client: Client) -> str:
    """Why the tool that was held has ended: it says so in its `finally`."""
    return only_text(await client.call_tool("ended"))


async def test_a_cancelled_scope_reaches_the_finally_of_the_tool(connect: Connect, transport: str, era: str) -> None:
    async with connect() as client:
        async with trio.open_nursery() as nursery:

            async def cancel(*_report: object) -> None:
                nursery.cancel_scope.cancel()

            nursery.start_soon(lambda: client.call_tool("hold", progress_callback=cancel))
        # a modern call over HTTP is cancelled by ending its response, and by nothing else
        expected = "disconnect" if (transport, era) == ("http", "modern") else "client"
        assert await reason_of_the_end(client) == expected


async def test_a_read_timeout_reaches_the_finally_of_the_tool(connect: Connect, transport: str, era: str) -> None:
    async with connect() as client:
        with pytest.raises(MCPError, match=r"(?i)timed out"):
            await client.call_tool("hold", read_timeout_seconds=0.5)
        expected = "disconnect" if (transport, era) == ("http", "modern") else "client"
        assert await reason_of_the_end(client) == expected


async def test_a_cancel_while_the_user_thinks_withdraws_the_question(connect: Connect, era: str) -> None:
    if era == "modern":
        pytest.skip("nothing is open while a modern user thinks: there is nothing to cancel")
    withdrawn = trio.Event()

    async with connect(elicitation_callback=lambda *_: thinking(nursery, withdrawn)) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "ask_for_ever")
        assert await reason_of_the_end(client) == "client"
        await withdrawn.wait()


async def thinking(caller: trio.Nursery, withdrawn: trio.Event) -> wire.ElicitResult:
    """A user whose call is cancelled before there is an answer."""
    caller.cancel_scope.cancel()
    try:
        await trio.sleep_forever()
    finally:
        withdrawn.set()
    raise AssertionError


@http_only
async def test_many_calls_run_side_by_side(connect: Connect) -> None:
    answers: dict[int, object] = {}

    async def call(client: Client, a: int) -> None:
        answers[a] = (await client.call_tool("number", {"a": a, "b": a})).structured_content

    async with connect() as client, trio.open_nursery() as nursery:
        for a in range(20):
            nursery.start_soon(call, client, a)
    assert answers == {a: {"result": 2 * a} for a in range(20)}
