"""The tasks of a group: one for each server, below a system task that `open` starts and `aclose` ends."""

from __future__ import annotations

import contextvars
from collections.abc import Collection
from enum import Enum
from typing import Final

import trio

from ..errors import Disconnected
from ..groups import first_leaf, without
from ..session.event_loop import check_event_loop
from .group_member import Connection
from .system_tasks import split_contained

CLOSE_TIMEOUT: Final = 20.0
"""Seconds that closing may take: each client has fifteen, at the same time as the others."""

NOT_OPEN: Final = "the group is not open: call it inside `async with ClientGroup(...) as group:`"


class _Phase(Enum):
    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


class GroupTasks:
    """Owns the tasks of a group.

    Args:
        connections: to its servers.
    """

    def __init__(self, connections: Collection[Connection]) -> None:
        self._connections = connections
        self._phase = _Phase.NEW
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._done = trio.Event()
        self._failure: BaseException | None = None

    @property
    def nursery(self) -> trio.Nursery:
        """Owns what lives as long as the group.

        Raises:
            Disconnected: the group is not open.
        """
        if self._nursery is None or self._phase is not _Phase.OPEN:
            raise Disconnected(NOT_OPEN)
        return self._nursery

    async def open(self) -> None:
        """Start the tasks, and wait until each server was tried once. A cancel closes the group.

        Raises:
            RuntimeError: it was opened before.
            Disconnected: it was closed meanwhile.
        """
        check_event_loop()
        if self._phase is not _Phase.NEW:
            raise RuntimeError("a group is opened once: make another one")
        self._phase = _Phase.OPEN
        # With the caller's context, so that callbacks of the program see its context variables.
        trio.lowlevel.spawn_system_task(self._main, name="a group of clients", context=contextvars.copy_context())
        try:
            await trio.lowlevel.checkpoint()
            for connection in self._connections:
                await connection.tried.wait()
        # `__aexit__` does not run if `__aenter__` raises, so nothing else would close the group.
        except BaseException:
            await self.aclose()  # noqa: ASYNC102  it is shielded and bounded itself
            raise
        if self._phase is not _Phase.OPEN:
            raise Disconnected("the group was closed while it opened")

    async def aclose(self) -> None:
        """Close all clients, from any task. Idempotent; bounded, also when cancelled.

        Raises:
            BaseException: a `SystemExit` of a handler, once.
        """
        was_open = self._phase is _Phase.OPEN
        self._phase = _Phase.CLOSED
        self._scope.cancel()
        if was_open:
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._done.wait()
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
            del failure
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        return self._phase.value

    async def _main(self) -> None:
        """Run everything else, and let only a cancel out: what leaves a system task ends Trio's loop."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    for connection in self._connections:
                        nursery.start_soon(connection.keep)
                    await trio.sleep_forever()
        except BaseException as error:  # noqa: BLE001, ASYNC103  it is raised by `aclose`
            self._contain(error)
        finally:
            self._done.set()

    def _contain(self, error: BaseException) -> None:
        cancelled, rest = split_contained(error)
        if rest is not None:
            # A handler has called `sys.exit()`, say; or this package has a bug, which must not be silent.
            self._failure = first_leaf(without(rest, Exception) or rest)
        if cancelled is not None:
            raise cancelled
