"""Programs of client behaviour, good and bad, are run against two processes and against a model of what they must answer.

One example is one list of actions, run on a separate clock in one Trio run. After each action the machine knows exactly
which requests have had a reply, what each reply says, and what every run of a tool has done so far. The number of examples
comes from the environment: `TRIO_MCP_RUNS=10000`; that takes more than a minute, so the watchdog has to be off
(`-o faulthandler_timeout=0`). `--hypothesis-seed` repeats a run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence

import pytest
import trio
from durable_rounds import Machine as DurableMachine
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from rounds_invariants import Machine
from trio.testing import MockClock

RUNS = int(os.environ.get("TRIO_MCP_RUNS", "100"))
DURABLE_RUNS = int(os.environ.get("TRIO_MCP_RUNS", "30"))

ACTIONS = (
    "wait",  # what others shrink to
    *("start",) * 4,
    *("next",) * 8,
    *("repeat",) * 3,
    *("release",) * 3,
    *("advance",) * 2,
    *("disconnect", "cancel", "stall", "unstall") * 2,
    *("forge", "close", "wall", "restart"),
)
DURABLE_ACTIONS = (
    "wait",
    *("start",) * 5,
    *("leg",) * 8,
    *("late",) * 5,
    *("lapse",) * 5,
    *("repeat", "land", "release") * 3,
    *("crash", "arm", "stall", "unstall") * 2,
    *("disconnect", "restart"),
)
NUMBER = st.integers(0, 63)
Program = list[tuple[str, int, int, int, int]]


def run_program(program: Program) -> None:
    clock = MockClock()

    async def main() -> None:
        with trio.fail_after(1e6):
            async with trio.open_nursery() as nursery:
                machine = Machine(clock, nursery)
                machine.processes = [await machine.boot(slot, 0) for slot in (0, 1)]
                for name, *numbers in program:
                    await getattr(machine, f"act_{name}")(*numbers)
                    await machine.after_each()
                await machine.finish()
                for process in machine.processes:
                    process.stop.set()

    trio.run(main, clock=clock)


def run_durable_program(program: Program) -> None:
    clock = MockClock()

    async def main() -> None:
        with trio.fail_after(1e6):
            async with trio.open_nursery() as nursery:
                machine = DurableMachine(clock, nursery)
                with machine.wall.installed():
                    try:
                        await machine.open()
                        for name, *numbers in program:
                            await getattr(machine, f"act_{name}")(*numbers)
                            await machine.after_each()
                        await machine.finish()
                        for process in machine.processes:
                            process.stop.set()
                    finally:
                        # After a failure, what a process still tries to store is given up in time.
                        clock.autojump_threshold = 0

    trio.run(main, clock=clock)


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """Every refusal is logged; thousands of them say nothing new."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def programs(actions: Sequence[str]) -> st.SearchStrategy[Program]:
    action = st.tuples(st.sampled_from(actions), NUMBER, NUMBER, NUMBER, NUMBER)
    return st.lists(action, min_size=12, max_size=40)


runs = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@settings(runs, max_examples=RUNS)
@given(programs(ACTIONS))
def test_any_program_of_legs_answers_repeats_losses_and_restarts_does_what_the_model_says(program: Program) -> None:
    run_program(program)


@settings(runs, max_examples=DURABLE_RUNS)
@given(programs(DURABLE_ACTIONS))
def test_any_program_of_two_processes_with_a_late_store_takes_no_step_twice_and_blocks_no_call(
    program: Program,
) -> None:
    run_durable_program(program)
