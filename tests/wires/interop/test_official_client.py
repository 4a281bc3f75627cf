"""The official Python SDK's client (`mcp`) against our server: every revision over every transport that carries it.

It runs on Trio, through anyio, in the process of the tests; the server is always another process.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import mcp_types as wire
import pytest
import trio
from mcp import Client
from mcp.shared.exceptions import MCPError
from official import QUIET, User, accepting, client_of, only_text
from peer_server import PIXEL
from processes import FIRST_WITH_FORMS, NEWEST, PEERS, Target
from wire_terms import MODERN, NEWEST_LEGACY

LIMIT = 20.0
"""Seconds that anything here may take."""

pytestmark = QUIET

every_peer = pytest.mark.parametrize(("revision", "transport"), PEERS)
newest = pytest.mark.parametrize(("revision", "transport"), NEWEST)
OLDEST_OVER_SSE = ("2024-11-05", "sse")


Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def connect(revision: str, transport: str, target: Target, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Connects the official client to the server with a tool for everything."""
    # The client has no option for the legacy revision that it proposes.
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", min(revision, NEWEST_LEGACY))

    @asynccontextmanager
    async def connect(**options: object) -> AsyncIterator[Client]:
        mode = "auto" if revision == MODERN else "legacy"
        with trio.fail_after(LIMIT):
            async with client_of(target("peer_server.py", transport), mode, **options) as client:
                assert client.protocol_version == revision
                yield client

    return connect


# what every revision can do


@every_peer
async def test_what_the_server_says_lists_and_returns_arrives_whole(connect: Connect, revision: str) -> None:
    said = 'line one\nline two\r\n\u2028 "quoted" \\ 🛫 \x7f data: x\n\n'
    structured = revision >= FIRST_WITH_FORMS
    async with connect() as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("peer", "1.2.3")
        assert client.server_info.title == ("The peer" if structured else None)
        assert client.instructions == "Call anything."
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.logging is not None
        if revision != MODERN:
            await client.send_ping()
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"text", "number", "plan_trip", "hold"} <= set(listed)
        assert (listed["number"].description, listed["number"].input_schema["required"]) == ("Add two numbers.", ["a"])
        assert (listed["number"].output_schema is not None) == structured
        assert "ctx" not in listed["count"].input_schema["properties"]
        assert only_text(await client.call_tool("text", {"value": said})) == said
        number, place = await client.call_tool("number", {"a": 2, "b": 3}), await client.call_tool("place")
        [image] = (await client.call_tool("picture")).content
        [link] = (await client.call_tool("link")).content
        text, _, embedded = (await client.call_tool("several")).content
        whole = await client.call_tool("whole")
        assert (await client.call_tool("nothing")).content == []
    assert only_text(number) == "5"
    assert number.structured_content == ({"result": 5} if structured else None)
    assert json.loads(only_text(place)) == {"name": "Žižkov ⛰", "height": 263.5, "tags": ["hill"]}
    assert isinstance(image, wire.ImageContent)
    assert (image.mime_type, base64.b64decode(image.data)) == ("image/png", base64.b64decode(PIXEL))
    if structured:
        assert isinstance(link, wire.ResourceLink)
        assert (str(link.uri), link.name, link.mime_type, link.size) == ("file:///notes.txt", "notes", "text/plain", 12)
    else:
        assert link.type == "text"
    assert isinstance(text, wire.TextContent)
    assert isinstance(embedded, wire.EmbeddedResource)
    assert isinstance(embedded.resource, wire.TextResourceContents)
    assert embedded.resource.text == "inside"
    assert whole.structured_content == ({"seen": True} if structured else None)
    assert (whole.meta or {})["example.com/k"] == 1


@every_peer
async def test_what_goes_wrong_is_a_result_or_a_protocol_error_and_the_next_call_is_served(connect: Connect) -> None:
    async with connect() as client:
        for tool, arguments, named in (
            ("refuse", {"why": "no seat is left"}, "no seat is left"),
            ("crash", {}, "internal error"),
            ("number", {}, "a: "),
            ("number", {"a": "many"}, "a: "),
            ("number", {"a": 1, "c": 2}, "c: "),
        ):
            wrong = await client.call_tool(tool, arguments)
            assert (wrong.is_error, named in only_text(wrong), "hunter2" in only_text(wrong)) == (True, True, False)
        with pytest.raises(MCPError, match="nowhere") as unknown:
            await client.call_tool("nowhere")
        with pytest.raises(MCPError) as missing:
            await client.list_prompts()
        assert (unknown.value.code, missing.value.code) == (wire.INVALID_PARAMS, wire.METHOD_NOT_FOUND)
        assert only_text(await client.call_tool("text", {"value": "still here"})) == "still here"


