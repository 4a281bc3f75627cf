"""The tools of group D, which fail, branch, clean up, ask and wait in every way that matters to a cancellation."""

from __future__ import annotations

import trio

from ....server import Context, Server
from ..stage import Stage
from .common import reason_of

LARGE = 16 * 1024
"""Characters of one of the chatterer's messages; a few hundred fill whatever buffers there are."""

HELD_UP = 0.2
"""Seconds after which a message counts as held up by its reader."""


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
