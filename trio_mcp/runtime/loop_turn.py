"""Turns of the event loop: how much is done for peers before every other task may run."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import trio

TURN: Final = 64 * 1024
"""What may be done before every other task has a turn: about 10 ms of work. Reading a byte costs one, see `LoopTurn.spent`."""


LARGE_VALUES: Final = 5_000
"""Values of a JSON text that take about a millisecond to copy, and as much to write."""


class LoopTurn:
    """What has been done for the peers of a service since every other task had a turn.

    It is shared by all connections: else a hundred of them could each use a turn, one after the other.

    Attributes:
        spent: what it has cost, in units of about a tenth of a microsecond. Code that works for a peer adds to it, and lets other
            tasks run before it goes on if `is_over`.
        turns_of_trio: returns how many turns Trio has had, if messages are also processed outside of it, on asyncio; else None.
    """

    __slots__ = ("_passing", "_seen", "spent", "turns_of_trio")

    def __init__(self) -> None:
        self.spent = 0
        self.turns_of_trio: Callable[[], int] | None = None
        self._seen = 0
        """Turns of Trio that have been taken into account."""
        self._passing = trio.Lock()

    @property
    def is_over(self) -> bool:
        """Whether other tasks should run before more is done."""
        return self.spent > TURN and not self._has_passed_by_itself()

    def _has_passed_by_itself(self) -> bool:
        """Return whether Trio has had a turn since this was asked last; then nothing has been spent.

        So at most two turns are spent before every other task has one.
        """
        turns = 0 if self.turns_of_trio is None else self.turns_of_trio()
        if turns == self._seen:
            return False
        self._seen = turns
        self.spent = 0
        return True

    async def pass_on(self) -> None:
        """Return when every other task that is ready has had a turn, and this one may do as much as fits into the next.

        Tasks that wait here at the same time go on in the order in which they came, each with what the one before it left of the
        turn. A cancel ends the wait for those before it, but not the turn itself, so that a channel that is read alone loses no
        message.
        """
        try:
            self._passing.acquire_nowait()
        except trio.WouldBlock:
            await self._passing.acquire()
        try:
            if self.spent > TURN:
                await let_others_run()
                self.spent = 0
        finally:
            self._passing.release()


def is_large(value: object, limit: int = LARGE_VALUES) -> bool:
    """Return whether reading JSON, with models in it, takes milliseconds: it has more than `limit` values. The check is fast."""
    left = [value]
    for _ in range(limit):
        if not left:
            return False
        each = left.pop()
        if isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
        elif hasattr(each, "__dict__"):
            left += vars(each).values()
    return True


async def let_others_run() -> None:
    """Return when every other task that is ready has had a turn. Shielded: a message was received, and must not be lost."""
    # Twice: Trio runs the tasks of a turn in any order, so a task may have had this turn already, and come last in the next.
    for _ in range(2):
        await trio.lowlevel.cancel_shielded_checkpoint()


# Bodies that a peer sends in pieces, which it may make as small as it likes.

PIECES_IN_TURN: Final = 100
"""Pieces that are read before every other task has a turn: some milliseconds of work in an HTTP library."""
MANY_PIECES: Final = 10_000
"""Pieces that a body may have, whatever their size."""
MEAN_PIECE: Final = 16
"""Bytes that the pieces of a body have in the mean, if they are more."""


class BodyTooLarge(Exception):
    """A body has more bytes than its limit."""


class PiecesTooSmall(Exception):
    """A body comes in over `MANY_PIECES` pieces of under `MEAN_PIECE` bytes on average: too many to read all of it."""


@dataclass(slots=True, eq=False, repr=False)
class PiecesInTurns:
    """Yields pieces as they come, and lets other tasks run after every hundred: those that have come already are read at once.

    A cancel loses no piece.
    """

    _pieces: AsyncIterator[bytes]
    _count: int = 0
    _size: int = 0

    async def read(self, limit: float = math.inf, keep: Callable[[int], None] = lambda _size: None) -> bytes:
        """Return all that is left, joined.

        Args:
            limit: in bytes.
            keep: called with the size of each piece before it is kept; what it raises ends the read.

        Raises:
            BodyTooLarge, PiecesTooSmall: the rest was not read.
        """
        read, size = list[bytes](), 0
        async for piece in self:
            size += len(piece)
            if size > limit:
                raise BodyTooLarge
            if self._count > MANY_PIECES and self._size < MEAN_PIECE * self._count:
                raise PiecesTooSmall
            keep(len(piece))
            read.append(piece)
        return b"".join(read)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._count and self._count % PIECES_IN_TURN == 0:
            await trio.lowlevel.checkpoint()
        piece = await anext(self._pieces)
        self._count += 1
        self._size += len(piece)
        return piece
