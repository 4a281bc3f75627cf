"""Log records as lines of text and of JSON, with what they belong to."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from trio_mcp import configure_logging
from trio_mcp.base.logs import LOG_CONTEXT, LOG_FORMATS, LOG_LEVELS, LogContext, LogFormat

ESCAPE = "\x1b[31m\u202e"


@pytest.fixture
def belongs() -> Iterator[None]:
    token = LOG_CONTEXT.set(LogContext("r1", "ann", "tools/call", "book" + ESCAPE))
    yield
    LOG_CONTEXT.reset(token)


def logged(format: LogFormat, *args: Any, level: int = logging.WARNING, **more: Any) -> str:
    out = io.StringIO()
    configure_logging("info", format, stream=out)
    logging.getLogger("shop.tools").log(level, *args, **more)
    return out.getvalue()


def test_a_record_is_one_object_in_one_line_of_ascii(root_logger: logging.Logger, belongs: None) -> None:
    line = logged("json", "sold %s", "a\nbook" + ESCAPE)
    assert line.isascii()
    assert line.count("\n") == 1
    assert "\x1b" not in line
    record = json.loads(line)
    assert (record["level"], record["logger"], record["request"], record["principal"]) == (
        "warning",
        "shop.tools",
        "r1",
        "ann",
    )
    assert record["call"]["method"] == "tools/call"
    assert "\x1b" not in record["call"]["name"]
    assert record["message"].startswith("sold a\nbook")
    assert record["time"].endswith("+00:00")


def test_text_has_what_a_record_belongs_to_and_no_control_characters(
    root_logger: logging.Logger, belongs: None
) -> None:
    line = logged("text", "sold %s", ESCAPE)
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert "tools/call book" in line
    assert "ann r1]" in line


@pytest.mark.parametrize("format", LOG_FORMATS)
def test_outside_of_calls_a_record_belongs_to_nothing(root_logger: logging.Logger, format: LogFormat) -> None:
    line = logged(format, "started")
    assert "request" not in line
    assert "[" not in line


def test_an_exception_is_a_member_of_its_record(root_logger: logging.Logger) -> None:
    try:
        raise ValueError("no book" + ESCAPE)
    except ValueError:
        record = json.loads(logged("json", "failed", exc_info=True))
    assert "ValueError: no book" in record["exception"]
    assert "\x1b" not in record["exception"]


def test_records_below_the_level_are_not_shown(root_logger: logging.Logger) -> None:
    assert logged("json", "detail", level=logging.DEBUG) == ""


@pytest.mark.parametrize("wrong", [("loud", "json"), ("info", "xml")])
def test_a_wrong_level_or_format_is_refused(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        configure_logging(*wrong)


def test_the_values_for_a_command_line_are_those_that_are_accepted(root_logger: logging.Logger) -> None:
    for level in LOG_LEVELS:
        for format in LOG_FORMATS:
            configure_logging(level, format, stream=io.StringIO())  # type: ignore[arg-type]
