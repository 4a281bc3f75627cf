"""The leg book: its decision in each state, as a table, and the events that lead there."""

from __future__ import annotations

import pytest
from wire_terms import INTERNAL_ERROR

from trio_mcp import CancelReason
from trio_mcp.protocol.jsonrpc import Encoded, ErrorDetail
from trio_mcp.session.calls.facts import Question
from trio_mcp.session.calls.legs import (
    KEPT_OUTCOMES,
    Decision,
    LegBook,
    OpenQuestion,
    OpenQuestionRecord,
    Position,
    asked_in_order,
)
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, RequestedSchema

ROUND = Encoded(b'{"resultType":"input_required"}')
RESULT = Encoded(b"{}")
FAILURE = ErrorDetail(INTERNAL_ERROR, "failed")


def running(number: int = 2) -> LegBook:
    """A call on its second leg."""
    book = LegBook(number - 1)
    book.end(ROUND)
    book.begin()
    return book


def parked() -> LegBook:
    book = running()
    book.end(ROUND)
    return book


def answered() -> LegBook:
    """A call that came to its end while it was parked."""
    book = parked()
    book.finish(RESULT)
    return book


def cancelled() -> LegBook:
    """A call that was cancelled while it was parked."""
    book = parked()
    book.finish(None)
    return book


def returned() -> LegBook:
    """A call that answered its last leg."""
    book = running()
    book.end(RESULT)
    book.finish(RESULT)
    return book


NO, JOIN, REPEAT = Decision.REFUSE, Decision.JOIN, Decision.REPEAT
C = CancelReason


@pytest.mark.parametrize(
    ("book", "reason", "position", "after_next", "next_leg", "same_leg", "earlier_leg"),
    [
        (running, None, Position.RUNNING, NO, NO, JOIN, REPEAT),
        (running, C.DEADLINE, Position.RUNNING, NO, NO, JOIN, REPEAT),
        (running, C.SHUTDOWN, Position.RUNNING, NO, NO, JOIN, REPEAT),
        (running, C.CLIENT, Position.ABANDONED, NO, NO, Decision.GONE, REPEAT),
        (running, C.DISCONNECT, Position.ABANDONED, NO, NO, Decision.GONE, REPEAT),
        (parked, None, Position.PARKED, NO, Decision.BEGIN, REPEAT, REPEAT),
        (parked, C.DEADLINE, Position.TIMED_OUT, NO, Decision.WAIT, REPEAT, REPEAT),
        (parked, C.SHUTDOWN, Position.SHUT_DOWN, NO, Decision.BUSY, REPEAT, REPEAT),
        (parked, C.EXPIRED, Position.EXPIRED, NO, Decision.EXPIRED, REPEAT, REPEAT),
        (answered, None, Position.ANSWERED, NO, Decision.FINISH, REPEAT, REPEAT),
        (answered, C.DEADLINE, Position.ANSWERED, NO, Decision.FINISH, REPEAT, REPEAT),
        (cancelled, C.EXPIRED, Position.EXPIRED, NO, Decision.EXPIRED, REPEAT, REPEAT),
        (cancelled, C.DEADLINE, Position.EXPIRED, NO, Decision.EXPIRED, REPEAT, REPEAT),
        (cancelled, C.SHUTDOWN, Position.SHUT_DOWN, NO, Decision.BUSY, REPEAT, REPEAT),
        (returned, None, Position.ANSWERED, NO, Decision.FINISH, REPEAT, REPEAT),
    ],
)
def test_what_a_request_means_in_each_position(
    book, reason, position, after_next, next_leg, same_leg, earlier_leg
) -> None:
    legs: LegBook = book()
    assert legs.number == 2
    assert legs.position(reason) is position
    decided = [legs.decide(ended, reason) for ended in (3, 2, 1, 0)]
    assert decided == [after_next, next_leg, same_leg, earlier_leg]


def test_a_repeated_leg_has_the_outcome_that_was_kept() -> None:
    legs = returned()
    assert (legs.outcome(1), legs.outcome(2), legs.final) == (ROUND, RESULT, RESULT)


def test_a_leg_that_gets_the_end_of_the_call_counts_and_may_be_repeated() -> None:
    legs = answered()
    legs.begin()
    legs.end(legs.final)
    assert legs.number == 3
    assert (legs.decide(2, None), legs.outcome(3)) == (REPEAT, RESULT)
    assert legs.decide(3, None) is Decision.FINISH


def test_only_the_last_outcomes_are_kept() -> None:
    legs = LegBook()
    for _ in range(KEPT_OUTCOMES + 2):
        legs.end(ROUND)
        legs.begin()
    assert [legs.decide(ended, None) for ended in (0, 1, 2)] == [NO, NO, REPEAT]


def test_a_revived_call_knows_no_earlier_leg() -> None:
    legs = LegBook(5)
    assert [legs.decide(ended, None) for ended in (3, 4, 5)] == [NO, JOIN, NO]


def test_the_size_of_what_is_kept_counts_each_outcome_once() -> None:
    assert returned().kept_bytes() == len(ROUND.raw) + len(RESULT.raw)
    assert answered().kept_bytes() == 2 * len(ROUND.raw) + len(RESULT.raw)
    failed = running()
    failed.end(FAILURE)
    assert failed.kept_bytes() == len(ROUND.raw)


# questions


def asked(order: tuple[int, ...], fingerprint: str = "f") -> OpenQuestion:
    params = ElicitRequestFormParams(mode="form", message="?", requested_schema=RequestedSchema(properties={}))
    return OpenQuestion(Question("elicit", "elicitation/create", params, ElicitResult, ()), fingerprint, order)


def test_questions_are_ordered_by_branch_and_then_as_asked() -> None:
    legs = LegBook()
    legs.questions.update(
        {"b/10-1": asked((10, 1)), "b/2-1": asked((2, 1)), "seat": asked((1,)), "b/2/1-1": asked((2, 1, 1))}
    )
    assert list(asked_in_order(legs.questions)) == ["seat", "b/2-1", "b/2/1-1", "b/10-1"]


KEY, OTHER = OpenQuestionRecord("elicitation/create", "f"), OpenQuestionRecord("elicitation/create", "g")


@pytest.mark.parametrize(
    ("book", "reason", "ended", "remembered", "superseded"),
    [
        (running, None, 2, {}, False),  # it is ahead, or a copy
        (running, None, 5, {}, False),
        (parked, None, 2, {"k": KEY}, False),  # the same round, asked here and there
        (parked, None, 2, {"k": OTHER}, True),  # the same leg went another way there
        (parked, None, 2, {}, True),
        (parked, None, 3, {"k": KEY}, True),
        (parked, None, 1, {"k": OTHER}, False),  # an earlier leg: it is repeated
        (parked, C.EXPIRED, 3, {"k": KEY}, True),
        (answered, None, 3, {}, False),
        (cancelled, C.EXPIRED, 2, {"k": KEY}, True),
        (cancelled, C.EXPIRED, 1, {"k": KEY}, False),
    ],
)
def test_a_call_is_superseded_by_a_later_state_of_another_process(book, reason, ended, remembered, superseded) -> None:
    legs: LegBook = book()
    legs.questions["k"] = asked((1,))
    assert legs.is_superseded(ended, remembered, reason) is superseded
