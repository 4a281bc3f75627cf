"""The tools of group D, which fail, branch, clean up, ask and wait in every way that matters to a cancellation."""

from __future__ import annotations

import trio

from ....errors import BranchLimit, RequestTimeout, ToolError
from ....server import Context, Server
from ..stage import Stage
from .common import reason_of

LARGE = 16 * 1024
"""Characters of one of the chatterer's messages; a few hundred fill whatever buffers there are."""

HELD_UP = 0.2
"""Seconds after which a message counts as held up by its reader."""


def add_splitting_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def siblings(ctx: Context) -> str:
        """Two branches: one waits, the other fails when the gate `fail` opens."""

        async def waiting(_child: Context) -> None:
            try:
                stage.mark("sibling began")
                await trio.sleep_forever()
            finally:
                stage.mark("sibling finally")

        async def failing(_child: Context) -> None:
            await stage.gate("fail")
            raise ToolError("a branch failed")

        await ctx.branch_all(waiting, failing)
        return "never"

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


def add_racing_tools(server: Server, stage: Stage) -> None:
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


def add_timing_tools(server: Server, stage: Stage) -> None:
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


def add_holding_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def clean_up(ctx: Context) -> str:
        """Wait; then clean up behind a shield until the gate `clean-up` opens, and try to report it."""
        try:
            stage.mark("clean_up began")
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                stage.mark("clean-up began")
                await stage.gate("clean-up")
                await ctx.progress(1, message="cleaned up")
                await ctx.log("emergency", "cleaned up")
            stage.mark(f"clean-up ended {reason_of(ctx)}")
        return "never"

    @server.tool
    async def shielded() -> str:
        """Ignore everything until the gate `shielded` opens."""
        with trio.CancelScope(shield=True):
            stage.mark("shielded began")
            await stage.gate("shielded")
        stage.mark("shielded ended")
        return "at last"


def add_asking_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask_and_work(ctx: Context) -> str:
        """Ask the client's model in one branch while another works without end, so that the leg never ends."""

        async def asking(child: Context) -> None:
            try:
                stage.mark("asker asks")
                await child.sample("hello")
            finally:
                stage.mark("asker finally")

        async def working(_child: Context) -> None:
            try:
                stage.mark("worker works")
                await trio.sleep_forever()
            finally:
                stage.mark("worker finally")

        await ctx.branch_all(asking, working)
        return "never"

    @server.tool
    async def ask_within(tokens: int, ctx: Context) -> str:
        """Ask the client's model twice, in a branch that may use at most `tokens`."""

        async def asking(child: Context) -> str:
            first = (await child.sample("first")).text
            return f"{first}, {(await child.sample('second')).text}"

        try:
            return await ctx.branch(asking, token_budget=tokens)
        except BranchLimit as limit:
            return f"{limit.kind}: {limit.used} of {limit.limit}"


def add_talking_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def chatter(ctx: Context) -> str:
        """Send large messages until cancelled; mark the first that waits for the reader."""
        stage.mark("chatter began")
        try:
            while True:
                with trio.move_on_after(HELD_UP) as soon:
                    await ctx.log("info", "x" * LARGE)
                if soon.cancelled_caught:
                    stage.mark("chatter held up")
                    await ctx.log("info", "x" * LARGE)
        finally:
            stage.mark("chatter finally")

    @server.tool
    async def steps(ctx: Context) -> str:
        """A step before a question and a step after it."""
        await ctx.step("before", lambda: stage.mark("before"))
        try:
            await ctx.sample("Go on?")
            await ctx.step("after", lambda: stage.mark("after"))
        finally:
            stage.mark("steps finally")
        return "done"

    @server.tool
    async def sample_all(n: int, ctx: Context) -> str:
        """Ask the client's model n things at once."""

        async def one(child: Context) -> str:
            return (await child.sample("hello")).text

        try:
            async with ctx.branches() as group:
                asked = [group.start(one) for _ in range(n)]
        finally:
            stage.mark(f"sample_all finally {reason_of(ctx)}")
        return " ".join(each.value for each in asked)
