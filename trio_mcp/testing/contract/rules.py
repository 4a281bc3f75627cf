"""The rules of the contract, and the cases that test a transport: one for each rule and revision that applies."""

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
"""Seconds that a case may take."""

VIRTUAL_LIMIT = 100_000.0
"""The same in virtual time."""

LEGACY = tuple(name for name, revision in REVISIONS.items() if revision.era is Era.LEGACY)
"""The revisions of the legacy era."""
MODERN = tuple(name for name, revision in REVISIONS.items() if revision.era is Era.MODERN)
"""The revisions of the modern era."""
ELICITS = tuple(name for name in REVISIONS if name >= "2025-06-18")
"""The revisions that have elicitation."""

Check = Callable[[Pair], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the contract, and the function that checks a pair against it.

    Attributes:
        group: a letter, or `peers` and `calls` for the two catalogues of failures.
        revisions: the revisions that it applies to; `why` says why the others are left out.
        needs: the traits that it needs, each with the reason why the rule does not apply without it.
        grace: seconds that a call continues after its client disconnected.
        threads: whether it uses real threads, and therefore real time.
        options: limits and times of the server.
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
        """Return why this rule does not apply to that transport in that revision; None if it does."""
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
        """Check the rule in a new Trio loop.

        Raises:
            AssertionError: the transport breaks the rule, or something was left behind.
            trio.TooSlowError: the check took too long.
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
    """Register a function as a rule of the contract; the function's name states the rule. See `Rule`.

    Args:
        needs: the traits; or a mapping from traits to reasons, if the reason is not the one in `IMPOSSIBLE`.

    Raises:
        ValueError: a rule with this name exists, or it leaves out revisions and `why` is missing.
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
    """Return the rules of the whole contract."""
    return tuple(_RULES.values())


def every(revisions: Sequence[str]) -> Sequence[str]:
    """Return all these revisions."""
    return revisions


def newest_of_each_era(revisions: Sequence[str]) -> Sequence[str]:
    """Return the newest legacy revision among these, and the newest modern one.

    A transport does not depend on the revision of its messages, so older ones need not be tested on every real wire.
    """
    return list({REVISIONS[name].era: name for name in sorted(revisions)}.values())


def cases_of(
    maker: Maker, group: str | None = None, *, choose: Callable[[Sequence[str]], Sequence[str]] = every
) -> list[Case]:
    """Return the cases that a transport must pass, of one group or of all.

    Args:
        choose: picks from the revisions that the rule and the transport have in common, as `newest_of_each_era` does.
    """
    return [
        Case(each, maker, revision)
        for each in _RULES.values()
        if group in (None, each.group)
        for revision in choose([name for name in maker.revisions if each.impossible(maker, name) is None])
    ]
