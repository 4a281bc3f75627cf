"""`ctx.elicit`, `.strict` and `.with_retry`, keyed questions and their contexts, in both eras."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
import trio
from naming import naming, unnamed
from one_tool import answered, success_of
from pydantic import BaseModel, Field
from talk import DECLINE, DISMISS, Json, Legacy, accept, offering, play, session_with, talk_to
from trio.testing import MockClock
from typing_extensions import TypedDict

from trio_mcp import Context, Elicit, RequestTimeout, Server, Titled
from trio_mcp.errors import (
    BranchElicitNotAllowed,
    CapabilityError,
    ElicitationCancelled,
    ElicitationDeclined,
    ElicitationInvalid,
)
from trio_mcp.server import FormError

ELICIT = "trio-mcp/elicit"


@dataclass
class Seat:
    row: int
    side: Literal["window", "aisle"] = "aisle"


class Meal(TypedDict):
    dish: str


class Level(Enum):
    LOW = "low"
    HIGH = "high"


class Board(BaseModel):
    cells: list[str]


BOARD = Board(cells=["x", "o"])
PICK = Elicit("pick", int, context=Board)
SEAT = Elicit("seat", Seat)


# schemas


@pytest.mark.parametrize(
    ("schema", "content", "expected"),
    [
        (int, {"value": 3}, 3),
        (Seat, {"row": 3}, Seat(3)),
        (Meal, {"dish": "fish"}, {"dish": "fish"}),
        (["low", "high"], {"value": "high"}, "high"),
        (Titled({"s": "Small", "m": "Medium"}), {"value": "m"}, "m"),
        (Annotated[Level, Titled("Low", "High")], {"value": "low"}, Level.LOW),
        (list[Level], {"value": ["low", "high"]}, [Level.LOW, Level.HIGH]),
        (None, {}, None),
        (None, {"value": 3}, None),
    ],
    ids=str,
)
async def test_each_kind_of_schema_has_its_value(era: type[Legacy], schema: Any, content: Json, expected: Any) -> None:
    async def read(ctx: Context) -> str:
        answer = await ctx.elicit("?", schema)
        assert answer.action == "accept"
        return repr(answer.content)

    async def strict(ctx: Context) -> str:
        return repr(await ctx.elicit.strict("?", schema))

    for tool in (read, strict):
        assert (await answered(tool, era, accept(**content)))[0] == repr(expected)


@pytest.mark.parametrize(
    ("schema", "properties"),
    [
        (None, {}),
        (["low", "high"], {"value": {"type": "string", "enum": ["low", "high"]}}),
        (Titled({"s": "Small"}), {"value": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]}}),
    ],
)
async def test_choices_and_a_confirmation_are_forms(schema: Any, properties: Json) -> None:
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit("?", schema)).action

    async with talk_to(offering(tool)) as talk:
        asked = await talk.round(talk.leg("tool"))
    shown = asked.questions[asked.key]["params"]["requestedSchema"]
    assert shown["properties"] == properties
    assert shown.get("required") == (list(properties) or None)


async def test_without_a_schema_the_user_only_confirms(era: type[Legacy]) -> None:
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit("Delete everything?")).action

    text, (asked,) = await answered(tool, era, {"action": "accept"})  # without content
    assert (text, asked["requestedSchema"]["properties"]) == ("accept", {})


@pytest.mark.parametrize(
    "schema", [list[Literal["a", "b"]], list[Annotated[Literal["a"], Titled("A")]]], ids=["untitled", "titled"]
)
async def test_a_multiple_choice_is_refused_where_the_revision_has_none(schema: Any) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(CapabilityError, match=naming("2025-06-18", "value")):
            await ctx.elicit("?", schema)
        return (await ctx.elicit("Then only one?", Titled({"a": "A"}))).action

    async with session_with(offering(tool), "2025-06-18") as talk:
        call = talk.call("tool")
        question = await talk.question()
        titled = question["params"]["requestedSchema"]["properties"]["value"]
        assert (titled["enum"], titled["enumNames"]) == (["a"], ["A"])
        talk.answer(question, accept(value="a"))
        assert await talk.text(call) == "accept"


# strict


@pytest.mark.parametrize(("answer", "error"), [(DECLINE, ElicitationDeclined), (DISMISS, ElicitationCancelled)])
async def test_strict_raises_what_the_user_chose_instead(
    era: type[Legacy], answer: Json, error: type[Exception]
) -> None:
    async def catches(ctx: Context) -> str:
        with pytest.raises(error):
            await ctx.elicit.strict("How many?", int)
        return "caught"

    async def lets_through(ctx: Context) -> str:
        return f"{await ctx.elicit.strict('How many?', int)}"

    assert (await answered(catches, era, answer))[0] == "caught"
    async with play(offering(lets_through), era) as player:
        await player.call("lets_through")
        await player.question()
        await player.answer(answer)
        assert unnamed(await player.failure(), "How many?") == []


# with_retry


@pytest.mark.parametrize(
    ("answers", "action"),
    [([DECLINE, DECLINE, DECLINE], "decline"), ([DECLINE, accept(value=3)], "accept"), ([DECLINE, DISMISS], "cancel")],
    ids=["until the attempts are used up", "until he accepts", "until he closes the question"],
)
async def test_a_user_who_declines_is_asked_again(era: type[Legacy], answers: list[Json], action: str) -> None:
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit.with_retry("How many?", int)).action

    text, asked = await answered(tool, era, *answers)
    assert (text, [each["message"] for each in asked]) == (action, ["How many?"] * len(answers))


@pytest.mark.parametrize(
    ("on_decline", "outcome", "asked"), [("return", "decline", 1), ("error", "raised", 1), ("retry", "decline", 2)]
)
async def test_what_follows_a_decline_is_the_authors_choice(
    era: type[Legacy], on_decline: Any, outcome: str, asked: int
) -> None:
    async def tool(ctx: Context) -> str:
        try:
            return (await ctx.elicit.with_retry("How many?", int, max_attempts=2, on_decline=on_decline)).action
        except ElicitationDeclined:
            return "raised"

    assert (await answered(tool, era, *[DECLINE] * asked))[0] == outcome


async def test_invalid_answers_count_as_attempts_and_the_last_one_is_raised(era: type[Legacy]) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(ElicitationInvalid, match=naming("2 attempts")):
            await ctx.elicit.with_retry("How many?", int, max_attempts=2)
        return "raised"

    text, (first, second) = await answered(tool, era, accept(value="many"), accept(value="lots"))
    assert (text, first["message"]) == ("raised", "How many?")
    assert "could not be used" in second["message"]


async def test_the_timeout_is_for_all_attempts(autojump_clock: MockClock) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(RequestTimeout):
            await ctx.elicit.with_retry("?", int, max_attempts=9, timeout=3)
        return f"{trio.current_time():g}"

    async with session_with(offering(tool)) as talk:
        call = talk.call("tool")
        for _ in range(2):
            question = await talk.question()
            await trio.sleep(1)
            talk.answer(question, DECLINE)
        await talk.question()
        await talk.notification("notifications/cancelled")
        assert await talk.text(call) == "3"


# branches


async def test_no_form_of_asking_gets_past_a_branch_that_may_not() -> None:
    async def tool(ctx: Context) -> str:
        async def child(branch: Context) -> str:
            for ask in (branch.elicit, branch.elicit.strict, branch.elicit.with_retry):
                with pytest.raises(BranchElicitNotAllowed):
                    _ = ask("?", bool)
            with pytest.raises(BranchElicitNotAllowed):
                _ = branch.elicit_url("?", "https://example.com")
            return "refused"

        return await ctx.branch(child, allow_elicit=False)

    async with session_with(offering(tool)) as talk:
        assert await talk.text(talk.call("tool")) == "refused"


# keyed questions


async def play_game(ctx: Context) -> str:
    pick = await ctx.elicit("Your move?", PICK, context=BOARD)
    assert pick.action == "accept"
    assert pick.context is BOARD
    seat = await ctx.elicit("Which seat?", SEAT)
    assert seat.action == "accept"
    assert seat.context is None
    return f"{pick.content} {seat.content.row}"


async def test_a_context_travels_in_meta_and_nowhere_else(era: type[Legacy]) -> None:
    text, (pick, seat) = await answered(play_game, era, accept(value=2), accept(row=4), elicits=[PICK, SEAT])
    assert text == "2 4"
    assert pick["_meta"] == {ELICIT: {"tool": "tool", "key": "pick", "context": {"cells": ["x", "o"]}}}
    assert pick["message"] == "Your move?"
    assert pick["requestedSchema"]["properties"].keys() == {"value"}
    assert seat["_meta"] == {ELICIT: {"tool": "tool", "key": "seat"}}


async def test_a_question_without_a_key_has_no_meta(era: type[Legacy]) -> None:
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit("?", int)).action

    _, (asked,) = await answered(tool, era, accept(value=1))
    assert "_meta" not in asked


NO_FORMS: list[tuple[Any, str]] = [
    ([], "['low', 'high']"),
    ([1, 2], "[1, 2]"),
    (["a", "a"], "twice"),
    ([["a"], ["b"]], "['a']"),
    (Titled("Small"), "Titled('Small')"),
    (Titled({}), "a choice"),
    ({"type": "object"}, "'type'"),
    (BOARD, "Board"),
    (Board, "Board.cells"),
]
ARGUMENTS: list[Any] = [{"reask": -1}, {"reask": "2"}, {"timeout": 0}, {"context": BOARD}]
RETRIES: list[Any] = [{"max_attempts": each} for each in (0, 101, 10**9, "3")] + [{"on_decline": "again"}]
WRONG: list[tuple[str, tuple[Any, ...], Any, Any, object]] = [
    *(("elicit", ("?", schema), {}, FormError, named) for schema, named in NO_FORMS),
    *(("elicit", ("?", int), wrong, (TypeError, ValueError), next(iter(wrong))) for wrong in ARGUMENTS),
    *(("strict", ("?", int), wrong, (TypeError, ValueError), next(iter(wrong))) for wrong in ARGUMENTS),
    *(("with_retry", ("?", int), wrong, (TypeError, ValueError), next(iter(wrong))) for wrong in RETRIES),
    ("elicit", (3, int), {}, TypeError, "message"),
    ("elicit", ("?", PICK), {}, TypeError, ""),
    ("elicit", ("?", PICK), {"context": "board"}, TypeError, ""),
    ("elicit", ("?", PICK), {"context": {"cells": 3}}, TypeError, ""),
    ("elicit", ("?", SEAT), {"context": BOARD}, TypeError, ""),
    ("elicit", ("?", Elicit("other", int)), {}, LookupError, "other"),
    ("strict", ("?", Elicit("other", int)), {}, LookupError, "other"),
]


@pytest.mark.parametrize(("method", "args", "options", "error", "named"), WRONG)
async def test_a_wrong_question_is_an_error_at_once(
    method: str, args: tuple[Any, ...], options: Any, error: Any, named: str
) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(error, match=naming(named)):
            _ = (ctx.elicit if method == "elicit" else getattr(ctx.elicit, method))(*args, **options)
        return "refused"

    assert await success_of(tool, legacy=True, elicits=[PICK, SEAT]) == "refused"


@pytest.mark.parametrize("context", ["Board", BOARD, 3])
def test_a_context_is_declared_by_its_type(context: Any) -> None:
    with pytest.raises(TypeError, match="context"):
        Elicit("pick", int, context=context)


class Trip(BaseModel):
    seat: Annotated[Seat, Field()]


@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_a_form_that_is_not_flat_is_refused_at_registration_by_tool_key_and_field(kind: str) -> None:
    async def book(ctx: Context) -> str:
        return ""

    server = Server("forms")
    register = server.tool if kind == "tool" else server.prompt
    with pytest.raises(FormError, match=naming("book", "'trip'", "Trip.seat")):
        register(elicits=[Elicit("trip", Trip)])(book)
    assert server.tools == ()
