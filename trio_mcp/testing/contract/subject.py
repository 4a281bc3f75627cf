"""The contract's server: tools that do one thing each, and tell the stage about it."""

from __future__ import annotations

from collections.abc import Callable

import trio
from pydantic import BaseModel

from ...errors import ToolError
from ...server import Context, Server
from .asking import add_forms, add_sampling_tools, add_telling_tools
from .noise import add_noisy_tools
from .offers import add_changing_tools, add_contents, add_prompts, add_resources
from .stage import Gauges, Stage

__all__ = ["Seat", "contract_server", "gauges_of"]

PAGE = 10
"""Items of one page of a list: a few, so that there are several pages."""


class Seat(BaseModel):
    """The form that the contract's tools ask to have filled in."""

    row: int
    window: bool = False


def contract_server(stage: Stage) -> Server:
    """A server whose tools meet the test on this stage."""
    server = Server("contract", version="1.0", instructions="Be strict.", page_size=PAGE)
    for add in PARTS:
        add(server, stage)
    stage.measured_by(lambda: gauges_of(server))
    return server


def gauges_of(server: Server) -> Gauges:
    """What there is at a server now, over all the places where it is served."""
    found: dict[str, int] = {"running": 0, "parked": 0}
    for service in server.services:
        actors = service.supervisor.statistics()
        found["running"] += actors.running
        found["parked"] += actors.parked
    return found


def add_plain_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def echo(text: str) -> str:
        """Say the same."""
        stage.mark("echo")
        return text

    @server.tool
    async def fail(text: str) -> str:
        """Fail with a text for the model."""
        raise ToolError(text)

    @server.tool
    async def wait(name: str = "wait") -> str:
        """Wait at a gate of this name; marks its beginning, its end, and its `finally`."""
        stage.mark(f"{name} began")
        try:
            await stage.gate(name)
            stage.mark(f"{name} ended")
            return name
        finally:
            stage.mark(f"{name} finally")

    @server.tool
    async def progress(n: int, ctx: Context) -> str:
        """Report progress n times."""
        for done in range(1, n + 1):
            await ctx.progress(done, n, f"step {done}")
        return "done"


def add_asking_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask for a seat; marks its `finally` with the reason of a cancellation."""
        stage.mark("ask began")
        try:
            answer = await ctx.elicit("Which seat?", Seat)
            return f"row {answer.content.row}" if answer.action == "accept" else answer.action
        finally:
            stage.mark(f"ask finally {reason_of(ctx)}")

    @server.tool
    async def ask_model(prompt: str, ctx: Context) -> str:
        """Ask the client's model."""
        stage.mark("ask_model began")
        try:
            return (await ctx.sample(prompt)).text
        finally:
            stage.mark(f"ask_model finally {reason_of(ctx)}")


def add_branching_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def nest(depth: int, ctx: Context) -> str:
        """Wait in a branch that is so deep; marks the `finally` of every level."""

        async def level(left: int, here: Context) -> None:
            try:
                if left:
                    await here.branch(lambda child: level(left - 1, child))
                else:
                    stage.mark("nest began")
                    await trio.sleep_forever()
            finally:
                stage.mark(f"nest finally {left}")

        await level(depth, ctx)
        return "never"


def reason_of(ctx: Context) -> str:
    """Why a call was cancelled, as a word of a mark."""
    return "done" if ctx.cancel_reason is None else ctx.cancel_reason.value


PARTS: tuple[Callable[[Server, Stage], None], ...] = (
    add_plain_tools,
    add_asking_tools,
    add_branching_tools,
    add_contents,
    add_prompts,
    add_resources,
    add_changing_tools,
    add_forms,
    add_sampling_tools,
    add_telling_tools,
    add_noisy_tools,
)
"""What is on the server; a group of rules that needs more adds a function."""
