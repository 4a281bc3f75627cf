"""What a store provides to be tested, the rules, and the cases: one for each rule that applies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import trio

from ....storage import SharedStore, Store
from ..leaks import no_leaks, no_tasks_left

LIMIT = 60.0
"""Seconds that a case may take."""
POLL_SECONDS = 0.05
LEASE_LIMIT = 10.0
"""Seconds after which a process is dead whose lease is not renewed, however early the store may say that of any process."""


class StoreTrait(Enum):
    """An ability that some stores lack. A rule names those that it needs."""

    DURABLE = "durable"
    """What was written is there when the same place is opened again."""
    SHARED = "shared"
    """Several processes may open the same place at once. The class of the maker can be imported, and made without arguments."""
    NOTIFYING = "notifying"
    """It is a `SharedStore`: processes say what they are, and send each other notices. It is SHARED, too."""
    LEASED = "leased"
    """A process lives for as long as its lease: one that is killed is not dead at once, and one that is frozen is buried. It is
    NOTIFYING, too."""


class StoreMaker(Protocol):
    """One kind of store, as the contract sees it.

    Attributes:
        name: appears in the ids of cases.
        traits: its abilities.
    """

    name: str
    traits: frozenset[StoreTrait]

    def open(self, place: Path) -> AbstractAsyncContextManager[Store]:
        """Return a context manager that opens the store of that place, and closes it.

        Args:
            place: a path in a folder that exists; nothing is there before the first time.
        """
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that is open, and how to open it again.

    Attributes:
        store: opened for the case; closed after it.
    """

    store: Store
    maker: StoreMaker
    place: Path

    @property
    def shared(self) -> SharedStore:
        """The store, of a maker with `StoreTrait.NOTIFYING`."""
        assert isinstance(self.store, SharedStore)
        return self.store

    async def check_dead(self, node: str) -> None:
        """Raise `AssertionError` if a process lives; with leases, if it still does when its lease has lapsed."""
        if StoreTrait.LEASED in self.maker.traits:
            with trio.fail_after(LEASE_LIMIT):
                while await self.store.is_alive(node):  # noqa: ASYNC110  no event of ours
                    await trio.sleep(POLL_SECONDS)
        assert not await self.store.is_alive(node)

    def open_again(self) -> AbstractAsyncContextManager[Store]:
        """Open the same place once more."""
        return self.maker.open(self.place)


Check: TypeAlias = Callable[[Opened], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class StoreRule:
    """One rule of the contract, and the function that checks a store against it.

    Attributes:
        needs: the traits without which it does not apply.
    """

    name: str
    check: Check
    needs: frozenset[StoreTrait]


@dataclass(frozen=True, slots=True)
class StoreCase:
    """A rule and a store."""

    rule: StoreRule
    maker: StoreMaker

    def run(self, folder: Path) -> None:
        """Check the rule in a new Trio loop, with a store in this folder, which must be empty.

        Raises:
            AssertionError: the store breaks the rule, or something was left behind.
            trio.TooSlowError: the check took too long.
        """
        with no_leaks():
            trio.run(partial(self._run, folder / "store"), strict_exception_groups=True)

    async def _run(self, place: Path) -> None:
        with no_tasks_left(), trio.fail_after(LIMIT):
            async with self.maker.open(place) as store:
                await self.rule.check(Opened(store, self.maker, place))

    def __str__(self) -> str:
        return f"{self.maker.name}-{self.rule.name}"


_RULES: dict[str, StoreRule] = {}


def store_rule(*needs: StoreTrait) -> Callable[[Check], Check]:
    """Register a function as a rule of the contract of stores; the function's name states the rule.

    Raises:
        ValueError: a rule with this name exists.
    """

    def added(check: Check) -> Check:
        name = check.__name__
        if name in _RULES:
            raise ValueError(f"there are two rules {name}")
        _RULES[name] = StoreRule(name, check, frozenset(needs))
        return check

    return added


def all_store_rules() -> tuple[StoreRule, ...]:
    """Return the rules of the contract of stores."""
    return tuple(_RULES.values())


def store_cases_of(maker: StoreMaker) -> list[StoreCase]:
    """Return the cases that a store must pass."""
    return [StoreCase(rule, maker) for rule in all_store_rules() if rule.needs <= maker.traits]
