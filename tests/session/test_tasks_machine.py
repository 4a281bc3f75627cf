"""Programs of callers' behaviour, good and bad, are run against a server that crashes, and whose clocks jump.

The calls are plain ones and tasks of both eras, with a store that keeps what was committed. After each action everything that a
caller receives must agree with its earlier answers and with the work that was done: see `tasks_told` and `tasks_invariants`. The
number of examples comes from the environment, as that of `test_rounds_machine` does: `TRIO_MCP_RUNS=10000`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence

import pytest
import trio
from hypothesis import HealthCheck, Phase, example, given, settings, strategies as st
from tasks_invariants import Machine
from trio.testing import MockClock

RUNS = int(os.environ.get("TRIO_MCP_RUNS", "30"))

ACTIONS = (
    "wait",  # what others shrink to
    *("start",) * 6,
    *("get",) * 6,
    *("update",) * 5,
    *("leg", "answer") * 3,
    *("result", "repeat", "release", "crash", "arm", "cancel") * 2,
    *("stall", "unstall") * 2,
    *("list", "disconnect", "close", "restart", "pass", "set_clock"),
)
LATE_ACTIONS = (*ACTIONS, *("late",) * 6, *("lapse",) * 5, *("land",) * 3)
NUMBER = st.integers(0, 63)
Program = list[tuple[str, int, int, int, int]]


def run_program(program: Program) -> None:
    clock = MockClock()

    async def main() -> None:
        with trio.fail_after(1e6):
            async with trio.open_nursery() as nursery:
                machine = Machine(clock, nursery)
                with machine.wall.installed():
                    try:
                        await machine.open()
                        for name, *numbers in program:
                            await getattr(machine, f"act_{name}")(*numbers)
                            await machine.after_each()
                        await machine.finish()
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
    max_examples=RUNS,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


UPDATE_AS_TASK_ENDS: Program = [
    ("start", 0, 0, 8, 0),
    ("get", 0, 0, 0, 0),
    ("stall", 0, 0, 0, 0),
    ("update", 0, 0, 0, 0),
    ("cancel", 0, 0, 0, 0),
]
LATE_ANSWER_ON_STREAM: Program = [
    ("start", 0, 0, 62, 0),
    ("result", 0, 0, 0, 0),
    ("late", 0, 0, 0, 0),
    ("answer", 0, 0, 0, 0),
]
LATE_CREATION_AFTER_CLOCK_STEP: Program = [
    *[("start", 0, 0, 0, 0)] * 3,
    ("set_clock", 3, 0, 0, 0),
    ("late", 0, 62, 0, 0),
    ("start", 0, 0, 2, 0),
]
CANCEL_BEFORE_A_LATE_TAKE_OVER: Program = [
    ("start", 0, 14, 2, 0),
    ("late", 44, 0, 0, 0),
    ("start", 0, 0, 6, 0),
    ("restart", 0, 0, 0, 0),
    ("cancel", 0, 0, 0, 0),
]
CANCEL_OF_A_TASK_THAT_GOES_ON_LATE: Program = [
    ("start", 0, 0, 2, 0),
    ("late", 3, 0, 0, 0),
    ("start", 0, 0, 6, 0),
    ("restart", 0, 0, 0, 0),
    ("cancel", 0, 0, 0, 0),
]
ANSWER_BEFORE_A_LATE_TAKE_OVER: Program = [
    ("start", 0, 0, 2, 0),
    ("get", 0, 0, 0, 0),
    ("late", 3, 0, 0, 0),
    ("start", 0, 0, 2, 0),
    ("crash", 0, 0, 0, 0),
    ("restart", 0, 0, 0, 0),
    ("update", 0, 0, 0, 0),
]
ANSWER_AFTER_THE_QUESTION_IS_WITHDRAWN: Program = [
    ("start", 0, 0, 14, 0),
    ("get", 0, 0, 0, 0),
    ("late", 0, 0, 0, 0),
    ("start", 0, 0, 6, 0),
    ("late", 2, 0, 0, 0),
    ("restart", 0, 0, 0, 0),
    ("update", 0, 0, 0, 0),
]
SECOND_ANSWER_AFTER_A_LATE_TAKE_OVER: Program = [
    ("start", 0, 0, 2, 0),
    ("get", 0, 0, 0, 0),
    ("late", 0, 0, 0, 0),
    ("restart", 0, 0, 0, 0),
    ("update", 0, 0, 0, 0),
    ("pass", 2, 0, 0, 0),
    ("update", 0, 0, 0, 0),
]
ANSWER_THAT_EXPIRES_BEFORE_A_LATE_TAKE_OVER: Program = [
    *SECOND_ANSWER_AFTER_A_LATE_TAKE_OVER[:5],
    *[("set_clock", 3, 0, 0, 0)] * 2,
]
REPEAT_GOES_BEFORE_THE_QUESTION: Program = [("start", 0, 4, 42, 0), ("repeat", 0, 1, 0, 0), ("close", 0, 0, 0, 0)]


@runs
@given(programs(ACTIONS))
@example(UPDATE_AS_TASK_ENDS)
@example(REPEAT_GOES_BEFORE_THE_QUESTION)
def test_any_program_of_tasks_crashes_and_clock_jumps_is_consistent_with_earlier_answers(program: Program) -> None:
    run_program(program)


@runs
@given(programs(LATE_ACTIONS))
@example(LATE_ANSWER_ON_STREAM)
@example(LATE_CREATION_AFTER_CLOCK_STEP)
@example(CANCEL_BEFORE_A_LATE_TAKE_OVER)
@example(CANCEL_OF_A_TASK_THAT_GOES_ON_LATE)
@example(ANSWER_BEFORE_A_LATE_TAKE_OVER)
@example(ANSWER_AFTER_THE_QUESTION_IS_WITHDRAWN)
@example(SECOND_ANSWER_AFTER_A_LATE_TAKE_OVER)
@example(ANSWER_THAT_EXPIRES_BEFORE_A_LATE_TAKE_OVER)
def test_any_program_with_writes_that_time_out_and_are_made_later_does_nothing_twice(program: Program) -> None:
    run_program(program)
