"""The table of a link's states: what it allows, and that everything else raises."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from trio_mcp.client import session_reconnecting
from trio_mcp.client.session_reconnecting import TRANSITIONS, LinkEvent, LinkState, Phase


def at(phase: Phase) -> LinkState:
    state = LinkState()
    state.phase = phase
    return state


def after(*events: LinkEvent) -> LinkState:
    state = LinkState()
    for event in events:
        state.move(event)
    return state


def documented() -> dict[tuple[Phase, LinkEvent], Phase]:
    """The table as the comment at the head of the module draws it: each cell begins below the first letter of its event."""
    assert session_reconnecting.__file__ is not None
    source = Path(session_reconnecting.__file__).read_text()
    header = next(line for line in source.splitlines() if line.startswith("#   state "))
    columns = [(match.start(), LinkEvent[match[0]]) for match in re.finditer("[A-Z_]+", header)]
    cells: dict[tuple[Phase, LinkEvent], Phase] = {}
    for phase in Phase:
        row = next(line for line in source.splitlines() if line.startswith(f"#   {phase.name} "))
        for match in re.finditer("[A-Z]+", row[row.index("|") :]):
            place = match.start() + row.index("|")
            event = min(columns, key=lambda column: abs(column[0] - place))[1]
            cells[phase, event] = Phase[match[0]]
    return cells


def test_the_table_in_the_comment_is_the_table_in_the_code() -> None:
    coded = {(phase, event): following for phase, moves in TRANSITIONS.items() for event, following in moves.items()}
    assert documented() == coded


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, LinkEvent)))
def test_an_event_moves_a_link_as_the_table_says_or_raises(phase: Phase, event: LinkEvent) -> None:
    state = at(phase)
    if event in TRANSITIONS[phase]:
        state.move(event)
        assert state.phase is TRANSITIONS[phase][event]
    else:
        with pytest.raises(RuntimeError, match=event.value):
            state.move(event)
        assert state.phase is phase


OPENED = (LinkEvent.START, LinkEvent.OPENED)
REOPENED = (LinkEvent.SESSION_LOST, LinkEvent.REOPEN, LinkEvent.INITIALIZED)


def test_only_an_answer_to_initialize_begins_another_generation() -> None:
    assert after(*OPENED, LinkEvent.SESSION_LOST, LinkEvent.REOPEN).generation == 0
    assert after(*OPENED, *REOPENED).generation == 1
    assert after(*OPENED, *REOPENED, LinkEvent.ATTEMPT_ENDED, *REOPENED).generation == 2


def test_a_session_that_is_lost_while_it_is_restored_is_lost_when_the_attempt_has_ended() -> None:
    state = after(*OPENED, *REOPENED)
    assert not state.is_session_lost
    state.move(LinkEvent.SESSION_LOST)
    assert state.is_session_lost
    state.move(LinkEvent.ATTEMPT_ENDED)
    assert (state.phase, state.is_session_lost) == (Phase.LOST, True)


def test_a_link_that_closes_takes_what_its_tasks_still_report_and_stays_closing() -> None:
    state = after(*OPENED, LinkEvent.SESSION_LOST, LinkEvent.REOPEN, LinkEvent.CLOSE)
    for event in (LinkEvent.SESSION_LOST, LinkEvent.INITIALIZED, LinkEvent.ATTEMPT_ENDED, LinkEvent.CLOSE):
        state.move(event)
        assert (state.phase, state.is_open) == (Phase.CLOSING, False)


def test_attempts_wait_longer_and_longer_until_a_session_was_stable() -> None:
    state = after(*OPENED, LinkEvent.SESSION_LOST)
    now, delays = 1000.0, []
    for _ in range(4):
        delays.append(state.delay(now))
        state.move(LinkEvent.REOPEN)
        state.end_attempt(now)
    assert delays[0] == 0
    assert all(shortest <= delay <= 2 * shortest for delay, shortest in zip(delays[1:], (0.25, 0.5, 1.0), strict=True))
    assert state.delay(now + 10) == 0
