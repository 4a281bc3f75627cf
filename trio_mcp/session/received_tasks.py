"""The questions of a 2025-11-25 server that run as tasks at its client: it is answered at once, and asks for the result later.

The tasks belong to one session, so that no other may ask for them (L-TSK-9); its end cancels them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import trio

from .. import types
from ..protocol.codec import Codec
from ..protocol.codec.models import model_of
from ..protocol.codec.tasks import TaskState
from ..protocol.connection import RequestIn
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    SERVER_BUSY,
    Encoded,
    ErrorDetail,
    Notification,
)
from ..types import (
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ListTasksResult,
    Model,
    Task,
    TaskRequestParams,
    TaskStatus,
)
from .options import TaskOptions
from .tasks.record import iso_time

MAX_TASKS: Final = 256
"""Tasks of one server that a client keeps, running or over."""
MAX_WAITING: Final = 256
"""Requests of one server that wait for the results of its tasks."""
MAX_RESULT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of all results that a client keeps for one server."""

TIMES: Final = TaskOptions()
METHODS: Final = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"})

Encode: TypeAlias = Callable[[Model], Encoded]
Ask: TypeAlias = Callable[[str, Model, Encode], Awaitable[Encoded | ErrorDetail]]
"""Has a question answered: gets its method, its params, and what writes the answer."""
Notify: TypeAlias = Callable[[Notification], None]


@dataclass(slots=True, eq=False)
class ReceivedTask:
    """One task.

    Attributes:
        answer: what `tasks/result` is answered with once it is over.
        running: whether its handler still runs, which one that was cancelled may do for a while.
        scope: of its handler.
        life: of the task, which ends with its ttl or its session.
    """

    method: str
    codec: Codec
    task: Task
    answer: Encoded | ErrorDetail | None = None
    running: bool = True
    over: trio.Event = field(default_factory=trio.Event)
    life: trio.CancelScope = field(default_factory=trio.CancelScope)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def state(self) -> TaskState:
        """The task without its outcome, which 2025-11-25 does not show in it."""
        return TaskState(self.task, self.method)


