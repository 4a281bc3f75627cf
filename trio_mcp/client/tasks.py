"""`ClientTask`: a handle on a task of a server, which goes on without its caller."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, Self, TypeVar

import trio

from ..checks import check_seconds, check_sync_callback
from ..errors import RequestTimeout
from ..types import CallToolResult, InputRequest, Task
from ..unawaited import unawaited
from .task_follow import Follower
from .timeouts import run_with_timeout

T_co = TypeVar("T_co", covariant=True)


class ClientTask(Generic[T_co]):
    """A task of a server: a call that goes on without this client; `Client.start_tool` and `Client.task` return one.

        task = await client.start_tool("report", {"year": 2026})
        save(task.id)
        async for change in task:
            print(change.status, change.status_message)
        result = await task.result()

    What the task asks is answered, by the handlers of the client, while somebody awaits `result` or iterates. The task goes on
    without that, until it asks. Every method raises `PeerError` if the server does not know the task, or no longer (its `ttl`
    is over), and `Disconnected` if the connection ends; `client.task(id)` of another client picks the task up.
    """

    def __init__(self, follower: Follower, read: Callable[[CallToolResult], T_co]) -> None:
        self._follower = follower
        self._read = read

    @property
    def id(self) -> str:
        """What names the task at the server, also to another client. Empty if the server has answered at once with a result."""
        return self._follower.known.id

    @property
    def questions(self) -> Mapping[str, InputRequest]:
        """What the task asked in the newest state that is known, by key; empty unless its status was `input_required`.

        A server of 2025-11-25 asks on the stream of the result instead, so that there are none here.
        """
        return MappingProxyType(self._follower.known.questions)

    @unawaited("task.status")
    async def status(self, *, timeout: float = math.inf) -> Task:
        """Ask the server for the state of the task, and return it: `status`, `status_message`, and its times."""
        return await run_with_timeout(timeout, "tasks/get", self._follower.status)

    @unawaited("task.result")
    async def result(self, *, timeout: float = math.inf, on_change: Callable[[Task], None] | None = None) -> T_co:
        """Wait until the task is over, and return its result, validated as `call_tool` does.

        Args:
            timeout: seconds to wait. The task goes on after that.
            on_change: a plain function, called with each change of the task.

        Raises:
            TaskCancelled: the task was cancelled.
            PeerError: it failed.
            RequestTimeout: it is not over yet.
            LimitExceeded: it asked in more rounds than it may (`max_rounds`).
            RemoteProtocolError, ToolFailed: the result is not what was wanted, as of `call_tool`.

        A cancel leaves the task as it is: `cancel` ends it.
        """
        check_seconds("timeout", timeout)
        if on_change is not None:
            check_sync_callback("on_change", on_change)
        with trio.move_on_after(timeout):
            return self._read(await self._follower.result(on_change))
        raise RequestTimeout(f"the task {self.id[:64]} was not over within {timeout:g} seconds; it goes on")

    @unawaited("task.cancel")
    async def cancel(self, *, timeout: float = math.inf) -> None:
        """Cancel the task; returns when the server has agreed, which may be before the work has ended.

        A task that is over stays as it is.
        """
        await run_with_timeout(timeout, "tasks/cancel", self._follower.cancel)

    def __aiter__(self) -> TaskChanges:
        """Iterate over the states of the task: as it is now, then each change, to the one in which it is over.

        A change that follows before the last one was read takes its place.
        """
        return TaskChanges(self._follower)

    def __repr__(self) -> str:
        newest = self._follower.known.newest
        return f"<ClientTask {self.id[:64]!r} {'unknown' if newest is None else newest.status}>"


class TaskChanges:
    """The states of a task, one after another."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._seen: Task | None = None
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Task:
        """Wait for the next change, and answer what the task asks meanwhile. A cancel loses no change."""
        if self._is_over:
            raise StopAsyncIteration
        self._seen = await self._follower.change(self._seen)
        self._is_over = self._follower.known.is_over
        return self._seen
