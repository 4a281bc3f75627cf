"""The official Python SDK's client 2.x and our tasks: it has their types, but no methods, and refuses a task as an answer.

So it must be able to call every tool that need not be a task, in both eras.
"""

from __future__ import annotations

import pytest
import trio
from official import QUIET, User, client_of, only_text
from processes import Target
from wire_terms import MODERN, NEWEST_LEGACY

LIMIT = 20.0

pytestmark = [*QUIET, pytest.mark.parametrize("transport", ["stdio", "http"])]


async def test_its_legacy_client_sees_tools_that_may_be_tasks_and_calls_them_as_ever(
    target: Target, transport: str
) -> None:
    with trio.fail_after(LIMIT):
        server = target("task_server.py", transport)
        async with client_of(server, "legacy", elicitation_callback=User().elicit) as client:
            assert client.protocol_version == NEWEST_LEGACY
            assert client.server_capabilities.tasks.requests.tools.call is not None
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert listed["report"].execution.task_support == "optional"
            assert only_text(await client.call_tool("report", {"year": 1})) == "1: 7"


async def test_its_modern_client_that_declares_no_tasks_calls_as_ever(target: Target, transport: str) -> None:
    with trio.fail_after(LIMIT):
        server = target("task_server.py", transport)
        async with client_of(server, "auto", elicitation_callback=User().elicit) as client:
            assert client.protocol_version == MODERN
            assert only_text(await client.call_tool("report", {"year": 3})) == "3: 7"
