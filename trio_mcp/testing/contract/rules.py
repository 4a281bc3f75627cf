"""The rules of the contract, and the cases they make with a transport: one for each revision that it carries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import trio
from trio.testing import MockClock

from ...protocol.revisions import REVISIONS, Era
from .leaks import no_leaks, no_tasks_left
from .makers import IMPOSSIBLE, Maker, Trait
from .pair import Pair
from .stage import NO_OPTIONS, Options, Stage

LIMIT = 60.0
"""Seconds that a case may take, virtual ones where time is virtual."""

VIRTUAL_LIMIT = 100_000.0

LEGACY = tuple(name for name, revision in REVISIONS.items() if revision.era is Era.LEGACY)
"""The revisions of the handshake era."""
MODERN = tuple(name for name, revision in REVISIONS.items() if revision.era is Era.MODERN)
"""The revisions of the modern era."""
ELICITS = tuple(name for name in REVISIONS if name >= "2025-06-18")
"""The revisions that have elicitation."""

Check = Callable[[Pair], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One sentence of the contract, and the function that holds it against a pair.

    Attributes:
        group: a letter of the contract, or `peers` and `calls` for the two failure catalogues.
        revisions: those it is about; `why` says what it means that others have no such thing.
        needs: the traits without which it cannot be, and why it cannot.
        grace: seconds that a call goes on without its client.
        threads: it uses real threads, so that its time is real.
        options: limits and times that the server is to have.
    """

    name: str
    group: str
    check: Check
    revisions: tuple[str, ...]
    why: str
    needs: Mapping[Trait, str]
    grace: float
    threads: bool
    options: Options

    def impossible(self, maker: Maker, revision: str) -> str | None:
        """Why this rule cannot be held against that transport in that revision; None if it can."""
        if revision not in self.revisions:
            return self.why
        missing = sorted(self.needs.keys() - maker.traits, key=lambda trait: trait.value)
        return self.needs[missing[0]] if missing else None


@dataclass(frozen=True, slots=True)
class Case:
    """A rule, a transport and a revision."""

    rule: Rule
    maker: Maker
    revision: str

    def run(self) -> None:
        """Check the rule, in a new Trio loop.

        Raises:
            AssertionError: the transport does not keep it, or something was left behind.
            trio.TooSlowError: it was not done in time.
        """
        virtual = Trait.VIRTUAL in self.maker.traits and not self.rule.threads
        with no_leaks():
            trio.run(
                partial(self._run, VIRTUAL_LIMIT if virtual else LIMIT),
                clock=MockClock(autojump_threshold=0) if virtual else None,
                strict_exception_groups=True,
            )

    async def _run(self, limit: float) -> None:
        with no_tasks_left(), trio.fail_after(limit):
            stage = Stage(self.rule.options)
            async with self.maker.serve(stage, grace=self.rule.grace) as endpoint:
                await self.rule.check(Pair(self.maker, endpoint, stage, self.revision))
                await stage.at_rest()

    def __str__(self) -> str:
        return f"{self.rule.group}-{self.rule.name}-{self.revision}"


@dataclass(frozen=True, slots=True)
class Impossible:
    """A case that there cannot be, and why."""

    rule: Rule
    revision: str
    why: str


_RULES: dict[str, Rule] = {}


def rule(
    group: str,
    *,
    revisions: tuple[str, ...] = (*LEGACY, *MODERN),
    why: str = "",
    needs: tuple[Trait, ...] | Mapping[Trait, str] = (),
    grace: float = 0.1,
    threads: bool = False,
    options: Options = NO_OPTIONS,
) -> Callable[[Check], Check]:
    """Make a function a rule of the contract; its name says what must be so. See `Rule`.

    Args:
        needs: the traits; a mapping says why there cannot be a case without them where that is another reason than usual.

    Raises:
        ValueError: there is such a rule already, or it leaves out revisions without saying why.
    """
    if set(revisions) != set(REVISIONS) and not why:
        raise ValueError("say why the rule leaves out some revisions")

    def added(check: Check) -> Check:
        name = check.__name__
        if name in _RULES:
            raise ValueError(f"there are two rules {name}")
        reasons = dict(needs) if isinstance(needs, Mapping) else {trait: IMPOSSIBLE[trait] for trait in needs}
        _RULES[name] = Rule(name, group, check, revisions, why, reasons, grace, threads, options)
        return check

    return added


def all_rules() -> tuple[Rule, ...]:
    """The whole contract."""
    return tuple(_RULES.values())


def every(revisions: Sequence[str]) -> Sequence[str]:
    """Choose all revisions."""
    return revisions


def newest_of_each_era(revisions: Sequence[str]) -> Sequence[str]:
    """Choose the newest legacy revision among these, and the newest modern one.

    A transport carries messages and does not look at their revision, so the older ones need not cross every real wire.
    """
    return list({REVISIONS[name].era: name for name in sorted(revisions)}.values())


def cases_of(
    maker: Maker, group: str | None = None, *, choose: Callable[[Sequence[str]], Sequence[str]] = every
) -> list[Case]:
    """Return the cases that a transport has to pass, of one group or of all.

    Args:
        choose: picks from the revisions that a rule and the transport have in common; such as `newest_of_each_era`.
    """
    return [
        Case(each, maker, revision)
        for each in _RULES.values()
        if group in (None, each.group)
        for revision in choose([name for name in maker.revisions if each.impossible(maker, name) is None])
    ]


def impossible_of(maker: Maker) -> list[Impossible]:
    """Every case that there cannot be for a transport."""
    return [
        Impossible(each, revision, why)
        for each in _RULES.values()
        for revision in maker.revisions
        if (why := each.impossible(maker, revision)) is not None
    ]
