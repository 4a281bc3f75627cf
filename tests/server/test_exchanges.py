"""`ElicitExchange`: an accepted question and its answer as messages for a model."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from connected import connected
from one_tool import answered
from pydantic import BaseModel
from scripted_model import message, use
from talk import DECLINE, DISMISS, Json, Legacy, accept, offering

from trio_mcp import Accepted, Context, Elicit, Server, accept as user_accepts
from trio_mcp.server import ElicitExchange
from trio_mcp.testing import replay_tool
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, TextContent, ToolResultContent, ToolUseContent

ID = re.compile(r"elicit_[0-9a-f]{16}_(\d+)")


class Board(BaseModel):
    cells: list[str]
    secret: str = "hunter2"


BOARD = Board(cells=["x"])
PICK = Elicit("pick", int, context=Board)


def exchange(**changes: Any) -> ElicitExchange[Board]:
    given = {"id": "elicit_ab_1", "key": "pick", "message": "Your move?", "answer": {"value": 2}, "context": BOARD}
    return ElicitExchange(**{**given, **changes})


def number(name: str) -> int:
    """The last part of an id; the whole of it is as long as the ids of OpenAI may be."""
    match = ID.fullmatch(name)
    assert match is not None, name
    assert len(name) <= 40
    return int(match[1])


# shapes


def test_the_messages_are_a_tool_call_and_its_result() -> None:
    asked = exchange()
    request, response = asked.messages
    assert request == message("assistant", "Your move?", use("pick", "elicit_ab_1"))
    result = ToolResultContent(tool_use_id="elicit_ab_1", content=[TextContent(text='{"value":2}')])
    assert response == message("user", result)
    assert asked.messages == (asked.request, asked.response)
    with pytest.raises(AttributeError):
        asked.id = "other"  # type: ignore[misc]


def test_a_question_without_a_text_has_no_empty_block() -> None:
    bare = exchange(message="")
    assert [type(block) for block in bare.request.content] == [ToolUseContent]  # type: ignore[union-attr]
    assert bare.to_anthropic()[0]["content"] == [{"type": "tool_use", "id": bare.id, "name": "pick", "input": {}}]


def test_the_context_is_shown_only_by_with_arguments() -> None:
    plain = exchange()
    shown = plain.with_arguments(lambda board: {"cells": list(board.cells)})
    assert (plain.arguments, shown.arguments) == ({}, {"cells": ["x"]})
    assert (shown.id, shown.answer, shown.context) == (plain.id, plain.answer, BOARD)
    for each, visible in ((plain, False), (shown, True)):
        written = json.dumps([message.wire() for message in each.messages] + each.to_openai() + each.to_anthropic())
        assert ("cells" in written) is visible
        assert "hunter2" not in written


def test_it_is_written_as_openai_takes_it() -> None:
    function = {"name": "pick", "arguments": '{"cells":1}'}
    assert exchange(arguments={"cells": 1}).to_openai() == [
        {
            "role": "assistant",
            "content": "Your move?",
            "tool_calls": [{"id": "elicit_ab_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "elicit_ab_1", "content": '{"value":2}'},
    ]


def test_it_is_written_as_anthropic_takes_it() -> None:
    use = {"type": "tool_use", "id": "elicit_ab_1", "name": "pick", "input": {"cells": 1}}
    result = {"type": "tool_result", "tool_use_id": "elicit_ab_1", "content": [{"type": "text", "text": '{"value":2}'}]}
    assert exchange(arguments={"cells": 1}).to_anthropic() == [
        {"role": "assistant", "content": [{"type": "text", "text": "Your move?"}, use]},
        {"role": "user", "content": [result]},
    ]


# what elicit returns


async def twice(ctx: Context) -> str:
    """Ask twice, the first time with a context."""
    for answer in (await ctx.elicit("Your move?", PICK, context=BOARD), await ctx.elicit("How many?", int)):
        if isinstance(answer, Accepted):
            KEPT.append(answer.exchange)
    return "done"


KEPT: list[ElicitExchange[Any]] = []
"""The exchanges of the answers that were accepted."""


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    KEPT.clear()


async def test_an_accepted_answer_has_its_exchange(era: type[Legacy]) -> None:
    await answered(twice, era, accept(value=2), accept(value=5), elicits=[PICK])
    first, second = KEPT
    assert (first.key, first.message, first.answer, first.context) == ("pick", "Your move?", {"value": 2}, BOARD)
    assert (second.key, second.message, second.answer, second.context) == ("elicit", "How many?", {"value": 5}, None)
    assert [number(each.id) for each in KEPT] == [1, 2]
    assert first.id.rpartition("_")[0] == second.id.rpartition("_")[0]


@pytest.mark.parametrize("answer", [DECLINE, DISMISS])
async def test_there_is_no_exchange_without_an_answer(era: type[Legacy], answer: Json) -> None:
    async def tool(ctx: Context) -> str:
        result = await ctx.elicit("How many?", int)
        return f"{hasattr(result, 'exchange')}"

    assert (await answered(tool, era, answer))[0] == "False"


async def test_a_question_that_is_asked_again_keeps_its_number_and_its_first_text(era: type[Legacy]) -> None:
    await answered(twice, era, accept(value="many"), accept(value=3), accept(value=4), elicits=[PICK])
    assert [(number(each.id), each.message) for each in KEPT] == [(1, "Your move?"), (2, "How many?")]


async def test_branches_share_the_numbers_of_their_call_and_calls_share_none(mode: str) -> None:
    async def child(ctx: Context) -> str:
        answer = await ctx.elicit("?", int)
        assert answer.action == "accept"
        return answer.exchange.id

    async def tool(ctx: Context) -> list[str]:
        return [await child(ctx), *await ctx.branch_all(child, child, child)]

    calls: list[list[str]] = []
    async with connected(offering(tool), mode=mode, on_elicit=lambda _: user_accepts(value=1)) as client:
        for _ in range(2):
            result = await client.call_tool("tool")
            calls.append(result.structured_content["result"])  # type: ignore[arg-type]
    for ids in calls:
        assert sorted(map(number, ids)) == [1, 2, 3, 4]
        assert number(ids[0]) == 1
    assert set(calls[0]).isdisjoint(calls[1])


async def test_the_ids_are_the_same_in_every_replay() -> None:
    runs: list[dict[str, str]] = []
    server = Server("exchanges")

    @server.tool(resume="replay")
    async def forms(ctx: Context) -> str:
        seen: dict[str, str] = {}
        runs.append(seen)

        def asks(name: str) -> Any:
            async def child(branch: Context) -> None:
                for turn in range(2):
                    answer = await branch.elicit(f"{name}{turn}", int)
                    assert answer.action == "accept"
                    seen[f"{name}{turn}"] = answer.exchange.id

            return child

        await ctx.branch_all(*map(asks, "abcd"))
        answer = await ctx.elicit("last", int)
        assert answer.action == "accept"
        seen["last"] = answer.exchange.id
        return "done"

    def answer(_: ElicitRequestFormParams) -> ElicitResult:
        return user_accepts(value=1)

    for _ in range(5):
        runs.clear()
        assert not (await replay_tool(server, "forms", on_elicit=answer)).divergences
        final = runs[-1]
        assert sorted(map(number, final.values())) == list(range(1, 10))
        assert all(seen.items() <= final.items() for seen in runs)
