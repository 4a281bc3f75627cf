"""Our client against a server on the official Python SDK (`mcp`): every revision over every transport that carries it."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import trio
from processes import FIRST_WITH_FORMS, NEWEST, PEERS, Target
from serving import IMPORTS
from users import User
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Client, PeerError, RequestTimeout, accept, decline, dismiss
from trio_mcp.client import Change
from trio_mcp.types import (
    BlobResourceContents,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    ImageContent,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
    Root,
    TextContent,
)

pytest.importorskip("mcp", reason="the official SDK is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the official SDK over HTTP, is not installed")

LIMIT = 20.0
"""Seconds that anything here may take."""

Connect = Callable[..., AbstractAsyncContextManager[Client]]

every_peer = pytest.mark.parametrize(("revision", "transport"), PEERS)
newest = pytest.mark.parametrize(("revision", "transport"), NEWEST)
over_legacy_http = pytest.mark.parametrize(("revision", "transport"), [(NEWEST_LEGACY, "http")])


@pytest.fixture
def connect(revision: str, transport: str, target: Target) -> Connect:
    """Connects our client; it finds out which of the newest two the server has, and that a URL is one of HTTP+SSE."""
    reached = target("official_server.py", transport)
    mode = {MODERN: "auto", NEWEST_LEGACY: "legacy"}.get(revision, revision)
    options = {"env": IMPORTS} if isinstance(reached, list) else {}

    @asynccontextmanager
    async def connect(**more: object) -> AsyncIterator[Client]:
        with trio.fail_after(LIMIT):
            async with Client.connect(reached, mode=mode, **options, **more) as client:
                assert client.protocol_version == revision
                yield client

    return connect


# what every revision can do


@every_peer
async def test_what_the_server_says_lists_returns_and_refuses_arrives_whole(connect: Connect) -> None:
    """This server sends structures in every revision, and a result where the specification wants a protocol error."""
    said = 'line one\nline two\r\n\u2028 "quoted" \\ 🛫 \x7f data: x\n\n'
    async with connect() as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("official", "9.8")
        assert client.instructions == "Ask away."
        assert client.server_capabilities.tools is not None
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


@pytest.mark.parametrize(
    ("revision", "transport"), [*NEWEST, *((FIRST_WITH_FORMS, transport) for transport in ("stdio", "http"))]
)
async def test_resources_and_prompts_are_listed_read_rendered_and_completed(connect: Connect) -> None:
    async with connect() as client:
        assert {resource.uri for resource in await client.list_resources()} == {"config://app", "blob://logo"}
        assert [each.uri_template async for each in client.iter_resource_templates()] == ["users://{user_id}/profile"]
        [prompt] = await client.list_prompts()
        assert (prompt.name, [argument.name for argument in prompt.arguments or []]) == ("review", ["code", "language"])
        [profile] = (await client.read_resource("users://ada/profile")).contents
        assert (profile.uri, getattr(profile, "text", None)) == ("users://ada/profile", "profile of ada")
        [logo] = (await client.read_resource("blob://logo")).contents
        assert isinstance(logo, BlobResourceContents)
        rendered = await client.get_prompt("review", {"code": "1 + 1"})
        assert rendered.messages[0].content == TextContent(text="Review this python: 1 + 1")
        with pytest.raises(PeerError):
            await client.get_prompt("nothing")
        with pytest.raises(PeerError):
            await client.read_resource("config://nothing")
        found = await client.complete(PromptReference(name="review"), "language", "py", context={"code": "!"})
        assert found.values == ["python!", "pyret!"]
        template = ResourceTemplateReference(uri="users://{user_id}/profile")
        assert (await client.complete(template, "user_id", "")).values == ["ada", "bob"]


@every_peer
async def test_what_a_tool_asks_and_tells_arrives(connect: Connect, revision: str) -> None:
    prompts: list[CreateMessageRequestParams] = []
    reports: list[ProgressNotificationParams] = []
    logs: list[LoggingMessageNotificationParams] = []

    def sample(params: CreateMessageRequestParams) -> CreateMessageResult:
        prompts.append(params)
        # In a list, which this server takes of no answer without tools.
        content = TextContent(text="Roses are red.")
        return CreateMessageResult(role="assistant", content=[content], model="a poet", stop_reason="endTurn")

    folders = [Root(uri="file:///home/ada", name="home"), Path("/srv/data")]
    async with connect(
        on_elicit=User(accept(seat="window")).answer,
        on_sample=sample,
        on_roots=lambda: folders,
        on_log=logs.append,
        log_level="info",
    ) as client:
        assert (await client.call_tool("recite")).text == "a poet: Roses are red."
        shown = (await client.call_tool("folders")).content
        assert (await client.call_tool("count", {"n": 5}, on_progress=reports.append)).text == "counted"
        assert (await client.call_tool("talk")).text == "talked"
        assert revision < FIRST_WITH_FORMS or (await client.call_tool("offer")).text == "window"
    [prompt] = prompts
    assert (prompt.max_tokens, prompt.system_prompt) == (20, "Rhyme.")
    assert prompt.messages[0].content.text == "A poem, please."
    assert [block.text for block in shown] == ["home=file:///home/ada", "data=file:///srv/data"]
    assert [(report.progress, report.total) for report in reports] == [(n, 5) for n in range(1, 6)]
    assert [(message.level, message.data, message.logger) for message in logs] == [
        ("info", "said", "official"),
        ("error", {"said": "aloud"}, None),
    ]


# what tools ask


@newest
@pytest.mark.parametrize(
    ("tool", "answers", "returned"),
    [
        ("book", [accept(seat="window", bags=2), accept(sure=True)], "window 2 True"),
        ("offer", [decline()], "decline"),
        ("offer", [dismiss()], "cancel"),
    ],
    ids=["two in turn", "declined", "dismissed"],
)
async def test_each_answer_of_the_user_reaches_the_tool(
    connect: Connect, tool: str, answers: list[ElicitResult], returned: str
) -> None:
    user = User(*answers)
    async with connect(on_elicit=user.answer) as client:
        assert (await client.call_tool(tool)).text == returned
    messages = ["Which seat?", "The window, really?"]
    assert [question.message for question in user.asked] == messages[: len(answers)]
    assert user.asked[0].requested_schema.properties["seat"].enum == ["aisle", "window"]
    assert user.asked[0].requested_schema.required == ["seat"]


@newest
async def test_a_handler_that_fails_does_not_hang_the_call(connect: Connect, revision: str) -> None:
    async def fail(_question: ElicitRequestFormParams) -> ElicitResult:
        raise LookupError("the user is asleep")

    # In the modern era the caller owns the rounds, so it sees the error of its handler.
    raised = LookupError if revision == MODERN else PeerError
    async with connect(on_elicit=fail) as client:
        with pytest.raises(raised):
            await client.call_tool("book")
        assert (await client.call_tool("echo", {"text": "on we go"})).text == "on we go"


# how calls end


@newest
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_call_that_its_client_gives_up_ends_at_the_server(connect: Connect, how: str) -> None:
    async with connect() as client:
        if how == "timed out":
            with pytest.raises(RequestTimeout, match="hold"):
                await client.call_tool("hold", timeout=0.3)
        else:
            with trio.CancelScope() as scope:
                await client.call_tool("hold", on_progress=lambda _report: scope.cancel())
            assert scope.cancelled_caught
        assert (await client.call_tool("ended")).text == "cancelled"


@newest
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


# changes, and streams and sessions that end early


@newest
async def test_changes_reach_a_client(connect: Connect, revision: str) -> None:
    heard, announced = trio.open_memory_channel[Change](10)
    on_change = {} if revision == MODERN else {"on_change": heard.send_nowait}
    async with connect(**on_change) as client:
        if revision == MODERN:
            async with client.listen(tools=True, uris=["config://app"]) as changes:
                assert changes.honoured.tools_list_changed
                assert changes.honoured.resource_subscriptions == ["config://app"]
                await client.call_tool("change")
                assert await changes.__anext__() == Change("tools")
                assert await changes.__anext__() == Change("updated", "config://app")
        await client.call_tool("change")
        assert revision == MODERN or await announced.receive() == Change("tools")


@over_legacy_http
async def test_a_response_that_ends_early_is_resumed_and_loses_nothing(connect: Connect) -> None:
    seen: list[float] = []
    async with connect() as client:
        result = await client.call_tool("nap", on_progress=lambda report: seen.append(report.progress))
        assert result.text == "rested"
        assert (await client.call_tool("nap")).text == "rested"
    assert seen == [1, 2]


@over_legacy_http
async def test_a_session_that_the_server_forgot_is_opened_again(connect: Connect, target: Target) -> None:
    async with connect() as client:
        await client.call_tool("change")
        channel = client._link.session._channel  # noqa: SLF001  to end its session behind the client's back
        before = dict(channel._connection.session)  # noqa: SLF001
        async with httpx2.AsyncClient() as http:
            deleted = await http.delete(str(target("official_server.py", "http")), headers=before)
            assert deleted.status_code == 200
        assert (await client.call_tool("change")).text == "changed"
        assert channel._connection.session["mcp-session-id"] != before["mcp-session-id"]  # noqa: SLF001