@every_peer
async def test_what_a_tool_asks_and_tells_arrives(connect: Connect, revision: str) -> None:
    user = User()
    async with connect(
        elicitation_callback=user.elicit,
        sampling_callback=user.sample,
        list_roots_callback=user.roots,
        logging_callback=user.log,
        log_level="warning",
    ) as client:
        if revision != MODERN:
            await client.set_logging_level("warning")
        assert only_text(await client.call_tool("think", {"about": "rain"})) == "m-1: So be it."
        assert "home=file:///home/ada" in only_text(await client.call_tool("folders"))
        assert only_text(await client.call_tool("count", {"n": 5}, progress_callback=user.report)) == "counted"
        assert only_text(await client.call_tool("talk")) == "talked"
        summed = await client.call_tool("add_up")
        while len(user.reports) < 5 or len(user.logs) < 2:  # the SDK starts each callback in a new task
            await trio.lowlevel.checkpoint()
    [prompt] = user.prompts
    assert (prompt.max_tokens, prompt.system_prompt) == (50, "Be brief.")
    assert prompt.messages[0].content.text == "Think about rain."
    assert user.reports == [(n, 5, f"step {n}" if revision > "2024-11-05" else None) for n in range(1, 6)]
    assert user.logs == [("warning", {"said": "aloud"}, "peer"), ("error", "shout", None)]
    if revision >= FIRST_WITH_FORMS:
        assert summed.structured_content == {"result": 21}
    else:
        assert summed.is_error


class ToolModel:
    """Calls the tool that it is offered twice, reads the results, and gives data: first an invalid number, then their sum."""

    def __init__(self) -> None:
        self.prompts: list[wire.CreateMessageRequestParams] = []

    async def __call__(
        self, _context: object, params: wire.CreateMessageRequestParams
    ) -> wire.CreateMessageResultWithTools:
        self.prompts.append(params)
        step = len(self.prompts)
        if step == 1:
            return uses(("a", "height", {"of": "hut"}), ("b", "height", {"of": "tower"}))
        if step == 2:
            return wire.CreateMessageResultWithTools(
                role="assistant", content=[wire.TextContent(type="text", text="The tower.")], model="m"
            )
        return uses(("c", "__schema__", {"result": "eight" if step == 3 else 8}))


def uses(*calls: tuple[str, str, dict[str, object]]) -> wire.CreateMessageResultWithTools:
    content = [wire.ToolUseContent(type="tool_use", id=name, name=tool, input=given) for name, tool, given in calls]
    return wire.CreateMessageResultWithTools(role="assistant", content=content, model="m", stop_reason="toolUse")


@newest
async def test_a_model_calls_tools_reads_their_results_and_gives_data(connect: Connect) -> None:
    model = ToolModel()
    capabilities = wire.SamplingCapability(tools=wire.SamplingToolsCapability())
    async with connect(sampling_callback=model, sampling_capabilities=capabilities) as client:
        assert only_text(await client.call_tool("measure")) == "8 after 6 messages"
    first, second, third, fourth = model.prompts
    assert [tool.name for tool in first.tools] == ["height"]
    assert (first.tool_choice.mode, second.tool_choice, third.tool_choice.mode) == ("required", None, "required")
    assert [(block.tool_use_id, block.content[0].text) for block in second.messages[2].content] == [
        ("a", "hut: 3 m"),
        ("b", "tower: 5 m"),
    ]
    assert "result" in fourth.messages[-1].content[1].text


@pytest.mark.parametrize(
    ("revision", "transport"), [(NEWEST_LEGACY, "stdio"), (NEWEST_LEGACY, "http"), OLDEST_OVER_SSE]
)
async def test_a_handshake_that_is_sent_again_gets_the_first_answer(connect: Connect, revision: str) -> None:
    """As gateways do; this client itself sends one only."""
    async with connect() as client:
        session = client.session
        params = wire.InitializeRequestParams(
            protocol_version=revision,
            capabilities=session._build_capabilities(revision),  # noqa: SLF001  equal to what it has sent
            client_info=session._client_info,  # noqa: SLF001
        )
        again = await session.send_request(wire.InitializeRequest(params=params), wire.InitializeResult)
        assert again == session.initialize_result
        other = params.model_copy(update={"protocol_version": "1999-01-01"})
        with pytest.raises(MCPError, match="initialized already"):
            await session.send_request(wire.InitializeRequest(params=other), wire.InitializeResult)
        assert only_text(await client.call_tool("text", {"value": "still here"})) == "still here"


