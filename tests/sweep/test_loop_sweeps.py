"""Wherever a tool loop is interrupted, every request has one outcome, nothing is left, and what was done was done once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
from scenarios import Scenario, called
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Context, Server
from trio_mcp.client import accept
from trio_mcp.server import BreakToolLoop
from trio_mcp.testing import Effects, sweep
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent, ToolUseContent

eras = pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])

effects = Effects()


class Model:
    """A provider that calls each tool in one round, and then answers."""

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        await trio.sleep(0.5)
        if request.tools is None or len(request.messages) > 2:
            return CreateMessageResult(role="assistant", content=TextContent(text="done"), model="m")
        uses: list[Any] = [ToolUseContent(id=f"{tool.name}", name=tool.name, input={}) for tool in request.tools]
        return CreateMessageResult(role="assistant", content=uses, model="m")


server = Server("looping", version="1", sampling=Model())


@server.tool
async def asking(ctx: Context) -> str:
    """Ask, and do something once."""
    await ctx.elicit("Which?", int)
    effects.did("answered")
    return "answered"


@server.tool(limit=3)
async def sleeping() -> str:
    """Take its time."""
    await trio.sleep(1)
    effects.did("slept")
    return "awake"


@server.tool
async def breaking(ctx: Context) -> str:
    """Ask, and end the loop."""
    await ctx.elicit("Enough?", int)
    raise BreakToolLoop("enough")


@server.tool(resume="replay")
async def looping(ctx: Context) -> str:
    """Loop over a tool that asks and one that takes its time."""
    result = await ctx.run_tool_loop("Go.", [asking, sleeping], progress=True)
    await ctx.elicit("Done?", int)
    effects.did("looped")
    return result.text


@server.tool(resume="replay")
async def broken_off(ctx: Context) -> str:
    """Loop over a tool that ends the loop while another one sleeps."""
    result = await ctx.run_tool_loop("Go.", [breaking, sleeping])
    effects.did("looped")
    return result.text


@server.tool
async def hurried(ctx: Context) -> str:
    """Loop with a time limit that is too short."""
    with pytest.raises(Exception, match="seconds"):
        await ctx.run_tool_loop("Go.", [sleeping], timeout=1)
    return "late"


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    return 1 if request.config.getoption("every_step") else 3


def swept(scenario: Scenario, mode: str, stride: int, served: Server = server) -> None:
    options: dict[str, Any] = {"on_elicit": lambda _asked: accept(value=1), "effects": effects}
    report = sweep(served, scenario, mode=mode, stride=stride, **options)
    report.check()
    assert report.runs * stride > report.steps


@eras
@pytest.mark.parametrize("tool", ["looping", "broken_off", "hurried"])
def test_a_loop_leaves_nothing_wherever_it_is_interrupted(tool: str, mode: str, stride: int) -> None:
    swept(called(tool), mode, stride)


@pytest.mark.parametrize("tool", ["looping", "broken_off"])
def test_a_loop_that_is_replayed_at_every_leg_does_its_calls_once(tool: str, stride: int) -> None:
    swept(called(tool), MODERN, stride, server.copy(options=replace(server.options, always_replay=True)))
