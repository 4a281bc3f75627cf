"""The tic-tac-toe example: who wins, what the client can draw, and what the model reads."""

from __future__ import annotations

import pytest

from examples.tic_tac_toe import play, server
from trio_mcp import accept, decline, dismiss
from trio_mcp.testing import MockClient, SecondWorker, replay_tool
from trio_mcp.types import CreateMessageRequestParams, ElicitResult, SamplingMessage


def texts(message: SamplingMessage) -> list[str]:
    """The texts and the types of the blocks of a message."""
    blocks = message.content if isinstance(message.content, list) else [message.content]
    return [getattr(block, "text", block.type) for block in blocks]


@pytest.mark.parametrize(
    ("moves", "replies", "end"),
    [
        ([1, 2, 3], ["4", "5"], "The user wins.\nx x x\no o 6\n7 8 9"),
        ([1, 2, 9], ["4", "5", "6"], "You win.\nx x 3\no o o\n7 8 x"),
        ([1, 2, 6, 7, 9], ["3", "4", "5", "8"], "A draw.\nx x o\no o x\nx o x"),
    ],
    ids=["user", "model", "draw"],
)
async def test_a_game_is_played_to_its_end(moves: list[int], replies: list[str], end: str, mode: str) -> None:
    client = MockClient(elicits=moves, samples=replies, era=mode)
    assert (await client.call(play)).text == end


@pytest.mark.parametrize("answer", [decline(), dismiss()], ids=["declined", "dismissed"])
async def test_a_user_who_does_not_answer_gives_up(answer: ElicitResult, mode: str) -> None:
    client = MockClient(elicits=[1, answer], samples=["2"], era=mode)
    assert (await client.call(play)).text == "The user gave up.\nx o 3\n4 5 6\n7 8 9"


async def test_a_cell_that_is_taken_is_asked_for_again(mode: str) -> None:
    client = MockClient(elicits=[1, 2, decline()], samples=["2"], era=mode)
    await client.call(play)
    assert [question.message for question in client.questions if question.kind == "elicit"] == [
        "Your move, x?",
        "Your move, x?",
        "Cell 2 is taken. Your move, x?",
    ]


async def test_a_model_that_names_no_free_cell_twice_gets_the_first_one(mode: str) -> None:
    client = MockClient(elicits=[1, decline()], samples=["the corner", "cell 1"], era=mode)
    assert (await client.call(play)).text == "The user gave up.\nx o 3\n4 5 6\n7 8 9"


async def test_the_board_is_the_context_of_each_question(mode: str) -> None:
    client = MockClient(elicits=[1, decline()], samples=["I take 5."], era=mode)
    await client.call(play)
    asked = [question.params for question in client.questions if question.key == "move"]
    boards = [dict(params.meta or {})["trio-mcp/elicit"]["context"]["cells"] for params in asked]
    assert boards == [[""] * 9, ["x", "", "", "", "o", "", "", "", ""]]


async def test_the_model_reads_the_exchanges_so_far_and_its_own_moves(mode: str) -> None:
    seen: list[CreateMessageRequestParams] = []

    def model(params: CreateMessageRequestParams) -> str:
        seen.append(params)
        return ["5", "9"][len(seen) - 1]

    client = MockClient(elicits=[1, 2, decline()], samples=model, era=mode)
    await client.call(play)
    assert [(message.role, texts(message)) for message in seen[-1].messages] == [
        ("assistant", ["Your move, x?", "tool_use"]),
        ("user", ["tool_result"]),
        ("assistant", ["5"]),
        ("assistant", ["Your move, x?", "tool_use"]),
        ("user", ["tool_result"]),
    ]
    _, call = seen[-1].messages[3].content
    assert (call.name, call.input) == ("move", {"free": [2, 3, 4, 6, 7, 8, 9]})


async def test_another_process_goes_on_with_a_game(mode: str) -> None:
    client = MockClient(elicits=[1, SecondWorker(2), 3], samples=["4", "5"], era=mode)
    assert (await client.call(play)).text.startswith("The user wins.")


async def test_the_game_is_the_same_when_every_leg_is_replayed() -> None:
    moves, replies = iter([1, 2, 3]), iter(["4", "5"])
    report = await replay_tool(
        server, "play", on_elicit=lambda _question: accept(cell=next(moves)), on_sample=lambda _params: next(replies)
    )
    report.check()
    assert report.result is not None
    assert report.result.text.startswith("The user wins.")
