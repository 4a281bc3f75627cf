"""The asynchronous tests of this folder run in virtual time; fixtures for a legacy session and the run of its tool."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from talking import Session, Stage, Talk, WatchedStore, talking
from trio.testing import MockClock

HERE = Path(__file__).parent
T = TypeVar("T")


def run_in_virtual_time(
    main: Callable[[], Awaitable[T]], *, clock: object = None, instruments: Sequence[trio.abc.Instrument] = ()
) -> T:
    return trio.run(main, clock=MockClock(autojump_threshold=0), instruments=instruments)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time))


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def talk(stage: Stage) -> Talk:
    """The next run of the tool `talk`."""
    return stage.expect()


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
async def session(stage: Stage, store: WatchedStore) -> AsyncIterator[Session]:
    async with talking(stage, store=store) as session:
        yield session
