"""Tasks: a request that goes on after its answer, and is asked for its result later.

The shapes are those of the extension `io.modelcontextprotocol/tasks` (2026-07-28). In 2025-11-25 tasks were a part of the
protocol and written otherwise; its codec reads and writes that.
"""

from typing import Annotated, ClassVar, Literal, TypeAlias

from .base import MAX_RECEIVED, Integer, JsonObject, JsonValue, Model, NullableModel, at_most
from .messages import InputResponses, NotificationParams, RequestParams, Result
from .pages import PaginatedResult
from .rounds import InputRequests

TaskStatus: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
"""The first two may change into any other; the last three are final."""


class Task(NullableModel):
    """A task, without what it asks and what came of it.

    Times are in ISO 8601. `ttl_ms` counts the milliseconds from the creation until the task may be forgotten, None for never;
    `poll_interval_ms` those that a client waits before it asks again.
    """

    nullable: ClassVar[tuple[tuple[str, str], ...]] = (("ttl_ms", "ttlMs"),)

    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: Integer | None
    poll_interval_ms: Integer | None = None


class TaskError(Model):
    """The error that a failed task would have been answered with."""

    code: Integer
    message: str
    data: JsonValue = None


class DetailedTask(Task):
    """A task with what its status calls for: the open questions, the result or the error. 2025-11-25 has none of them here.

    `result` is untyped until `Codec.decode_task_payload` is given the method of the request that became the task.
    """

    input_requests: InputRequests | None = None
    result: JsonObject | None = None
    error: TaskError | None = None


class CreateTaskResult(Task, Result):
    """The answer to a request that has become a task."""

    result_type: str | None = "task"


class GetTaskResult(DetailedTask, Result):
    """The answer to `tasks/get`."""


class CancelTaskResult(Result):
    """The answer to `tasks/cancel`. Only 2025-11-25 says what became of the task."""

    task: Task | None = None


class ListTasksResult(PaginatedResult):
    """A page of tasks (2025-11-25)."""

    tasks: Annotated[list[Task], at_most(MAX_RECEIVED)]


class GetTaskPayloadResult(Result):
    """The answer to `tasks/result` (2025-11-25): what the request would have been answered with, as unknown members."""

    @property
    def payload(self) -> JsonObject:
        """That answer, for `Codec.decode_task_payload`."""
        members: JsonObject = dict(self.__pydantic_extra__)
        return members if self.meta is None else {**members, "_meta": self.meta}


class TaskRequestParams(RequestParams):
    """The params of the requests about one task."""

    task_id: str


class UpdateTaskRequestParams(TaskRequestParams):
    """The params of `tasks/update`: answers to questions of a task (the extension)."""

    input_responses: InputResponses


class TaskStatusNotificationParams(DetailedTask, NotificationParams):
    """A task has changed."""


class RelatedTaskMetadata(Model):
    """The task that a message belongs to, in its `_meta` (2025-11-25)."""

    task_id: str