class ReceivedTasks:
    """The tasks of one server.

    Args:
        ask: has a question answered by the program.
        notify: sends a notification.
        limit: tasks whose handlers run at once.
    """

    def __init__(self, ask: Ask, notify: Notify, limit: int) -> None:
        self._ask = ask
        self._notify = notify
        self._limit = limit
        self._tasks: dict[str, ReceivedTask] = {}
        self._bytes = 0

    @property
    def working(self) -> int:
        """How many have a handler that runs."""
        return sum(task.running for task in self._tasks.values())

    def takes(self, request: RequestIn) -> bool:
        """Return whether this request asks for a task, or is about one."""
        codec = request.terms.codec
        known = request.method in METHODS and request.method in codec.revision.requests
        return known or codec.expects_task(request.method, model_of(request.params))

    async def answer(self, request: RequestIn, nursery: trio.Nursery) -> Encoded | ErrorDetail:
        """Return the answer to such a request. A cancel ends the wait for a result, and leaves the task alone.

        Args:
            nursery: runs the handler of a new task.
        """
        match request.method, request.params:
            case "tasks/list", types.PaginatedRequestParams(cursor=None):
                shown = [task.task for task in self._tasks.values()]
                return request.terms.codec.encode_result("tasks/list", ListTasksResult(tasks=shown))
            case "tasks/list", _:
                return ErrorDetail(INVALID_PARAMS, "unknown cursor: all tasks of this client are on its first page")
            case method, TaskRequestParams(task_id=task_id):
                task = self._tasks.get(task_id)
                if task is None:
                    return ErrorDetail(INVALID_PARAMS, "there is no such task: its id is unknown, or its ttl is over")
                return await self._about(method, task)
            case _:
                return self._create(request, nursery)

    def cancel_all(self) -> None:
        """Cancel and forget every task: the session has ended, so that no request can ask for them."""
        for task in self._tasks.values():
            task.life.cancel()
        self._tasks.clear()
        self._bytes = 0

    async def _about(self, method: str, task: ReceivedTask) -> Encoded | ErrorDetail:
        match method:
            case "tasks/get":
                return task.codec.encode_task(task.state)
            case "tasks/result":
                await task.over.wait()
                assert task.answer is not None
                return task.answer
            case "tasks/cancel" if task.over.is_set():
                return ErrorDetail(INVALID_PARAMS, f"the task is over already: {task.task.status}")
            case "tasks/cancel":
                # Settled before the answer, whatever the handler still does (L-TSK-8).
                self._end(task, "cancelled", ErrorDetail(INTERNAL_ERROR, "the task was cancelled"))
                task.scope.cancel()
                return task.codec.encode_cancelled_task(task.state)
            case _:
                return ErrorDetail(METHOD_NOT_FOUND, f"this client does not serve {method}")

    def _create(self, request: RequestIn, nursery: trio.Nursery) -> Encoded | ErrorDetail:
        if self.working >= self._limit:
            text = f"this client already works on {self._limit} tasks; the limit is max_handlers"
            return ErrorDetail(SERVER_BUSY, text)
        if len(self._tasks) >= MAX_TASKS:
            return ErrorDetail(SERVER_BUSY, f"this client already keeps {MAX_TASKS} tasks; the limit is MAX_TASKS")
        wanted, params = _split(model_of(request.params))
        ttl = TIMES.granted_ttl(wanted)
        now = iso_time(time.time())
        shown = Task(
            task_id=secrets.token_urlsafe(16),
            status="working",
            created_at=now,
            last_updated_at=now,
            ttl_ms=int(ttl * 1000),
            poll_interval_ms=int(TIMES.poll_interval * 1000),
        )
        task = self._tasks[shown.task_id] = ReceivedTask(request.method, request.terms.codec, shown)
        nursery.start_soon(self._run, task, params, trio.current_time() + ttl)
        return task.codec.encode_created_task(task.state)

    async def _run(self, task: ReceivedTask, params: Model, deadline: float) -> None:
        """Have the question answered, and keep the answer until the time of the task is over."""
        try:
            with task.life:
                task.scope.deadline = deadline
                with task.scope:
                    encode = partial(task.codec.encode_task_payload, task.method, task_id=task.task.task_id)
                    self._settle(task, await self._ask(task.method, params, encode))
                task.running = False
                self._end(task, "failed", ErrorDetail(INTERNAL_ERROR, "the task took longer than its ttl"))
                await trio.sleep_until(deadline)
        finally:
            # Those that the end of the session has forgotten are no longer counted.
            if self._tasks.pop(task.task.task_id, None) is not None and isinstance(task.answer, Encoded):
                self._bytes -= len(task.answer.raw)

    def _settle(self, task: ReceivedTask, answer: Encoded | ErrorDetail) -> None:
        if isinstance(answer, ErrorDetail) or task.over.is_set():
            self._end(task, "failed", answer)
        elif self._bytes + len(answer.raw) > MAX_RESULT_BYTES:
            full = f"the results of tasks would hold over {MAX_RESULT_BYTES} bytes; the limit is MAX_RESULT_BYTES"
            self._end(task, "failed", ErrorDetail(INTERNAL_ERROR, full))
        elif task.task.task_id in self._tasks:
            self._bytes += len(answer.raw)
            self._end(task, "completed", answer)

    def _end(self, task: ReceivedTask, status: TaskStatus, answer: Encoded | ErrorDetail) -> None:
        """Settle the outcome; the first one counts (L-TSK-5)."""
        if task.over.is_set():
            return
        message = answer.message if isinstance(answer, ErrorDetail) else None
        changed = {"status": status, "status_message": message, "last_updated_at": iso_time(time.time())}
        task.task = task.task.model_copy(update=changed)
        task.answer = answer
        task.over.set()
        if task.task.task_id in self._tasks:
            self._notify(Notification(*task.codec.encode_task_notification(task.state)))


def _split(params: Model) -> tuple[float | None, Model]:
    """Return the wanted ttl, and the params as a handler gets them, which may send them on elsewhere."""
    match params:
        case CreateMessageRequestParams() | ElicitRequestFormParams() | ElicitRequestURLParams():
            wanted = None if params.task is None else params.task.ttl
            return wanted, params.model_copy(update={"task": None})
        case _:
            return None, params
