"""Tic-tac-toe: the user plays x by filling in a form, and the client's model plays o by sampling.

    python examples/tic_tac_toe.py                 serves it on stdio
    python examples/tic_tac_toe.py http 8000       serves it at http://127.0.0.1:8000/mcp

The board is the context of each question: a client can draw it next to the form. The model reads the game as a conversation,
which is the questions and answers so far (`Accepted.exchange`) and its own moves. A game that waits for a move survives a restart
of the server if TRIO_MCP_KEYS is set. Each move is a round of a modern client; ours allows 10 (`call_tool(max_rounds=)`), and a
game without mistakes takes up to 9.
"""

from __future__ import annotations

import re
import sys

from pydantic import BaseModel, Field

from trio_mcp import Context, Elicit, Server
from trio_mcp.types import JsonObject, SamplingMessage, TextContent

server = Server("tic-tac-toe", version="1.0", instructions="Plays tic-tac-toe: the user against the model.")

LINES = [(1, 2, 3), (4, 5, 6), (7, 8, 9), (1, 4, 7), (2, 5, 8), (3, 6, 9), (1, 5, 9), (3, 5, 7)]
RULES = "You play o in tic-tac-toe. The cells are numbered 1 to 9, row by row. Answer with the number of a free cell."
ATTEMPTS = 2
"""How often the model may name a cell before it gets the first free one."""


class Board(BaseModel):
    """The context of a question: nine cells, each "x", "o" or empty."""

    cells: list[str] = Field(default_factory=lambda: [""] * 9)

    @property
    def free(self) -> list[int]:
        return [number for number, mark in enumerate(self.cells, start=1) if not mark]

    @property
    def winner(self) -> str:
        rows = ("".join(self.cells[number - 1] for number in line) for line in LINES)
        return next((row[0] for row in rows if row in ("xxx", "ooo")), "")

    def play(self, cell: int, mark: str) -> Board:
        """Return the board after a move."""
        return Board(cells=[mark if number == cell else old for number, old in enumerate(self.cells, start=1)])

    def __str__(self) -> str:
        marks = [mark or str(number) for number, mark in enumerate(self.cells, start=1)]
        return "\n".join(" ".join(marks[row : row + 3]) for row in (0, 3, 6))


class Move(BaseModel):
    """The form."""

    cell: int = Field(ge=1, le=9, description="The number of a free cell, row by row.")


MOVE = Elicit("move", Move, context=Board)


def shown_to_the_model(board: Board) -> JsonObject:
    return {"free": list(board.free)}


@server.tool(elicits=[MOVE], requires={"elicitation", "sampling"}, resume="replay")
async def play(ctx: Context) -> str:
    """Let the user play tic-tac-toe against you."""
    board = Board()
    game: list[SamplingMessage] = []
    for turn in range(9):
        played = await (users_move(board, game, ctx) if turn % 2 == 0 else models_move(board, game, ctx))
        if played is None:
            return f"The user gave up.\n{board}"
        board = played
        if board.winner:
            return f"{'The user wins' if board.winner == 'x' else 'You win'}.\n{board}"
    return f"A draw.\n{board}"


async def users_move(board: Board, game: list[SamplingMessage], ctx: Context) -> Board | None:
    """Return the board after the user's move; None if the user does not want to play on."""
    message = "Your move, x?"
    while True:
        answer = await ctx.elicit(message, MOVE, context=board)
        if answer.action != "accept":
            return None
        if answer.content.cell in board.free:
            game.extend(answer.exchange.with_arguments(shown_to_the_model).messages)
            return board.play(answer.content.cell, "x")
        message = f"Cell {answer.content.cell} is taken. Your move, x?"


async def models_move(board: Board, game: list[SamplingMessage], ctx: Context) -> Board:
    """Return the board after the model's move."""
    for _ in range(ATTEMPTS):
        answer = await ctx.sample(messages=game, system_prompt=RULES, max_tokens=16)
        named = re.search(r"[1-9]", answer.text)
        if named and int(named[0]) in board.free:
            cell = int(named[0])
            break
    else:
        cell = board.free[0]
    game.append(SamplingMessage(role="assistant", content=TextContent(text=str(cell))))
    return board.play(cell, "o")


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
