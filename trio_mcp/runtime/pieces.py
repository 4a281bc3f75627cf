"""Bodies that a peer sends in pieces, which it may make as small as it likes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import trio

PIECES_IN_TURN: Final = 100
"""Pieces that are read before every other task has a turn: some milliseconds of work in an HTTP library."""
MANY_PIECES: Final = 10_000
"""Pieces that a body may have, whatever their size."""
MEAN_PIECE: Final = 16
"""Bytes that the pieces of a body have in the mean, if they are more."""


class PiecesInTurns:
    """Yields pieces as they come, and lets other tasks run after every hundred: those that have come already are read at once.

    A cancel loses no piece.
    """

    __slots__ = ("_count", "_pieces", "_size")

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._count = 0
        self._size = 0

    @property
    def are_too_small(self) -> bool:
        """Whether there are over `MANY_PIECES` pieces of under `MEAN_PIECE` bytes on average: too many to read a whole body."""
        return self._count > MANY_PIECES and self._size < MEAN_PIECE * self._count

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._count and self._count % PIECES_IN_TURN == 0:
            await trio.lowlevel.checkpoint()
        piece = await anext(self._pieces)
        self._count += 1
        self._size += len(piece)
        return piece
