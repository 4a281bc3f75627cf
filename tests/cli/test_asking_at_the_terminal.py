"""Questions with one field at a terminal: their choices have numbers, and a single value has no field name."""

from __future__ import annotations

from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from trio_mcp import Titled
from trio_mcp.cli.terminal.prompting import ControllingTerminal, Prompting, Terminal
from trio_mcp.server.elicit.forms import form_of
from trio_mcp.types import ElicitRequestFormParams, ElicitResult


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Seat(BaseModel):
    seat: Literal["window", "aisle"]


class Trip(BaseModel):
    seat: Literal["window", "aisle"]
    meal: Literal["fish", "beans"]


class Scripted(Terminal):
    """A terminal at which these lines are entered."""

    is_interactive = True

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self.lines = list(lines)
        self.shown: list[str] = []

    def note(self, text: str, end: str = "\n") -> None:
        self.shown.append(text)

    async def ask(self, prompt: str) -> str | None:
        self.shown.append(prompt)
        return self.lines.pop(0)


async def asked(schema: Any, *lines: str) -> tuple[ElicitResult, str]:
    """The answer to a form after these lines, and what was shown."""
    terminal = Scripted(*lines)
    form = ElicitRequestFormParams(mode="form", message="Which?", requested_schema=form_of(schema).requested_schema)
    result = await Prompting(terminal, [], []).elicit(form)
    return result, "\n".join(terminal.shown)


@pytest.mark.parametrize(
    ("schema", "entered", "value"),
    [
        (["window", "aisle"], "2", "aisle"),
        (["window", "aisle"], "aisle", "aisle"),
        (["2", "1"], "2", "2"),
        (Titled({"w": "At the window", "a": "At the aisle"}), "2", "a"),
        (Level, "1", "low"),
        (list[Literal["a", "b", "c"]], "1, c", ["a", "c"]),
    ],
    ids=str,
)
async def test_a_choice_is_made_by_its_number_or_its_name(schema: Any, entered: str, value: Any) -> None:
    result, shown = await asked(schema, entered)
    assert result.content == {"value": value}
    assert "value (" not in shown


async def test_the_choices_are_shown_in_lines_with_numbers() -> None:
    _, shown = await asked(Titled({"w": "At the window", "a": "At the aisle"}), "1")
    assert "  1  w (At the window)\n  2  a (At the aisle)\n" in shown


async def test_a_number_without_a_choice_is_asked_again() -> None:
    result, shown = await asked(["window", "aisle"], "3", "0", "1")
    assert result.content == {"value": "window"}
    assert shown.count("window, aisle") == 2


async def test_a_single_value_without_choices_has_no_field_name_either() -> None:
    result, shown = await asked(int, "5")
    assert result.content == {"value": 5}
    assert "value (" not in shown


async def test_one_field_of_a_form_keeps_its_name_and_several_fields_have_no_numbers() -> None:
    result, shown = await asked(Seat, "2")
    assert result.content == {"seat": "aisle"}
    assert "seat (a number or a name)" in shown
    result, shown = await asked(Trip, "2", "aisle", "fish")
    assert result.content == {"seat": "aisle", "meal": "fish"}
    assert "seat (window, aisle)" in shown


@pytest.mark.usefixtures("on_windows")
def test_there_is_no_controlling_terminal_on_windows() -> None:
    with pytest.raises(OSError, match="Windows"):
        ControllingTerminal()
