"""The watchdog: who keeps the event loop from turning is logged, once each time. Here the loop really stands still."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import pytest
import trio
from actors import Ended, forever, quick
from naming import unnamed
from trio.testing import MockClock

from trio_mcp.base import late
from trio_mcp.runtime import Actor, CancelReason, Supervisor, open_supervisor, watchdog as module

SOON = 10.0
PERIOD = 0.02
NAME = "trio_mcp watchdog"


async def waits(_actor: Actor) -> None:
    await trio.sleep(5 * PERIOD)


class Barking(logging.Handler):
    """Keeps what the watchdog logs, and lets a blocked loop wait for it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self._barked = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        self._barked.release()

    def hear(self) -> None:
        """Block the calling thread until something was logged."""
        assert self._barked.acquire(timeout=SOON), "the watchdog said nothing"


@pytest.fixture
def barking() -> Iterator[Barking]:
    handler = Barking()
    logger = logging.getLogger("trio_mcp.watchdog")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def watchdogs() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == NAME]


@asynccontextmanager
async def watched() -> AsyncIterator[Supervisor]:
    async with open_supervisor(watchdog=PERIOD) as supervisor:
        yield supervisor


async def run(supervisor: Supervisor, body: Callable[[Actor], Awaitable[object]], label: str = "actor") -> None:
    ended = Ended()
    with trio.fail_after(SOON):
        supervisor.start(body, ended, label=label)
        await ended.wait()


async def test_an_actor_that_blocks_the_loop_is_logged_with_its_name_and_where_it_is(barking: Barking) -> None:
    async def computes(_actor: Actor) -> None:
        await trio.lowlevel.checkpoint()
        barking.hear()  # this line blocks

    async with watched() as supervisor:
        await run(supervisor, computes, "sum")
        assert supervisor.watchdog.incidents == 1
    (said,) = barking.said
    assert unnamed(said, "sum-1", "0.02 seconds") == []
    assert "barking.hear()  # this line blocks" in said


async def test_it_is_logged_once_each_time_that_the_loop_stands_still(barking: Barking) -> None:
    async def blocks_twice(_actor: Actor) -> None:
        for _ in range(2):
            barking.hear()
            time.sleep(5 * PERIOD)  # noqa: ASYNC251  still the same
            for _ in range(3):  # turns of the loop
                await trio.lowlevel.checkpoint()

    async with watched() as supervisor:
        await run(supervisor, blocks_twice)
        assert supervisor.watchdog.incidents == 2
    assert len(barking.said) == 2


async def test_a_task_below_the_actor_is_the_actors(barking: Barking) -> None:
    async def blocks() -> None:
        barking.hear()

    async def body(_actor: Actor) -> None:
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            inner.start_soon(blocks)
            outer.start_soon(trio.lowlevel.checkpoint)

    async with watched() as supervisor:
        await run(supervisor, body, "nested")
    assert barking.said[0].startswith("nested-1 ")


@pytest.mark.parametrize("is_late", [True, False], ids=["by late.py", "by the body"])
async def test_an_import_is_the_actors_unless_this_project_loads_something_late(
    barking: Barking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    package = f"slow_package_{is_late}"
    tmp_path.joinpath(package).mkdir()
    tmp_path.joinpath(package, "__init__.py").write_text("")
    tmp_path.joinpath(package, "slow.py").write_text(f"import time\ntime.sleep({5 * PERIOD})\nVALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_module(package)
    load_late, *_ = late.exports(package, {"slow": "VALUE"})

    async def body(_actor: Actor) -> None:
        assert (load_late("VALUE") if is_late else import_module(f"{package}.slow").VALUE) == 1

    async with watched() as supervisor:
        await run(supervisor, body)
        assert supervisor.watchdog.incidents == (not is_late)
    assert len(barking.said) == (not is_late)


async def test_what_blocks_the_loop_and_is_no_actor_is_not_blamed_on_one(barking: Barking) -> None:
    async with watched() as supervisor:
        supervisor.start(forever, Ended())
        await trio.lowlevel.checkpoint()
        time.sleep(5 * PERIOD)  # noqa: ASYNC251
        assert supervisor.watchdog.incidents == 0
    assert barking.said == []


async def test_an_actor_that_waits_is_not_logged(barking: Barking) -> None:
    async with watched() as supervisor:
        await run(supervisor, waits)
    assert barking.said == []


async def test_the_thread_starts_with_the_first_actor_and_is_gone_at_the_end() -> None:
    async with watched() as supervisor:
        assert watchdogs() == []
        for _ in range(3):
            await run(supervisor, quick)
        assert watchdogs() == [NAME]
    assert watchdogs() == []


async def test_the_thread_is_gone_when_the_supervisor_is_cancelled() -> None:
    with trio.CancelScope() as scope:
        async with watched() as supervisor:
            actor = supervisor.start(forever, Ended())
            actor.cancel(CancelReason.CLIENT)
            scope.cancel()
            await trio.sleep_forever()
    assert watchdogs() == []


async def test_it_sleeps_when_nothing_runs_and_wakes_with_the_next_actor(
    barking: Barking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_PROBES_BEFORE_SLEEP", 2)
    async with watched() as supervisor:
        await run(supervisor, quick)
        with trio.fail_after(SOON):
            while not supervisor.watchdog.asleep:
                await trio.lowlevel.checkpoint()

        async def blocks(_actor: Actor) -> None:
            barking.hear()

        await run(supervisor, blocks)
    assert len(barking.said) == 1


async def test_there_is_none_under_virtual_time(autojump_clock: MockClock) -> None:
    async with watched() as supervisor:
        await run(supervisor, waits)
        assert watchdogs() == []


async def test_infinity_turns_it_off() -> None:
    async with open_supervisor() as supervisor:
        await run(supervisor, quick)
        assert watchdogs() == []


async def test_one_that_falls_asleep_while_it_is_closed_is_gone_too() -> None:
    dog = module.Watchdog(PERIOD, lambda: False, lambda _task: None)
    dog.close()
    sleeper = threading.Thread(target=dog._sleep, daemon=True)  # noqa: SLF001  the moment between its look and its sleep
    sleeper.start()
    await trio.to_thread.run_sync(sleeper.join, SOON / 10)
    assert not sleeper.is_alive()
