"""What the machine of `test_rounds_machine` knows: the tools, and for each a pure function that says what one run of it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from trio_mcp.errors import ElicitationInvalid
from trio_mcp.server import Accepted, Context, Server
from trio_mcp.session import ServiceOptions

Json = dict[str, Any]
Effects = Counter[str]

AUDIENCE = "machine"
ATTEMPTS = 3
"""How often a question is put: once, and twice more after an answer that breaks the schema."""
REPLAYABLE = frozenset({"steps", "fan_again"})
TOOLS = ("chain", "fan", "steps", "fan_again", "charge")


@dataclass(frozen=True)
class Case:
    """One logical call, as its client sees it. `number` is one of its arguments, so that no two are the same request."""

    number: int
    tool: str
    n: int
    hold: bool
    big: bool
    principal: str | None

    @property
    def arguments(self) -> Json:
        return {"number": self.number, "n": self.n, "hold": self.hold, "big": self.big}

    @property
    def replayable(self) -> bool:
        return self.tool in REPLAYABLE


@dataclass
class View:
    """Where a run of a case stands: what it waits for, whether it can go on by itself, and what it has done."""

    open: dict[str, str] = field(default_factory=dict)
    busy: bool = False
    final: str | None = None
    failed: bool = False
    effects: Effects = field(default_factory=Counter)
    steps: set[str] = field(default_factory=set)


class Waits(Exception):
    """The simulated lane cannot go on."""


def simulate(case: Case, answers: Mapping[str, Json], passed: int, known_steps: frozenset[str]) -> View:
    """Run a case in the mind: with these answers, the first `passed` gates open, and these steps done before."""
    view = View()
    view.effects["start"] += 1
    try:
        values = (
            branches(case, view, answers, passed)
            if case.tool.startswith("fan")
            else in_sequence(case, view, answers, passed, known_steps)
        )
    except Waits:
        return view
    except ElicitationInvalid:
        view.failed = True
        view.final = "still invalid"
        return view
    view.final = " ".join(values)
    return view


def in_sequence(
    case: Case, view: View, answers: Mapping[str, Json], passed: int, known_steps: frozenset[str]
) -> list[str]:
    values: list[str] = []
    asked = 0
    for number in range(1, case.n + 1):
        if case.tool == "steps":
            view.steps.add(f"step {number}")
            if f"step {number}" not in known_steps:
                view.effects[f"step {number}"] += 1
        value, asked = put(view, answers, "elicit", asked, f"{number}?")
        through_gate(case, view, number, passed)
        view.effects[f"after {number}"] += 1
        values.append(value)
    return values


def branches(case: Case, view: View, answers: Mapping[str, Json], passed: int) -> list[str]:
    values: list[str] = []
    for number in range(1, case.n + 1):
        view.effects[f"before {number}"] += 1
        try:
            value, _ = put(view, answers, f"elicit/{number}", 0, f"{number}?")
            through_gate(case, view, 1, passed)
        except Waits:
            continue
        except ElicitationInvalid:
            value = "invalid"
        view.effects[f"after {number}"] += 1
        values.append(value)
    if len(values) < case.n:
        raise Waits
    view.effects["end"] += 1
    return values


def put(view: View, answers: Mapping[str, Json], prefix: str, asked: int, message: str) -> tuple[str, int]:
    for attempt in range(1, ATTEMPTS + 1):
        key = f"{prefix}-{asked + attempt}"
        if key not in answers:
            view.open[key] = message
            raise Waits
        answer = answers[key]
        if answer["action"] != "accept":
            return "no", asked + attempt
        if isinstance(answer["content"]["value"], int):
            return str(answer["content"]["value"]), asked + attempt
    raise ElicitationInvalid("still invalid")


def through_gate(case: Case, view: View, number: int, passed: int) -> None:
    if case.hold and passed < number:
        view.busy = True
        raise Waits


class World:
    """What the tools of one program share: the gates that hold them, and the record of what they did."""

    def __init__(self) -> None:
        self.incarnation = [0, 0]
        """Which life of each of the two processes this is."""
        self.runs: dict[tuple[int, int, int], list[Effects]] = {}
        """The effects of each run of a body, by process, its life, and case."""
        self.cleaned: Counter[int] = Counter()
        self.passed: Counter[int] = Counter()
        self.moved = trio.Event()
        self.journals: dict[str, bytes] = {}
        self.stalled = False
        self.store_queue: list[trio.Event] = []
        """Who waits for the stalled store, first come first."""

    def begin(self, slot: int, case: int) -> Effects:
        effects: Effects = Counter()
        self.runs.setdefault((slot, self.incarnation[slot], case), []).append(effects)
        return effects

    async def gate(self, case: int, number: int, hold: bool) -> None:
        while hold and self.passed[case] < number:
            await self.moved.wait()

    def release(self, case: int) -> None:
        self.passed[case] += 1
        moved, self.moved = self.moved, trio.Event()
        moved.set()


class Host:
    """Lets servers that are made once serve one program after the other."""

    world: World

    async def _turn(self) -> None:
        if self.world.stalled:
            turn = trio.Event()
            self.world.store_queue.append(turn)
            await turn.wait()

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        await self._turn()
        self.world.journals[key] = value

    async def get(self, key: str) -> bytes | None:
        await self._turn()
        return self.world.journals.get(key)


def make_server(host: Host, slot: int, options: ServiceOptions) -> Server:
    server = Server(AUDIENCE, options=options)

    async def chain(ctx: Context, number: int, n: int, hold: bool, big: bool) -> str:
        effects = host.world.begin(slot, number)
        effects["start"] += 1
        values: list[str] = []
        try:
            for each in range(1, n + 1):
                value = said(await ctx.elicit(f"{each}?", int))
                await host.world.gate(number, each, hold)
                effects[f"after {each}"] += 1
                values.append(value)
        except trio.Cancelled:
            host.world.cleaned[number] += 1
            raise
        return " ".join(values)

    async def steps(ctx: Context, number: int, n: int, hold: bool, big: bool) -> str:
        effects = host.world.begin(slot, number)
        effects["start"] += 1
        values: list[str] = []

        def once(each: int) -> str:
            effects[f"step {each}"] += 1
            return "x" * (10_000 if big else 1)

        for each in range(1, n + 1):
            await ctx.step(f"step {each}", once, each)
            value = said(await ctx.elicit(f"{each}?", int))
            await host.world.gate(number, each, hold)
            effects[f"after {each}"] += 1
            values.append(value)
        return " ".join(values)

    async def fan(ctx: Context, number: int, n: int, hold: bool, big: bool) -> str:
        effects = host.world.begin(slot, number)
        effects["start"] += 1

        async def one(each: int, child: Context) -> str:
            effects[f"before {each}"] += 1
            try:
                value = said(await child.elicit(f"{each}?", int))
                await host.world.gate(number, 1, hold)
            except ElicitationInvalid:
                value = "invalid"
            effects[f"after {each}"] += 1
            return value

        async with ctx.branches() as group:
            handles = [group.start(lambda child, each=each: one(each, child)) for each in range(1, n + 1)]
        effects["end"] += 1
        return " ".join(handle.value for handle in handles)

    server.tool(chain)
    server.tool(resume="parked", name="charge")(chain)
    server.tool(fan)
    server.tool(resume="replay", name="fan_again")(fan)
    server.tool(resume="replay")(steps)
    return server


def said(answer: object) -> str:
    return str(answer.content) if isinstance(answer, Accepted) else "no"
