"""The official Python SDK's client 2.x and our tasks: it has their types, but no methods, and refuses a task as an answer.

So it must be able to call every tool that need not be a task, in both eras.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from processes import MODERN, NEWEST_LEGACY, Target
from serving import IMPORTS

mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")

import mcp_types as wire  # noqa: E402
from mcp import Client, StdioServerParameters  # noqa: E402

LIMIT = 20.0

pytestmark = [
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
    pytest.mark.parametrize("transport", ["stdio", "http"]),
]


def connected(target: str | list[str], mode: str, **options: Any) -> Client:
    server = (
        target if isinstance(target, str) else StdioServerParameters(command=target[0], args=target[1:], env=IMPORTS)
    )
    return Client(server, mode=mode, **options)


async def accepting(_context: object, _params: object) -> wire.ElicitResult:
    return wire.ElicitResult(action="accept", content={"value": 7})


async def test_its_legacy_client_sees_tools_that_may_be_tasks_and_calls_them_as_ever(
    target: Target, transport: str
) -> None:
    with trio.fail_after(LIMIT):
        server = target("task_server.py", transport)
        async with connected(server, "legacy", elicitation_callback=accepting) as client:
            assert client.protocol_version == NEWEST_LEGACY
            tasks = client.server_capabilities.tasks
            assert tasks is not None
            assert tasks.requests is not None
            assert tasks.requests.tools is not None
            assert tasks.requests.tools.call is not None
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert listed["report"].execution is not None
            assert listed["report"].execution.task_support == "optional"
            [text] = (await client.call_tool("report", {"year": 1})).content
            assert (text.type, text.text) == ("text", "1: 7")


async def test_its_modern_client_that_declares_no_tasks_calls_as_ever(target: Target, transport: str) -> None:
    with trio.fail_after(LIMIT):
        server = target("task_server.py", transport)
        async with connected(server, "auto", elicitation_callback=accepting) as client:
            assert client.protocol_version == MODERN
            [text] = (await client.call_tool("report", {"year": 3})).content
            assert (text.type, text.text) == ("text", "3: 7")
