"""A body in pieces: other tasks run between them, and a body of many small ones is recognized."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
import trio

from trio_mcp.runtime.loop_turn import (
    MANY_PIECES,
    MEAN_PIECE,
    PIECES_IN_TURN,
    BodyTooLarge,
    PiecesInTurns,
    PiecesTooSmall,
)


async def pieces(count: int, size: int) -> AsyncGenerator[bytes]:
    for _ in range(count):
        yield b"x" * size


async def test_others_have_a_turn_while_pieces_are_read_that_have_come_already() -> None:
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander)
        assert len([piece async for piece in PiecesInTurns(pieces(50 * PIECES_IN_TURN, 1))]) == 50 * PIECES_IN_TURN
        nursery.cancel_scope.cancel()
    assert turns >= 48


async def test_a_cancel_loses_no_piece() -> None:
    body = PiecesInTurns(pieces(3 * PIECES_IN_TURN, 1))
    read = 0
    with trio.CancelScope() as scope:
        scope.cancel()
        async for _ in body:
            read += 1
    assert (read, scope.cancelled_caught) == (PIECES_IN_TURN, True)
    assert len([piece async for piece in body]) == 2 * PIECES_IN_TURN


@pytest.mark.parametrize(
    ("count", "size", "small"),
    [(MANY_PIECES, 1, False), (MANY_PIECES + 1, MEAN_PIECE - 1, True), (MANY_PIECES + 1, MEAN_PIECE, False)],
)
async def test_many_pieces_of_a_few_bytes_are_too_small(count: int, size: int, small: bool) -> None:
    async with aclosing(pieces(count, size)) as left:
        if small:
            with pytest.raises(PiecesTooSmall):
                await PiecesInTurns(left).read()
        else:
            assert len(await PiecesInTurns(left).read()) == count * size


async def test_a_body_over_its_limit_is_not_read_to_its_end() -> None:
    assert len(await PiecesInTurns(pieces(2, 5)).read(10)) == 10
    async with aclosing(pieces(4, 5)) as left:
        with pytest.raises(BodyTooLarge):
            await PiecesInTurns(left).read(10)
        assert len([piece async for piece in left]) == 1
