"""All runs of a scenario, one for each interruption, and the report of their problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from ...base.named_tuples import NamedTuple
from ...client import Client, ClientOptions, Handlers, OnElicit, OnRoots, OnSample
from ...server import Server
from ...types import Implementation
from .census import census, collect, only_new_objects
from .run import Play, Run, Strike, Way
from .wire import BUFFER, WireEnd

P = TypeVar("P")

SHOWN: Final = 20
"""Problems that `SweepReport.check` lists."""


class Effects:
    """Records the effects of a scenario's tools; no name may occur twice in a run."""

    def __init__(self) -> None:
        self._done: Counter[str] = Counter()

    def did(self, name: str) -> None:
        """Record an effect that must not happen twice."""
        self._done[name] += 1

    def forget(self) -> None:
        """Forget all effects, before the next run."""
        self._done.clear()

    @property
    def repeated(self) -> list[str]:
        """The names of the effects that happened more than once."""
        return [name for name, times in self._done.items() if times > 1]

    def __repr__(self) -> str:
        return f"<Effects {dict(self._done)}>"


class Problem(NamedTuple):
    """A problem after an interruption, or in the run without one."""

    strike: Strike | None
    what: str

    def __str__(self) -> str:
        return f"{self.strike or 'without an interruption'}: {self.what}"


@dataclass(frozen=True, slots=True)
class SweepReport:
    """The result of a sweep.

    Attributes:
        steps: task steps of the scenario without an interruption.
        messages: messages that are sent without an interruption.
        runs: number of runs.
        problems: all problems, in the order of the interruptions.
    """

    steps: int
    messages: int
    runs: int
    problems: tuple[Problem, ...]

    def check(self) -> None:
        """Raise `AssertionError` with the first problems if there are any."""
        if self.problems:
            lines = [str(problem) for problem in self.problems[:SHOWN]]
            count = f"{len(self.problems)} problems in {self.runs} runs"
            raise AssertionError("\n".join([count, *lines]))


def sweep(
    server: Server,
    scenario: Callable[[Client], Awaitable[object]],
    *,
    mode: str = "auto",
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    on_roots: OnRoots | None = None,
    effects: Effects | None = None,
    opening: bool = False,
    logs: Collection[str] = (),
    buffer: int = BUFFER,
    only: Strike | None = None,
    stride: int = 1,
) -> SweepReport:
    """Run `scenario(client)` over a connection in memory, interrupted at every step and after every message.

    It runs Trio itself, once for each interruption, so call it from plain code and not from a task.

    Args:
        mode: as for `Client.connect`.
        on_elicit, on_sample, on_roots: the handlers that answer the server's questions.
        effects: where the server's tools record their effects.
        opening: interrupt also while the client opens and closes, and not only what the scenario does.
        logs: parts of the errors that are expected in the log; any other logged error is a problem.
        buffer: messages that one end may be ahead of the other.
        only: one interruption, instead of all.
        stride: interrupt at every n-th step; always after every message.
    """
    handlers = Handlers(on_elicit, on_sample, on_roots)

    def connect(end: WireEnd) -> Client:
        options = ClientOptions(
            handlers=handlers,
            on_log=lambda _message: None,
            log_level="info",
            mode=mode,
            info=Implementation(name="sweep", version="1"),
            probe_timeout=5,
        )
        return Client(end, options)

    return sweep_play(Play(server, connect, scenario, opening, logs, buffer), effects=effects, only=only, stride=stride)


def sweep_play(
    play: Play[P],
    *,
    effects: Effects | None = None,
    ways: Collection[Way] = tuple(Way),
    only: Strike | None = None,
    stride: int = 1,
) -> SweepReport:
    """Sweep with a peer that is not a `Client`: `play.connect` makes it from its end of the wire."""
    return Sweep(play, effects or Effects(), ways, stride).run(only)


class Played(NamedTuple):
    """What a sweep keeps of a run: its steps, those at which a request was open, its messages and its problems."""

    steps: int
    watched: list[int]
    messages: int
    problems: list[str]


class Sweep(Generic[P]):
    """The runs of one scenario."""

    def __init__(self, play: Play[P], effects: Effects, ways: Collection[Way], stride: int) -> None:
        self._play = play
        self._effects = effects
        self._ways = ways
        self._stride = stride
        self._runs = 0
        self._problems: list[Problem] = []
        self._lasting: Counter[str] = Counter()
        """Objects that a whole connection and its service leave to the collector without an interruption."""

    def run(self, only: Strike | None) -> SweepReport:
        with scheduled(), only_new_objects():
            # The first run fills caches, whose objects would look like leaks of a later one.
            self._once(None)
            self._problems.clear()
            first = self._once(None)
            self._check_repeatable(first)
            if not self._problems:
                for strike in self._strikes(first) if only is None else [only]:
                    self._once(strike)
        return SweepReport(first.steps, first.messages, self._runs, tuple(self._problems))

    def _strikes(self, first: Played) -> Iterator[Strike]:
        steps = range(1, first.steps + 1)
        positions = {
            Way.PEER: first.watched,
            Way.SCOPE: steps,
            Way.END: steps,
            Way.MESSAGE: range(1, first.messages + 1),
        }
        return (Strike(way, at) for way in self._ways for at in positions[way][self._thinned(way)])

    def _thinned(self, way: Way) -> slice:
        """Return which positions of a way are used; each way starts at another one, so that together they cover more steps."""
        if way is Way.MESSAGE:
            return slice(None)
        return slice(list(Way).index(way) % self._stride, None, self._stride)

    def _check_repeatable(self, first: Played) -> None:
        # Step numbers mean nothing if the scheduler, a set's order or real time makes two runs differ.
        second = self._once(None)
        if second.steps != first.steps:
            steps = f"{first.steps} steps and then {second.steps}"
            self._problems.append(Problem(None, f"two runs differ: {steps}"))

    def _once(self, strike: Strike | None) -> Played:
        self._effects.forget()
        played = self._played(strike)
        found = [*played.problems, *(f"{name} was done more than once" for name in self._effects.repeated)]
        left = census()
        # Counted apart: what a run keeps for good even without an interruption is not garbage that the others may leave too.
        kept = collect()
        if strike is None:
            self._lasting = left
        elif left := left - self._lasting:
            found.append(f"garbage is left: {listed(left)}")
        if kept:
            found.append(f"objects are kept for good: {listed(kept)}")
        self._runs += 1
        self._problems += [Problem(strike, what) for what in found]
        return played

    def _played(self, strike: Strike | None) -> Played:
        # A `Run` is part of a cycle, so none may be referred to while the living objects are frozen: it would stay.
        run = Run(self._play, strike)
        trio_run._r.seed(0)  # noqa: SLF001
        trio.run(run, clock=MockClock(autojump_threshold=0))
        return Played(run.interrupter.steps, run.interrupter.watched, run.messages, run.problems)


def listed(counts: Counter[str]) -> str:
    """Return counted types in one line."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


@contextmanager
def scheduled() -> Iterator[None]:
    """Make Trio's scheduler depend on its seed alone, as Trio's own plugin for Hypothesis does."""
    state, allowed = trio_run._r.getstate(), trio_run._ALLOW_DETERMINISTIC_SCHEDULING  # noqa: SLF001
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]  # noqa: SLF001
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = allowed  # type: ignore[misc]  # noqa: SLF001
        trio_run._r.setstate(state)  # noqa: SLF001
