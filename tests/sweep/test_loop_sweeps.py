"""Wherever a tool loop is interrupted, every request has one outcome, nothing is left, and what was done was done once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
from scenarios import called
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Context, Server
from trio_mcp.server import BreakToolLoop
from trio_mcp.testing import Effects
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent, ToolUseContent

eras = pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])

effects = Effects()
LOOPING: dict[str, Any] = {"seldom": 3, "effects": effects, "on_sample": None, "on_roots": None}


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


@eras
@pytest.mark.parametrize("tool", ["looping", "broken_off", "hurried"])
def test_a_loop_leaves_nothing_wherever_it_is_interrupted(swept: Callable[..., None], tool: str, mode: str) -> None:
    swept(called(tool), mode, server, **LOOPING)


@pytest.mark.parametrize("tool", ["looping", "broken_off"])
def test_a_loop_that_is_replayed_at_every_leg_does_its_calls_once(swept: Callable[..., None], tool: str) -> None:
    swept(called(tool), MODERN, server.copy(options=replace(server.options, always_replay=True)), **LOOPING)
