"""The official Python SDK's client (`mcp`), with a user: what the tests of this folder have of it."""

from __future__ import annotations

import pytest
from serving import IMPORTS

mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")

import mcp_types as wire  # noqa: E402
from mcp import Client, StdioServerParameters  # noqa: E402
from mcp.client.sse import sse_client  # noqa: E402

QUIET = [
    # the SDK calls logging deprecated, and warns on every use
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    # it leaves the iterators of its event streams to the garbage collector
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]
"""The marks of tests that use it."""


class User:
    """Answers forms in the given order, and then with 7; has a model and a folder, and keeps the requests and notifications."""

    def __init__(self, *answers: wire.ElicitResult) -> None:
        self.asked: list[wire.ElicitRequestFormParams] = []
        self.prompts: list[wire.CreateMessageRequestParams] = []
        self.logs: list[tuple[str, object, str | None]] = []
        self.reports: list[tuple[float, float | None, str | None]] = []
        self._answers = list(answers)

    async def elicit(self, _context: object, params: wire.ElicitRequestFormParams) -> wire.ElicitResult:
        self.asked.append(params)
        return self._answers.pop(0) if self._answers else accepting(value=7)

    async def sample(self, _context: object, params: wire.CreateMessageRequestParams) -> wire.CreateMessageResult:
        self.prompts.append(params)
        content = wire.TextContent(type="text", text="So be it.")
        return wire.CreateMessageResult(role="assistant", content=content, model="m-1", stop_reason="endTurn")

    async def roots(self, _context: object) -> wire.ListRootsResult:
        return wire.ListRootsResult(roots=[wire.Root(uri="file:///home/ada", name="home")])

    async def log(self, params: wire.LoggingMessageNotificationParams) -> None:
        self.logs.append((params.level, params.data, params.logger))

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.reports.append((progress, total, message))


def accepting(**content: object) -> wire.ElicitResult:
    return wire.ElicitResult(action="accept", content=content)


def client_of(target: str | list[str], mode: str, **options: object) -> Client:
    """Return a client of a command or a URL, which is that of HTTP+SSE if it ends so."""
    if isinstance(target, list):
        return Client(StdioServerParameters(command=target[0], args=target[1:], env=IMPORTS), mode=mode, **options)
    return Client(sse_client(target) if target.endswith("/sse") else target, mode=mode, **options)


def only_text(result: wire.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, wire.TextContent)
    return block.text
