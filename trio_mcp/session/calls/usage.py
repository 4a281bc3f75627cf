"""Counts what still uses the offers of a server, so that its lifespan is closed after its last call has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import trio

T = TypeVar("T")


class Usage:
    """How many calls run that began with some offers, and what else uses their state.

    Attributes:
        count: calls, and holders of `held`, that have not ended.
    """

    __slots__ = ("_unused", "count")

    def __init__(self) -> None:
        self.count = 0
        self._unused = trio.lowlevel.ParkingLot()

    def counted(self, work: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        """Count `work` from now until it ends, and return it in a form that says so. It must be run."""
        self.count += 1

        async def run(*args: object) -> T:
            try:
                return await work(*args)
            finally:
                self.leave()

        return run

    @contextmanager
    def held(self) -> Generator[None]:
        """Count as one in the block."""
        self.count += 1
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Count one less."""
        self.count -= 1
        if not self.count:
            self._unused.unpark_all()

    async def wait_unused(self) -> None:
        """Return when nothing is counted."""
        while self.count:
            await self._unused.park()
