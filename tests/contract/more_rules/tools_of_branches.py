"""The tools of the rules on branches: each splits, fails, is too slow or returns in one way."""

from __future__ import annotations

import math

import trio
from pydantic import BaseModel

from trio_mcp.errors import BranchLimit, RequestTimeout, ToolError
from trio_mcp.server import Context, Server
from trio_mcp.testing.contract import Stage, contract_tools
from trio_mcp.testing.contract.subjects.common import reason_of
from trio_mcp.testing.contract.subjects.faults import SECRET


class Found(BaseModel):
    """The declared return type of a tool."""

    seats: int


async def leave_quietly() -> None:
    """Be cancelled, and raise an error during the cleanup."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError(SECRET)


@contract_tools
def add_branching_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def leave_behind(ctx: Context) -> str:
        """Reach the end of the body while a branch still waits at the gate `branch`."""

        async def lagging(_child: Context) -> None:
            stage.mark("branch began")
            await stage.gate("branch")
            stage.mark("branch ended")

        async with ctx.branches() as group:
            group.start(lagging)
        return "after its branch"

    @server.tool(timeout=0.2)
    async def too_slow(ctx: Context) -> str:
        """Wait in a branch for longer than it may."""

        async def sleeping(_child: Context) -> None:
            try:
                await trio.sleep_forever()
            finally:
                stage.mark("too_slow's branch finally")

        try:
            await ctx.branch(sleeping)
        finally:
            stage.mark(f"too_slow finally {reason_of(ctx)}")
        return "never"

    @server.tool
    async def race(ctx: Context) -> str:
        """Two branches: one waits, the other ends when the gate `win` opens, and its value is returned."""

        async def losing(child: Context) -> str:
            try:
                stage.mark("loser began")
                await trio.sleep_forever()
            finally:
                stage.mark(f"loser finally {reason_of(child)}")
            return "never"

        async def winning(_child: Context) -> str:
            await stage.gate("win")
            return "the first"

        return await ctx.branch_race(losing, winning)

    @server.tool
    async def hurried_branch(seconds: float, ctx: Context) -> str:
        """Start a branch with this timeout that never ends, and return after it was cancelled."""

        async def sleeping(child: Context) -> None:
            try:
                stage.mark("hurried branch began")
                await trio.sleep_forever()
            finally:
                stage.mark(f"hurried branch finally {reason_of(child)}")

        try:
            await ctx.branch(sleeping, timeout=seconds)
        except BranchLimit as limit:
            return f"given up: {limit}"
        finally:
            stage.mark(f"hurried_branch finally {reason_of(ctx)}")
        return "never"

    @server.tool
    async def hurried_question(ctx: Context) -> str:
        """Ask the client's model, with a timeout of 0.1 seconds."""
        try:
            return (await ctx.sample("hello", timeout=0.1)).text
        except RequestTimeout as error:
            return f"given up: {error}"


@contract_tools
def add_failing_branches(server: Server, stage: Stage) -> None:
    @server.tool
    async def mixed() -> str:
        """Raise an error in the clean-up of its cancellation."""
        await leave_quietly()
        return "never"

    @server.tool
    async def split_and_fail(ctx: Context) -> str:
        """Let one branch fail while another waits."""

        async def waits(_: Context) -> None:
            try:
                await trio.sleep_forever()
            finally:
                stage.mark("sibling finally")

        async def fails(_: Context) -> None:
            raise ToolError("one branch failed")

        await ctx.branch_all(waits, fails)
        return "never"

    @server.tool
    async def unjoined(ctx: Context) -> str:
        """Fail while a branch still runs."""

        async def waits(_: Context) -> None:
            try:
                await trio.sleep_forever()
            finally:
                stage.mark("branch finally")

        async with ctx.branches() as group:
            group.start(waits)
            await trio.lowlevel.checkpoint()
            raise ToolError("the parent failed")

    @server.tool
    async def ask_often(times: int, ctx: Context) -> str:
        """Ask `times` questions at once."""

        async def asks(child: Context) -> None:
            await child.elicit("One of many?", int)

        async with ctx.branches() as group:
            for _ in range(times):
                group.start(asks)
        return "never"

    @server.tool
    async def promise(seats: str) -> Found:
        """Return a value that matches the declared type, or one that does not."""
        return Found.model_construct(seats=seats)

    @server.tool
    async def unsayable(kind: str) -> dict[str, object]:
        """Return a value that JSON cannot represent."""
        return {"list": [1, {"number": math.inf, "long": 10**320}[kind]]}

    async def linger() -> None:
        try:
            await trio.sleep_forever()
        finally:
            stage.mark("lingerer finally")

    @server.tool
    async def leave_a_nursery() -> str:
        """End with a task in a nursery that was not closed."""
        nursery = await trio.open_nursery().__aenter__()
        nursery.start_soon(linger)
        await trio.lowlevel.checkpoint()
        return "left"
