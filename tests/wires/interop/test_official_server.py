"""Our client against a server on the official Python SDK (`mcp`): both eras, over stdio and over HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from processes import HERE, child_environment, over_stdio

from trio_mcp import Client, Disconnected, PeerError, RequestTimeout, accept, decline, dismiss
from trio_mcp.protocol.jsonrpc import MISSING_CAPABILITY
from trio_mcp.types import (
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitResult,
    ImageContent,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    ResourceLink,
    Root,
)

pytest.importorskip("mcp", reason="the official SDK is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the official SDK over HTTP, is not installed")

LIMIT = 20.0
"""Seconds that anything here may take."""

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
    """Connects our client to the official server; "auto" has to find out that it is a modern one."""
    target: str | list[str]
    options: dict[str, object] = {"mode": "legacy" if era == "legacy" else "auto"}
    if transport == "http":
        target = request.getfixturevalue("official_url")
    else:
        target = over_stdio(HERE / "official_server.py")
        options["env"] = child_environment()

    @asynccontextmanager
    async def connect(**more: object) -> AsyncIterator[Client]:
        with trio.fail_after(LIMIT):
            async with Client.connect(target, **options, **more) as client:
                assert client.protocol_version == ERAS[era]
                yield client

    return connect


# who the server is, and what it lists


async def test_the_server_is_known_once_the_client_is_open(connect: Connect) -> None:
    async with connect() as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("official", "9.8")
        assert client.instructions == "Ask away."
        assert client.server_capabilities.tools is not None


async def test_what_the_server_lists_returns_and_refuses_arrives_whole(connect: Connect) -> None:
    """For an unknown tool the specification wants a protocol error; this server answers with a result."""
    said = 'line one\nline two\r\n\u2028 "quoted" \\ 🛫 \x7f data: x\n\n'
    async with connect() as client:
        await client.ping()
        listed = {tool.name: tool for tool in await client.list_tools()}
        assert {"echo", "place", "book", "hold"} <= set(listed)
        assert listed["place"].input_schema["required"] == ["name"]
        assert listed["place"].output_schema is not None
        assert (await client.call_tool("echo", {"text": said})).text == said
        place = await client.call_tool("place", {"name": "Žižkov ⛰", "height": 263})
        assert place.structured_content == json.loads(place.text) == {"name": "Žižkov ⛰", "height": 263}
        [image] = (await client.call_tool("picture")).content
        assert isinstance(image, ImageContent)
        assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", b"\x89PNG and so on")
        [link] = (await client.call_tool("link")).content
        assert isinstance(link, ResourceLink)
        assert (link.uri, link.name, link.mime_type) == ("file:///notes.txt", "notes", "text/plain")
        for tool, arguments, named in (
            ("refuse", {"why": "no seat is left"}, "no seat is left"),
            ("place", {"height": "tall"}, "name"),
            ("nowhere", {}, "nowhere"),
        ):
            result = await client.call_tool(tool, arguments)
            assert (result.is_error, named in result.text) == (True, True)
        with pytest.raises(PeerError, match="not today") as caught:
            await client.call_tool("strike")
        assert (caught.value.code, caught.value.data) == (-32050, {"until": "noon"})


# what tools ask


class User:
    """A user who gives these answers, one after the other."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.asked: list[ElicitRequestFormParams] = []
        self._left = list(answers)

    async def answer(self, question: ElicitRequestFormParams) -> ElicitResult:
        self.asked.append(question)
        return self._left.pop(0)


async def test_questions_that_depend_on_each_other_are_answered_in_turn(connect: Connect) -> None:
    user = User(accept(seat="window", bags=2), accept(sure=True))
    async with connect(on_elicit=user.answer) as client:
        assert (await client.call_tool("book")).text == "window 2 True"
    assert [question.message for question in user.asked] == ["Which seat?", "The window, really?"]
    fields = user.asked[0].requested_schema.properties
    assert fields["seat"].enum == ["aisle", "window"]
    assert user.asked[0].requested_schema.required == ["seat"]


@pytest.mark.parametrize(("answer", "told"), [(decline(), "decline"), (dismiss(), "cancel")], ids=["no", "closed"])
async def test_a_user_may_say_no_or_look_away(connect: Connect, answer: ElicitResult, told: str) -> None:
    async with connect(on_elicit=User(answer).answer) as client:
        assert (await client.call_tool("offer")).text == told


