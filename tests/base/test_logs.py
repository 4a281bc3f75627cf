"""What a peer wrote neither breaks a line of the log, nor reaches a terminal as an escape sequence, nor fills the log."""

from __future__ import annotations

import logging
import re

import pytest
from naming import unnamed

from trio_mcp.base.logs import (
    MAX_CHARACTERS,
    MAX_KINDS,
    MAX_TRACEBACKS,
    SHARED_LINES,
    SUMMARY_SECONDS,
    FailureLog,
    RepeatedRecords,
    one_line,
    peer_logger,
    printable,
)

ESCAPE = "\x1b]0;gone\x07\x1b[2J\x9b31m\u202egnp.exe"


@pytest.mark.parametrize("character", ESCAPE.replace("]0;gone", "").replace("[2J", ""))
def test_control_characters_are_replaced(character: str) -> None:
    if not character.isprintable():
        assert character not in printable(f"a{character}b")


def test_text_keeps_its_lines_and_tabs_and_a_record_has_one_line() -> None:
    assert printable("a\n\tb") == "a\n\tb"
    assert one_line("a\nWARNING b\u2028c") == "a\\nWARNING b\\nc"


def test_a_record_about_a_peer_is_printable_short_and_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    peer_logger("trio_mcp.test").warning("%s sent %s, %d times", ESCAPE, ValueError("x\n" * MAX_CHARACTERS), 3)
    (record,) = caplog.records
    text = record.getMessage()
    assert (text.isprintable(), text.endswith("3 times")) == (True, True)
    assert len(text) < 3 * MAX_CHARACTERS
    assert record.funcName == "test_a_record_about_a_peer_is_printable_short_and_in_one_line"


def test_a_warning_that_repeats_is_summarized_once_a_minute_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    records = RepeatedRecords(peer_logger("trio_mcp.test"), clock=lambda: now)
    for number in range(1_000):
        records.log("dropped %s", number)
    records.log("lost %s", "x")
    now = SUMMARY_SECONDS
    records.log("dropped %s", "y")
    records.log("dropped %s", "z")
    records.close()
    records.close()
    first, lost, summary, last = [record.getMessage() for record in caplog.records]
    assert (first, lost) == ("dropped 0", "lost x")
    assert "1000 more" in summary
    assert "1 more" in last


def test_errors_of_two_types_are_two_kinds_and_the_last_summary_keeps_the_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    records = RepeatedRecords(peer_logger("trio_mcp.test"), clock=lambda: 0.0)
    for error in (KeyError("a"), ValueError("b"), KeyError("c"), KeyError("d")):
        records.log("failed after %d s", 3, level=logging.ERROR, exc_info=error)
    records.close()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "failed after 3 s"),
        ("ERROR", "failed after 3 s"),
        ("ERROR", "2 more of these: failed after ... s"),
    ]


def test_a_level_that_is_off_costs_no_text(caplog: pytest.LogCaptureFixture) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("it was made into text")

    with caplog.at_level(logging.WARNING, "trio_mcp.test"):
        peer_logger("trio_mcp.test").debug("%s", Costly())


def test_a_traceback_shows_no_control_characters_and_no_line_that_looks_like_a_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        raise ValueError("from a peer\x1b[2J\nERROR:root:forged")
    except ValueError as error:
        peer_logger("trio_mcp.test").error("a tool failed", exc_info=error)
    shown = logging.Formatter("%(levelname)s %(message)s").format(caplog.records[0])
    assert "\x1b" not in shown
    first, *rest = shown.splitlines()
    assert first == "ERROR a tool failed"
    assert all(line.startswith("  ") for line in rest)
    assert any("forged" in line for line in rest)


def test_connections_share_a_bound_and_those_over_it_fold_into_the_summary(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    logger = peer_logger("trio_mcp.test")
    shared = RepeatedRecords(logger, lines=SHARED_LINES, clock=lambda: now)
    for _ in range(1_000):
        records = RepeatedRecords(logger, shared, clock=lambda: now)
        records.log("dropped %s", "x")
        records.log("dropped %s", "y")
        records.close()
    assert len(caplog.records) == SHARED_LINES
    now = SUMMARY_SECONDS
    RepeatedRecords(logger, shared, clock=lambda: now).log("dropped %s", "z")
    shared.close()
    numbers = [re.match(r"\d+", record.getMessage()) for record in caplog.records]
    assert len(numbers) == SHARED_LINES + 1
    assert sum(1 if number is None else int(number[0]) for number in numbers) == 2_001


class Broken(Exception):
    pass


def test_each_failure_is_a_record_and_the_first_of_a_kind_in_a_minute_have_their_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    failures, logger = FailureLog(clock=lambda: now), peer_logger("trio_mcp.test")

    def fail(kind: str, error: Exception) -> logging.LogRecord:
        caplog.clear()
        failures.log(logger, kind, f"{kind} failed", error, reference="0a1b", hint="\nadvice")
        (record,) = caplog.records
        return record

    for _ in range(MAX_TRACEBACKS):
        record = fail("add", Broken("x\ny"))
        assert (record.getMessage(), record.exc_info is None) == ("add failed [0a1b]\nadvice", False)
    record = fail("add", Broken("x\ny"))
    assert unnamed(record.getMessage(), "add failed", "[0a1b]", "Broken", "x\\ny") == []
    assert (record.exc_info, "\n" in record.getMessage()) == (None, False)
    assert fail("add", KeyError()).exc_info is not None
    assert fail("subtract", Broken()).exc_info is not None
    now = SUMMARY_SECONDS
    assert fail("add", Broken()).exc_info is not None


def test_a_traceback_without_code_of_an_author_is_shown_whole(caplog: pytest.LogCaptureFixture) -> None:
    ours: dict[str, object] = {"__name__": "trio_mcp.module"}
    exec("def fail():\n    raise KeyError", ours)
    failures = FailureLog()
    try:
        ours["fail"]()  # type: ignore[operator]
    except KeyError as error:
        # Without the frame of this test, which is an author's.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        failures.log(peer_logger("trio_mcp.test"), "add", "add failed", error)
    assert "in fail" in caplog.text


def test_the_number_of_kinds_of_failures_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    failures, logger = FailureLog(clock=lambda: 0.0), peer_logger("trio_mcp.test")
    for number in range(MAX_TRACEBACKS * MAX_KINDS):
        failures.log(logger, str(number), "failed", Broken())
    assert len(failures) == MAX_KINDS


def test_a_failure_whose_text_fails_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise Broken

    failures = FailureLog(clock=lambda: 0.0)
    for _ in range(MAX_TRACEBACKS + 1):
        failures.log(peer_logger("trio_mcp.test"), "add", "failed", Silent())
    assert "Silent" in caplog.records[-1].getMessage()
