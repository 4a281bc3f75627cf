"""What VS Code sends about a task (`mcpServerRequestHandler.ts`, `mcpTaskManager.ts`): its request shapes, in its order."""

from __future__ import annotations

import pytest
from peer import Json
from talk import talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, ProtocolError, Server

CAPABILITIES: Json = {
    "roots": {"listChanged": True},
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {
        "list": {},
        "cancel": {},
        "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
    },
}


async def work(ctx: Context) -> str:
    await ctx.status("working hard")
    return "worked"


async def fail() -> str:
    raise ProtocolError("no line", code=-32603)


@pytest.mark.parametrize("tool", ["work", "fail"])
async def test_vs_code_runs_a_tool_as_a_task(tool: str) -> None:
    server = Server("tester", version="1")
    server.tool(task=True)(work)
    server.tool(task=True)(fail)
    async with talk_to(server) as talk:
        opened = await talk.initialize(capabilities=CAPABILITIES)
        # It asks whether this is `undefined`, and no more.
        assert opened["capabilities"]["tasks"]["requests"]["tools"]["call"] == {}
        listed = (await talk.result(talk.request("tools/list", {})))["tools"]
        assert {each["execution"]["taskSupport"] for each in listed} == {"optional"}
        called = talk.request(
            "tools/call", {"name": tool, "arguments": {}, "task": {}, "_meta": {"progressToken": "p"}}
        )
        task = (await talk.result(called))["task"]
        assert task["pollInterval"] > 0
        assert task["ttl"] > 0
        await wait_all_tasks_blocked()
        talk.waiting()
        shown = await talk.result(talk.request("tasks/get", {"taskId": task["taskId"]}))
        if tool == "fail":
            # It shows the message, and never asks for the error.
            assert (shown["status"], shown["statusMessage"]) == ("failed", "no line")
        else:
            assert shown["status"] == "completed"
            result = await talk.result(talk.request("tasks/result", {"taskId": task["taskId"]}))
            assert result["content"] == [{"type": "text", "text": "worked"}]