async def test_the_clients_model_is_asked(connect: Connect) -> None:
    asked: list[CreateMessageRequestParams] = []

    def sample(params: CreateMessageRequestParams) -> str:
        asked.append(params)
        return "Roses are red."

    async with connect(on_sample=sample) as client:
        assert (await client.call_tool("recite")).text == "unnamed: Roses are red."
    assert (asked[0].max_tokens, asked[0].system_prompt) == (20, "Rhyme.")
    [message] = asked[0].messages
    assert message.content.text == "A poem, please."


async def test_the_clients_folders_are_asked_for(connect: Connect) -> None:
    folders = [Root(uri="file:///home/ada", name="home"), Path("/srv/data")]
    async with connect(on_roots=lambda: folders) as client:
        result = await client.call_tool("folders")
    assert result.structured_content == {"result": ["home=file:///home/ada", "data=file:///srv/data"]}


@http_only
async def test_a_question_that_was_not_declared_is_refused_by_the_server(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(PeerError, match="elicitation") as caught:
            await client.call_tool("book")
    assert caught.value.code == MISSING_CAPABILITY


async def test_a_handler_that_fails_does_not_hang_the_call(connect: Connect, era: str) -> None:
    async def fail(_question: ElicitRequestFormParams) -> ElicitResult:
        raise LookupError("the user is asleep")

    async with connect(on_elicit=fail) as client:
        if era == "modern":  # the caller owns the rounds, so it sees its own handler's error
            with pytest.raises(LookupError, match="asleep"):
                await client.call_tool("book")
        else:
            with pytest.raises(PeerError):
                await client.call_tool("book")
        assert (await client.call_tool("echo", {"text": "on we go"})).text == "on we go"


# what tools tell


async def test_every_progress_report_arrives_in_order(connect: Connect) -> None:
    seen: list[ProgressNotificationParams] = []
    async with connect() as client:
        assert (await client.call_tool("count", {"n": 5}, on_progress=seen.append)).text == "counted"
    assert [(report.progress, report.total, report.message) for report in seen] == [
        (n, 5, f"step {n}") for n in range(1, 6)
    ]


async def test_log_messages_arrive_when_somebody_listens(connect: Connect) -> None:
    seen: list[LoggingMessageNotificationParams] = []
    async with connect(on_log=seen.append) as client:
        assert (await client.call_tool("talk")).text == "talked"
    assert [(message.level, message.data, message.logger) for message in seen] == [
        ("info", "said", "official"),
        ("error", {"said": "aloud"}, None),
    ]


# how calls end


async def test_a_cancelled_scope_reaches_the_servers_tool(connect: Connect) -> None:
    async with connect() as client:
        with trio.CancelScope() as scope:
            await client.call_tool("hold", on_progress=lambda _report: scope.cancel())
        assert scope.cancelled_caught
        assert (await client.call_tool("ended")).text == "cancelled"


async def test_a_timeout_reaches_the_servers_tool(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(RequestTimeout, match="hold"):
            await client.call_tool("hold", timeout=0.3)
        assert (await client.call_tool("ended")).text == "cancelled"


async def test_a_cancel_while_the_user_thinks_ends_the_call(connect: Connect) -> None:
    withdrawn = trio.Event()

    async def think(_question: ElicitRequestFormParams) -> ElicitResult:
        scope.cancel()
        try:
            await trio.sleep_forever()
        finally:
            withdrawn.set()
        raise AssertionError

    async with connect(on_elicit=think) as client:
        with trio.CancelScope() as scope:
            await client.call_tool("book")
        assert scope.cancelled_caught
        await withdrawn.wait()
        assert (await client.call_tool("echo", {"text": "next"})).text == "next"


@http_only
async def test_many_calls_run_side_by_side(connect: Connect) -> None:
    answers: dict[int, str] = {}

    async def call(client: Client, number: int) -> None:
        answers[number] = (await client.call_tool("echo", {"text": str(number)})).text

    async with connect() as client, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(call, client, number)
    assert answers == {number: str(number) for number in range(20)}


async def test_a_server_that_dies_ends_the_call(connect: Connect, transport: str) -> None:
    if transport == "http":
        pytest.skip("the HTTP server is shared by the tests of this folder")
    async with connect() as client:
        with pytest.raises(Disconnected):
            await client.call_tool("leave")
