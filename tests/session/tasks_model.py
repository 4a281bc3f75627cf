"""What the machine of tasks serves: tools that write down in a `World` what they did, whichever process they did it in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from trio_mcp.server import Accepted, Context, Server

Json = dict[str, Any]

TOOLS = ("walk", "once", "fan", "quick")
REPLAYED = frozenset({"walk", "fan", "quick"})
HOLDS = ("", "", "step", "answer", "stubborn")
"""Where a call waits at a gate: nowhere, in its steps, or after an answer. A stubborn one returns when it is cancelled."""
IN_SPITE = "in spite of the cancel"


@dataclass(frozen=True)
class Case:
    """One logical call. `number` is one of its arguments, so that no two are the same request.

    Attributes:
        caller: which of the machine's callers makes it.
        as_task: its caller takes a task for it.
        key: its idempotency key; None without one.
    """

    number: int
    tool: str
    n: int
    hold: str
    era: str
    caller: int
    as_task: bool
    key: str | None

    @property
    def arguments(self) -> Json:
        return {"number": self.number, "n": self.n, "hold": self.hold}


@dataclass
class Work:
    """What was done of one call, over all processes.

    Attributes:
        may_run_again: its client has repeated it so late that it may be taken for a new call.
        steps: how often the body of each step ran.
        made_with: the answers that a body had when it took a step.
        begun: the steps that a body is in now.
        unsure: those that it was in when its process ended.
        expected: the answers that the client got an acknowledgement for, by the number of the question.
        returned: what bodies have returned.
    """

    may_run_again: bool = False
    starts: int = 0
    running: int = 0
    steps: Counter[str] = field(default_factory=Counter)
    made_with: dict[str, list[str]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    expected: dict[int, str] = field(default_factory=dict)
    returned: set[str] = field(default_factory=set)


class World:
    """What the tools of one program act on. It lives on when their process ends."""

    def __init__(self) -> None:
        self.works: dict[int, Work] = {}
        self.is_dead = False
        """The process has crashed: what still unwinds in it happens nowhere."""
        self.failures: list[str] = []
        self._passed: Counter[int] = Counter()
        self._all_open = False
        self._moved = trio.Event()

    def work(self, number: int) -> Work:
        return self.works.setdefault(number, Work())

    def check(self, holds: bool, what: str) -> None:
        """Note a broken rule: raised in a body, it would become the result of a call."""
        if not holds:
            self.failures.append(what)

    def process_ended(self) -> None:
        for work in self.works.values():
            work.unsure |= work.begun
            work.begun.clear()

    # what bodies do

    @contextmanager
    def body(self, number: int, tool: str) -> Iterator[Work]:
        work = self.work(number)
        work.starts += not self.is_dead
        again = tool in REPLAYED or work.may_run_again
        self.check(again or work.starts <= 1, f"call {number} of {tool} has run twice")
        work.running += 1
        try:
            yield work
        finally:
            work.running -= 1

    def act(self, number: int, step: str, values: list[str]) -> None:
        """Have the effect of a step."""
        if self.is_dead:
            return
        work = self.work(number)
        work.steps[step] += 1
        work.made_with[step] = list(values)
        self.check(work.steps[step] == 1 or work.may_run_again, f"call {number} took {step} twice")

    def hear(self, number: int, each: int, value: str) -> None:
        """Have an answer. One that a caller accepted with names the call and the question that it is for."""
        if self.is_dead:
            return
        work = self.work(number)
        expected = None if work.may_run_again else work.expected.get(each)
        self.check(value == "no" or int(value) // 100 == number * 10 + each, f"question {number}:{each} got {value}")
        self.check(expected in (None, value), f"question {number}:{each} got {value} after {expected}")

    # gates

    async def gate(self, number: int, place: int) -> None:
        while not self._all_open and self._passed[number] < place:
            await self._moved.wait()

    def release(self, number: int) -> None:
        self._passed[number] += 1
        self._move()

    def release_all(self) -> None:
        self._all_open = True
        self._move()

    def _move(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()


class Host:
    """Lets a server that is made once serve one program after the other."""

    world: World


def make_server(host: Host) -> Server:
    server = Server("machine")

    async def take(number: int, step: str, values: list[str], place: int) -> str:
        host.world.act(number, step, values)
        if place:
            await host.world.gate(number, place)
        return step

    async def step(ctx: Context, number: int, name: str, values: list[str], place: int) -> None:
        begun = host.world.work(number).begun
        begun.add(name)
        await ctx.step(name, take, number, name, values, place)
        if not host.world.is_dead:
            begun.discard(name)

    async def ask(ctx: Context, number: int, each: int) -> str:
        answer = await ctx.elicit(f"{number}:{each}?", int)
        value = str(answer.content) if isinstance(answer, Accepted) else "no"
        host.world.hear(number, each, value)
        return value

    async def is_cancelled_at(number: int, place: int) -> bool:
        try:
            await host.world.gate(number, place)
        except trio.Cancelled:
            return True  # noqa: ASYNC103
        return False

    async def walk_as(tool: str, ctx: Context, number: int, n: int, hold: str) -> str:
        with host.world.body(number, tool) as work:
            values: list[str] = []
            if hold == "stubborn" and await is_cancelled_at(number, 1):
                return IN_SPITE
            for each in range(1, n + 1):
                await ctx.status(str(each))
                await step(ctx, number, f"step {each}", values, each if hold == "step" else 0)
                values.append(await ask(ctx, number, each))
                if hold == "answer":
                    await host.world.gate(number, each)
            await step(ctx, number, "end", values, 0)
            work.returned.add(" ".join(values))
            return " ".join(values)

    async def walk(ctx: Context, number: int, n: int, hold: str) -> str:
        return await walk_as("walk", ctx, number, n, hold)

    async def once(ctx: Context, number: int, n: int, hold: str) -> str:
        return await walk_as("once", ctx, number, n, hold)

    async def quick(ctx: Context, number: int, n: int, hold: str) -> str:
        return await walk_as("quick", ctx, number, 0, hold)

    async def fan(ctx: Context, number: int, n: int, hold: str) -> str:
        async def one(each: int, child: Context) -> str:
            await step(child, number, f"step {each}", [], each if hold == "step" else 0)
            value = await ask(child, number, each)
            if hold == "answer":
                await host.world.gate(number, 1)
            return value

        with host.world.body(number, "fan") as work:
            async with ctx.branches() as group:
                handles = [group.start(lambda child, each=each: one(each, child)) for each in range(1, n + 1)]
            values = [handle.value for handle in handles]
            await step(ctx, number, "end", values, 0)
            work.returned.add(" ".join(values))
            return " ".join(values)

    for replayed in (walk, fan, quick):
        server.tool(task=True, resume="replay")(replayed)
    server.tool(task=True)(once)
    return server
