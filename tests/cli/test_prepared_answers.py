"""What the options of `trio-mcp call` answer: in turn, the last one again, and what was not used."""

from __future__ import annotations

import pytest

from trio_mcp.cli.terminal.prompting import Prompting, Terminal
from trio_mcp.types import (
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitResult,
    RequestedSchema,
    StringSchema,
)

FORM = ElicitRequestFormParams(
    mode="form",
    message="Which?",
    requested_schema=RequestedSchema(properties={"seat": StringSchema()}, required=["seat"]),
)
PROMPT = CreateMessageRequestParams(messages=[], max_tokens=9)


def prompting(answers: list[tuple[str, str]], samples: list[str]) -> Prompting:
    return Prompting(Terminal(), answers, samples)


async def test_samples_are_used_in_turn_and_the_last_one_again() -> None:
    asked = prompting([], ["one", "two"])
    assert [await asked.sample(PROMPT) for _ in range(3)] == ["one", "two", "two"]
    assert asked.unused == []


async def test_what_was_not_used_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = prompting([("seat", "window"), ("seat", "aisle"), ("meal", "fish")], ["one", "two"])
    assert await asked.elicit(FORM) == ElicitResult(action="accept", content={"seat": "window"})
    await asked.sample(PROMPT)
    assert asked.unused == ["--answer seat=aisle", "--answer meal=fish", "--sample 'two'"]
    await asked.elicit(FORM)
    assert asked.unused == ["--answer meal=fish", "--sample 'two'"]


def test_without_samples_no_model_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "is_interactive", False)
    assert not prompting([], []).samples
    assert prompting([], [""]).samples


async def test_a_confirmation_without_its_answer_is_declined_with_the_option_to_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Terminal, "is_interactive", False)
    form = ElicitRequestFormParams(mode="form", message="Sure?", requested_schema=RequestedSchema(properties={}))
    assert (await prompting([("value", "yes")], []).elicit(form)).action == "decline"
    assert "--answer accept=y" in capsys.readouterr().err
    assert (await prompting([("accept", "y")], []).elicit(form)).action == "accept"
