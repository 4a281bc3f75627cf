"""The tasks of a server, as a client's methods."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import lru_cache, partial
from inspect import formatannotation
from types import MappingProxyType
from typing import Final, Generic, Self, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

import trio
from pydantic import PydanticUserError, TypeAdapter, ValidationError

from ..base.checks import check_seconds, check_str, check_sync_callback
from ..base.unawaited import unawaited
from ..errors import RemoteProtocolError, RequestTimeout
from ..protocol.codec.tasks import MAX_TASK_ID
from ..protocol.strict_json import dumps
from ..session.event_loop import iterates_on_asyncio, works_on_asyncio
from ..types import CallToolResult, InputRequest, JsonObject, Task
from .calls import Calls
from .lists import Listing
from .options import MAX_ROUNDS, CallOptions, check_call_options
from .requester import run_with_timeout
from .tasks.calls import TaskCalls
from .tasks.follow import Follower

# `ClientTask`: a handle on a task of a server, which goes on without its caller.

T_co = TypeVar("T_co", covariant=True)


class ClientTask(Generic[T_co]):
    """A task of a server: a call that continues without this client; `Client.start_tool` and `Client.task` return one.

        task = await client.start_tool("report", {"year": 2026})
        save(task.id)
        async for change in task:
            print(change.status, change.status_message)
        result = await task.result()

    While you await `result` or iterate, the client's handlers answer the task's questions. Otherwise, the task stops at its
    first question. Every method raises `PeerError` if the server does not know the task, or no longer knows it because its
    `ttl` is over, and `Disconnected` if the connection ends; `client.task(id)` of another client picks the task up.
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
    @works_on_asyncio
    async def status(self, *, timeout: float = math.inf) -> Task:
        """Ask the server for the state of the task, and return it: `status`, `status_message`, and its times."""
        return await run_with_timeout(timeout, "tasks/get", self._follower.status)

    @unawaited("task.result")
    @works_on_asyncio
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
    @works_on_asyncio
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

    @works_on_asyncio
    async def __anext__(self) -> Task:
        """Wait for the next change, and answer what the task asks meanwhile. A cancel loses no change."""
        if self._is_over:
            raise StopAsyncIteration
        self._seen = await self._follower.change(self._seen)
        self._is_over = self._follower.known.is_over
        return self._seen


# The value of a tool's result as the type that its caller wants: `call_tool(..., returns=list[Hit])`.

ValueReader: TypeAlias = Callable[[str, CallToolResult], object]
"""Returns the value in the result of the tool of that name."""


def value_reader(returns: object) -> ValueReader:
    """Return a function that reads a value of this type.

    Raises:
        TypeError: pydantic cannot validate the type.
    """
    # Cached, because building a validator costs more than most calls; types are few and live as long as the program. A type
    # with metadata that cannot be hashed is not.
    return cached_reader(returns) if is_hashable(returns) else new_reader(returns)


def is_hashable(value: object) -> bool:
    """Return whether a value can be hashed, with all that it is made of."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def new_reader(returns: object) -> ValueReader:
    """Return a function that reads a value of this type. Raises as `value_reader` does."""
    try:
        adapter: TypeAdapter[object] = TypeAdapter(cast("type[object]", returns))
    except PydanticUserError as error:
        problem = error.message.partition("\n")[0]
    except (AttributeError, KeyError, TypeError) as error:
        problem = str(error)
    else:
        return partial(read_value, adapter, returns)
    raise TypeError(
        f"returns must be a type that pydantic can validate, such as list[Hit], not {returns!r:.80}: {problem}"
    )


cached_reader: Final = lru_cache(maxsize=256)(new_reader)


def read_value(adapter: TypeAdapter[object], returns: object, name: str, result: CallToolResult) -> object:
    """Return the value in a result.

    Raises:
        RemoteProtocolError: it does not match the type.
    """
    try:
        # As JSON, so that a strict model accepts the text of a date, say.
        if "structured_content" in result.model_fields_set or result.data is None:
            return adapter.validate_json(dumps(result.data))
        return text_value(adapter, result.text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(str(step)[:64] for step in first["loc"])[:256] or "value"
        raise RemoteProtocolError(
            f"the result of the tool {name} is no {formatannotation(returns)[:80]}: {path}: {first['msg'][:200]}"
        ) from None


def text_value(adapter: TypeAdapter[object], text: str) -> object:
    """Return the value of a result that has nothing but text: the text, or what it is as JSON."""
    try:
        return adapter.validate_python(text, strict=True)
    except ValidationError:
        pass
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
            raise
    return adapter.validate_python(text)


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
        self, name: str, arguments: Mapping[str, object] | None = None, **options: Unpack[StartKeywords]
    ) -> ClientTask[CallToolResult]: ...
    @overload
    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: type[T],
        **options: Unpack[StartKeywords],
    ) -> ClientTask[T]: ...
    @unawaited("client.start_tool")
    @works_on_asyncio
    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
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
            ttl: seconds for which the server keeps the task, from its start. By default, and under the extension, the server
                decides.
            timeout: seconds for the start, with the questions that come before it.
            meta: more members for `_meta`.
            max_rounds: how many times the tool may ask before its result (10 by default).

        Raises:
            CapabilityError: the server has no tasks, or the tool does not run as one; use `call_tool`.

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
            ValueError: the id cannot be that of a task.
        """
        check_str("task_id", task_id)
        check_str("tool", tool)
        if not 0 < len(task_id) <= MAX_TASK_ID:
            raise ValueError(f"a task_id has 1 to {MAX_TASK_ID} characters, not {len(task_id)}")
        read = self._reader(tool, returns)
        options = CallOptions(max_rounds=max_rounds)
        options.check()
        return ClientTask(self._tasks.follow(task_id, tool, max_rounds), read)

    @iterates_on_asyncio
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