# what tools ask


@newest
@pytest.mark.parametrize(
    ("answers", "returned"),
    [
        (
            [accepting(traveller="Ada", nights=3, budget=99.5, breakfast=False, seat="window", extras=["wifi", "bag"])],
            "Ada 3 99.5 False window wifi,bag",
        ),
        ([accepting(traveller="Ada", nights=99), accepting(traveller="Ada", nights=9)], "Ada 9 100.5 True aisle "),
        ([wire.ElicitResult(action="decline")], "decline"),
        ([wire.ElicitResult(action="cancel")], "cancel"),
    ],
    ids=["accepted", "corrected", "declined", "dismissed"],
)
async def test_a_form_with_every_kind_of_field_is_asked_and_answered(
    connect: Connect, answers: list[wire.ElicitResult], returned: str
) -> None:
    user = User(*answers)
    async with connect(elicitation_callback=user.elicit) as client:
        assert only_text(await client.call_tool("plan_trip")) == returned
    assert len(user.asked) == len(answers)
    assert user.asked[0].message == "Where to?"
    assert "nights" in user.asked[-1].message or len(answers) == 1
    schema = user.asked[0].requested_schema
    assert schema["required"] == ["traveller", "nights"]
    assert schema["properties"]["nights"]["maximum"] == 30
    assert schema["properties"]["seat"]["enum"] == ["aisle", "window"]
    assert schema["properties"]["extras"]["items"]["enum"] == ["wifi", "meal", "bag"]


@newest
async def test_the_error_of_a_client_that_cannot_be_asked_names_the_missing_capability(
    connect: Connect, revision: str
) -> None:
    missing = {"elicitation": {"form": {}}}
    async with connect() as client:
        if revision == MODERN:
            with pytest.raises(MCPError, match="elicitation") as caught:
                await client.call_tool("plan_trip")
            assert caught.value.code == wire.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert caught.value.error.data == {"requiredCapabilities": missing}
        else:
            result = await client.call_tool("plan_trip")
            assert (result.is_error, "elicitation" in only_text(result)) == (True, True)
            assert (result.meta or {})["trio-mcp/requiredCapabilities"] == missing


@newest
async def test_a_client_that_fails_to_answer_does_not_hang_the_call(connect: Connect, revision: str) -> None:
    async def refuse(_context: object, _params: object) -> wire.ErrorData:
        return wire.ErrorData(code=-32099, message="the user is asleep")

    async with connect(elicitation_callback=refuse) as client:
        if revision == MODERN:  # the client gives up by itself and owes the server nothing
            with pytest.raises(MCPError, match="asleep"):
                await client.call_tool("plan_trip")
        else:
            result = await client.call_tool("plan_trip")
            assert (result.is_error, "the user is asleep" in only_text(result)) == (True, True)
        assert only_text(await client.call_tool("text", {"value": "on we go"})) == "on we go"


# how calls end


@newest
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_call_that_its_client_gives_up_reaches_the_finally_of_the_tool(
    connect: Connect, revision: str, transport: str, how: str
) -> None:
    async with connect() as client:
        if how == "timed out":
            with pytest.raises(MCPError, match=r"(?i)timed out"):
                await client.call_tool("hold", read_timeout_seconds=0.5)
        else:
            with trio.CancelScope() as scope:

                async def cancel(*_report: object) -> None:
                    scope.cancel()

                await client.call_tool("hold", progress_callback=cancel)
        # a modern call over HTTP is cancelled by ending its response, and by nothing else
        expected = "disconnect" if (transport, revision) == ("http", MODERN) else "client"
        assert only_text(await client.call_tool("ended")) == expected


@pytest.mark.parametrize(("revision", "transport"), [(NEWEST_LEGACY, "stdio"), (NEWEST_LEGACY, "http")])
async def test_a_cancel_while_the_user_thinks_withdraws_the_question(connect: Connect) -> None:
    """Nothing is open while a modern user thinks, so that there is nothing to cancel."""
    withdrawn = trio.Event()

    async def think(*_question: object) -> wire.ElicitResult:
        scope.cancel()
        try:
            await trio.sleep_forever()
        finally:
            withdrawn.set()
        raise AssertionError

    async with connect(elicitation_callback=think) as client:
        with trio.CancelScope() as scope:
            await client.call_tool("ask_for_ever")
        assert only_text(await client.call_tool("ended")) == "client"
        await withdrawn.wait()
