"""The tasks of a server, as a client's methods."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import TypedDict, TypeVar, Unpack, overload

from ..checks import check_seconds, check_str
from ..protocol.codec.tasks import MAX_TASK_ID
from ..types import CallToolResult, JsonObject, JsonValue, Task
from ..unawaited import unawaited
from .call_options import MAX_ROUNDS, CallOptions
from .calls import Calls
from .listing import Listing
from .option_names import check_call_options
from .returned import value_reader
from .task_calls import TaskCalls
from .tasks import ClientTask

T = TypeVar("T")


class StartKeywords(TypedDict, total=False):
    """The keyword arguments of `Client.start_tool`, as type checkers see them."""

    ttl: float | None
    timeout: float
    meta: JsonObject | None
    max_rounds: int


class TaskMethods(Listing):
    """Base of `Client`: starts tools as tasks, and finds tasks again."""

    _calls: Calls
    _tasks: TaskCalls

    @overload
    async def start_tool(
        self, name: str, arguments: Mapping[str, JsonValue] | None = None, **options: Unpack[StartKeywords]
    ) -> ClientTask[CallToolResult]: ...
    @overload
    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | None = None,
        *,
        returns: type[T],
        **options: Unpack[StartKeywords],
    ) -> ClientTask[T]: ...
    @unawaited("client.start_tool")
    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | None = None,
        *,
        returns: object = None,
        **options: Unpack[StartKeywords],
    ) -> ClientTask[object]:
        """Start a tool as a task, and return a handle on it as soon as the server has agreed. The tool goes on without a caller.

            task = await client.start_tool("report", {"year": 2026}, ttl=3600)
            result = await task.result()

        A modern server may answer at once with the result; then the task is over already, and has no id.

        Args:
            returns: the type of the value that `result` returns, as of `call_tool`.
            ttl: seconds for which the server keeps the task, from its start; by default, and under the extension, it decides.
            timeout: seconds for the start, with the questions that come before it.
            meta: more members for `_meta`.
            max_rounds: how many times the tool may ask before its result (10 by default).

        Raises:
            CapabilityError: the server has no tasks, or the tool runs as none; use `call_tool`.

        And the errors of `call_tool`. A cancel withdraws the request; if the task was started already, it goes on.
        """
        check_call_options("start_tool", name, options, tuple(StartKeywords.__annotations__))
        ttl = options.get("ttl")
        if ttl is not None:
            check_seconds("ttl", ttl, positive=True, finite=True)
        read = self._reader(name, returns)
        made = CallOptions(
            timeout=options.get("timeout", math.inf),
            meta=options.get("meta"),
            max_rounds=options.get("max_rounds", MAX_ROUNDS),
        )
        return ClientTask(await self._calls.start(name, arguments, made, ttl), read)

    @overload
    def task(self, task_id: str, *, tool: str = "", max_rounds: int = MAX_ROUNDS) -> ClientTask[CallToolResult]: ...
    @overload
    def task(
        self, task_id: str, *, returns: type[T], tool: str = "", max_rounds: int = MAX_ROUNDS
    ) -> ClientTask[T]: ...
    def task(
        self, task_id: str, *, returns: object = None, tool: str = "", max_rounds: int = MAX_ROUNDS
    ) -> ClientTask[object]:
        """Return a handle on a task that was started before, perhaps by another client. Nothing is sent.

        Args:
            task_id: the `id` of its handle.
            tool: the tool that runs, if its result is to be validated against the output schema with which it was listed.
            returns, max_rounds: as of `start_tool`.

        Raises:
            CapabilityError: the server has no tasks.
            ValueError: the id is none.
        """
        check_str("task_id", task_id)
        check_str("tool", tool)
        if not 0 < len(task_id) <= MAX_TASK_ID:
            raise ValueError(f"a task_id has 1 to {MAX_TASK_ID} characters, not {len(task_id)}")
        read = self._reader(tool, returns)
        options = CallOptions(max_rounds=max_rounds)
        options.check()
        return ClientTask(self._tasks.follow(task_id, tool, max_rounds), read)

    def tasks(self, *, timeout: float = math.inf) -> AsyncGenerator[Task]:
        """Iterate over the tasks of this client that the server keeps. Each page may take `timeout` seconds.

        Raises:
            CapabilityError: the server does not list tasks; the extension of modern servers has no list at all.
        """
        check_seconds("timeout", timeout)
        self._tasks.check_listed()
        return self._tasks.items(timeout)

    def _reader(self, name: str, returns: object) -> Callable[[CallToolResult], object]:
        """Return what reads the value that a program wants from the result of this tool."""
        if returns is None:
            return partial(self._calls.checked, name)
        read = value_reader(returns)
        return lambda result: read(name, self._calls.checked(name, result).check())
