"""The official Python SDK (`mcp`) in each older revision: its client and our server, its server and our client."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from processes import HERE, child_environment, over_stdio

mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")
pytest.importorskip("uvicorn", reason="uvicorn, which serves the official SDK over HTTP, is not installed")

import mcp_types as wire  # noqa: E402
from mcp import Client as OfficialClient  # noqa: E402
from mcp import StdioServerParameters  # noqa: E402
from mcp.client.sse import sse_client  # noqa: E402

from trio_mcp import Client, accept  # noqa: E402
from trio_mcp.types import LoggingMessageNotificationParams, ProgressNotificationParams, Root  # noqa: E402

LIMIT = 20.0
OLDER = ["2024-11-05", "2025-03-26", "2025-06-18"]
FIRST_WITH_FORMS = "2025-06-18"
"""And with structured results."""

pytestmark = [
    # the SDK calls logging deprecated, and says so on every use
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    # it leaves the iterators of its event streams to the garbage collector
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]


@pytest.fixture(params=OLDER)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["stdio", "http", "sse"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


# its client, our server


class User:
    """Answers whatever the server asks, as the official client wants it."""

    def __init__(self) -> None:
        self.logs: list[str] = []

    async def elicit(self, _context: object, params: wire.ElicitRequestParams) -> wire.ElicitResult:
        assert isinstance(params, wire.ElicitRequestFormParams)
        return wire.ElicitResult(action="accept", content={"value": 7})

    async def sample(self, _context: object, _params: object) -> wire.CreateMessageResult:
        content = wire.TextContent(type="text", text="So be it.")
        return wire.CreateMessageResult(role="assistant", content=content, model="m-1")

    async def roots(self, _context: object) -> wire.ListRootsResult:
        return wire.ListRootsResult(roots=[wire.Root(uri="file:///home/ada", name="home")])

    async def log(self, params: wire.LoggingMessageNotificationParams) -> None:
        self.logs.append(params.level)


@asynccontextmanager
async def official(
    version: str, transport: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, user: User
) -> AsyncIterator[OfficialClient]:
    """The official client, made to propose an older revision: it has no option for that."""
    monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", version)
    script = [str(HERE / "peer_server.py"), "stdio"]
    child = StdioServerParameters(command=sys.executable, args=script, env=child_environment())
    match transport:
        case "http":
            target = request.getfixturevalue("peer_url")
        case "sse":
            target = sse_client(request.getfixturevalue("peer_sse_url"))
        case _:
            target = child
    with trio.fail_after(LIMIT):
        async with OfficialClient(
            target,
            mode="legacy",
            elicitation_callback=user.elicit,
            sampling_callback=user.sample,
            list_roots_callback=user.roots,
            logging_callback=user.log,
        ) as client:
            assert client.protocol_version == version
            yield client


def only_text(result: wire.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, wire.TextContent)
    return block.text


async def test_the_official_client_is_served_in_an_older_revision(
    version: str, transport: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = User()
    async with official(version, transport, request, monkeypatch, user) as client:
        await client.send_ping()
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert (listed["number"].output_schema is not None) == (version >= FIRST_WITH_FORMS)
        number = await client.call_tool("number", {"a": 2, "b": 3})
        assert number.structured_content == ({"result": 5} if version >= FIRST_WITH_FORMS else None)
        assert json.loads(only_text(number)) == {"result": 5}
        [link] = (await client.call_tool("link")).content
        assert link.type == ("resource_link" if version >= FIRST_WITH_FORMS else "text")
        assert (await client.call_tool("refuse", {"why": "full"})).is_error


async def test_the_official_client_is_asked_and_told_in_an_older_revision(
    version: str, transport: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = User()
    reports: list[tuple[float, str | None]] = []

    async def report(progress: float, _total: float | None, message: str | None) -> None:
        reports.append((progress, message))

    async with official(version, transport, request, monkeypatch, user) as client:
        assert only_text(await client.call_tool("think", {"about": "rain"})) == "m-1: So be it."
        assert "file:///home/ada" in only_text(await client.call_tool("folders"))
        await client.call_tool("count", {"n": 2}, progress_callback=report)
        await client.call_tool("talk")
        summed = await client.call_tool("add_up")
        assert summed.is_error == (version < FIRST_WITH_FORMS)
        assert version < FIRST_WITH_FORMS or json.loads(only_text(summed)) == {"result": 21}
    told = ["step 1", "step 2"] if version >= "2025-03-26" else [None, None]
    assert reports == list(zip([1, 2], told, strict=True))
    assert user.logs == ["warning", "error"]


# its server, our client

URLS = {"http": "official_url", "sse": "official_sse_url"}
"""The fixtures with the URL; that the second is one of HTTP+SSE our client finds out."""


@asynccontextmanager
async def ours(
    version: str, transport: str, request: pytest.FixtureRequest, **options: object
) -> AsyncIterator[Client]:
    with trio.fail_after(LIMIT):
        if transport in URLS:
            connection = Client.connect(request.getfixturevalue(URLS[transport]), mode=version, **options)
        else:
            command = over_stdio(HERE / "official_server.py")
            connection = Client.connect(command, mode=version, env=child_environment(), **options)
        async with connection as client:
            assert client.protocol_version == version
            yield client


async def test_our_client_speaks_an_older_revision_with_the_official_server(
    version: str, transport: str, request: pytest.FixtureRequest
) -> None:
    logs: list[LoggingMessageNotificationParams] = []
    reports: list[ProgressNotificationParams] = []
    async with ours(
        version,
        transport,
        request,
        on_elicit=lambda _params: accept(seat="window", bags=1),
        on_sample=lambda _params: "A rhyme.",
        on_roots=lambda: [Root(uri="file:///home/ada", name="home")],
        on_log=logs.append,
        log_level="info",
    ) as client:
        await client.ping()
        assert {tool.name for tool in await client.list_tools()} >= {"echo", "place", "count"}
        assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"
        assert json.loads((await client.call_tool("place", {"name": "Lisbon"})).text)["name"] == "Lisbon"
        assert (await client.call_tool("recite")).text == "unnamed: A rhyme."
        assert "file:///home/ada" in (await client.call_tool("folders")).text
        await client.call_tool("count", {"n": 2}, on_progress=reports.append)
        await client.call_tool("talk")
        if version >= FIRST_WITH_FORMS:
            assert (await client.call_tool("offer")).text == "window"
    assert [report.progress for report in reports] == [1, 2]
    assert [log.level for log in logs] == ["info", "error"]
