"""The connections that a mock client keeps in an `async with` block: one to each server that it calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

import trio

from ...base.groups import unwrap
from ...base.named_tuples import NamedTuple
from ...client import Client
from ...server import Server
from .handlers import Attempt


class Connection(NamedTuple):
    """A connection to a server, and where the questions of its calls go to."""

    client: Client
    attempt: Attempt


class Connections:
    """The connections of one block; all are closed at its end.

    Args:
        open_connection: returns a context manager that connects to a server.
    """

    def __init__(self, open_connection: Callable[[Server], AbstractAsyncContextManager[Connection]]) -> None:
        self._open_connection = open_connection
        self._open: dict[Server, Connection] = {}
        self._opening = trio.Lock()
        self._over = trio.Event()
        self._manager = trio.open_nursery()

    async def to(self, server: Server) -> Connection:
        """Return the connection to a server, which is opened with the first call."""
        async with self._opening:
            if server not in self._open:
                self._open[server] = await self._nursery.start(self._hold, server)
        return self._open[server]

    async def _hold(self, server: Server, task_status: trio.TaskStatus[Connection]) -> None:
        async with self._open_connection(server) as connection:
            task_status.started(connection)
            await self._over.wait()

    async def __aenter__(self) -> Self:
        self._nursery = await self._manager.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        try:
            await self._manager.__aexit__(kind, error, traceback)  # noqa: ASYNC102  the end of a nursery, whose tasks were asked to end
        except BaseExceptionGroup as group:
            # The block raises what it would raise without the nursery.
            if (found := unwrap(group)) is not error:
                raise found from None
