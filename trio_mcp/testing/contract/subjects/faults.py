"""Tools of the contract's server that fail, send too much, or ask too often."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar

import trio

from ....errors import ToolError
from ....server import Context, Server
from ..stage import BOUND, Stage

SECRET = "hunter2"  # noqa: S105  what must never be read in an answer
"""A detail that belongs in the log only."""

HELD = 0.5
"""Seconds after which a tool that cannot say more knows that its client does not read."""

LINE = "x" * 16 * 1024
"""One thing that a talkative tool says."""

MOST = 40_000
"""How much of it there is at most: more than any number of buffers may hold."""

CANARY: ContextVar[str] = ContextVar("canary", default="none")


class Mishap(BaseException):
    """An error that no tool should raise: it is not an `Exception`."""


MISHAPS: Mapping[str, Callable[[], BaseException]] = {
    "error": lambda: ValueError(SECRET),
    "group": lambda: ExceptionGroup("two", [ValueError(SECRET), KeyError(SECRET)]),
    "nested group": lambda: ExceptionGroup("outer", [ExceptionGroup("inner", [ValueError(SECRET)])]),
    "base group": lambda: BaseExceptionGroup("two", [SystemExit(SECRET), ValueError(SECRET)]),
    "exit": lambda: SystemExit(SECRET),
    "interrupt": KeyboardInterrupt,
    "generator exit": GeneratorExit,
    "no exception": lambda: Mishap(SECRET),
    "memory": lambda: MemoryError(SECRET),
    "recursion": lambda: RecursionError(SECRET),
}
"""What a tool may raise, by name."""


def add_failing_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def misbehave(kind: str) -> str:
        """Raise an unexpected exception."""
        mishap = MISHAPS[kind]()
        raise mishap

    @server.tool
    async def cut_character(whole: str) -> str:
        """Return the text, and half of a character behind it."""
        return f"{whole}\ud800"

    @server.tool(timeout=0.3)
    async def slow() -> str:
        """Never end."""
        stage.mark("slow began")
        try:
            await trio.sleep_forever()
        finally:
            stage.mark("slow finally")
        return "never"


def add_holding_tools(server: Server, stage: Stage) -> None:
    free = threading.Event()

    @server.tool(timeout=0.2)
    async def ignore_the_deadline() -> str:
        """Ignore cancellation until the gate opens."""
        with trio.CancelScope(shield=True):
            await stage.gate("ignored")
        return "at last"

    @server.tool
    def hold_a_thread() -> str:
        """Block a thread until it is freed."""
        trio.from_thread.run_sync(stage.mark, "thread held")
        free.wait(BOUND)
        return "freed"

    @server.tool
    async def free_the_threads() -> str:
        """Free the blocked threads."""
        free.set()
        stage.spend()
        return "free"


def add_leaving_tools(server: Server, stage: Stage) -> None:
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        """Keep the context for after the call."""
        await ctx.progress(1, message="while it runs")
        kept.append(ctx)
        stage.spend()
        return "kept"

    @server.tool
    async def speak_for_another() -> str:
        """Report and log for a call that has ended."""
        await kept[-1].progress(2, message="after its reply")
        await kept[-1].log("error", "after its reply")
        return "spoken"


def add_passing_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def canary(text: str) -> str:
        """Return a context variable as it was before this call set it, and as it is after the gate."""
        before = CANARY.get()
        CANARY.set(text)
        stage.mark("canary")
        await stage.gate("canary")
        return f"{before} {CANARY.get()}"

    @server.tool
    async def retiree() -> str:
        """Wait while the tool is removed from the server."""
        stage.mark("retiree began")
        await stage.gate("retiree")
        return "to the end"

    @server.tool
    async def retire() -> str:
        """Remove another tool from the server."""
        server.remove_tool("retiree")
        stage.spend()
        return "retired"


def add_talking_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def talk_until_held(ctx: Context) -> str:
        """Send progress until the client stops reading; return the number of reports after it reads again."""
        said = 0
        try:
            while True:
                if said == MOST:
                    raise ToolError(f"nothing held it up in {said} lines")
                with trio.move_on_after(HELD) as patience:
                    await ctx.progress(said, message=LINE)
                if patience.cancelled_caught:
                    break
                said += 1
            stage.mark("talker held")
            await ctx.progress(said + 1, message="at last")
            return str(said + 1)
        finally:
            stage.mark("talker finally")

    @server.tool
    async def wrong_progress(values: list[float | None], ctx: Context) -> str:
        """Report these values as progress; null stands for NaN."""
        for value in values:
            await ctx.progress(math.nan if value is None else value)
        return "done"


def add_questioning_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask_two_numbers(ctx: Context) -> str:
        """Ask for two numbers, one after the other."""
        first = await ctx.elicit("The first?", int)
        second = await ctx.elicit("The second?", int)
        return f"{first} {second}"

    @server.tool
    async def ask_briefly(ctx: Context) -> str:
        """Withdraw a question at the gate, and ask another one."""
        async with trio.open_nursery() as nursery:

            async def impatient() -> None:
                await stage.gate("impatient")
                nursery.cancel_scope.cancel()

            nursery.start_soon(impatient)
            await ctx.elicit("Quick?", int)
        stage.mark("gave up")
        return f"{await ctx.elicit('And now?', int)}"

    @server.tool(timeout=0.3)
    async def ask_in_time(ctx: Context) -> str:
        """Ask within a deadline."""
        try:
            return f"{await ctx.elicit('Anybody?', int)}"
        finally:
            stage.mark("ask_in_time finally")


def add_branches_that_ask(server: Server, stage: Stage) -> None:

    @server.tool
    async def ask_in_a_branch(ctx: Context) -> str:
        """Ask in a branch of a branch."""

        async def asks(child: Context) -> str:
            try:
                return f"{await child.elicit('From below?', int)}"
            finally:
                stage.mark("asker finally")

        return await ctx.branch(lambda child: child.branch(asks))
