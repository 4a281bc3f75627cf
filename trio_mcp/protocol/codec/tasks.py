"""Tasks as each revision writes them: one record, which its caller sees through the face of the caller's revision.

The owner of the record passes what is true of the task in any revision (`TaskState`). The revision determines the status that a
face shows, and whether the task contains its questions and outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from ... import types
from ...base.named_tuples import NamedTuple
from ...errors import CapabilityError, LocalProtocolError
from ...types import (
    CallToolResult,
    ClientCapabilities,
    EmptyResult,
    JsonObject,
    JsonValue,
    Model,
    declares,
)
from ...types.base import MetaModel
from ...types.capabilities import lacks
from ..jsonrpc import Encoded, ErrorDetail, dump_error
from ..revisions import RELATED_TASK, TASKS_GATE, TaskStyle
from ..strict_json import dumps
from .models import validated
from .rewrites import OLD_TASK_NAMES
from .writing import Writer, wanted_task

# One task that has asked its user, of three callers:
#
#     tasks/get, 2026-07-28            {"resultType":"complete","taskId":"t",..,"ttlMs":5,"status":"input_required",
#                                       "inputRequests":{"k":{"method":"elicitation/create",..}}}
#     tasks/get, 2025-11-25            {"taskId":"t",..,"ttl":5,"status":"input_required"}; tasks/result asks the question
#     tasks/get, older                 refused: there are no tasks


T = TypeVar("T", bound="types.Task")

TaskOutcome: TypeAlias = Model | ErrorDetail | None
"""What a task ended with: the result of its request, or an error; None while it runs, and for one that was cancelled."""

MAX_REASON: Final = 1000
"""Characters of a status message that says why a task failed. All of it is in the result or the error."""

MAX_TASK_ID: Final = 1024
"""Characters of the id of a peer's task. It is repeated in every request, and in a header of those over HTTP."""

_NEWS: Final[Mapping[TaskStyle, str]] = {
    TaskStyle.REQUESTED: "notifications/tasks/status",
    TaskStyle.DECLARED: "notifications/tasks",
}

_NONE_ASKED: Final[Mapping[str, tuple[str, Model]]] = MappingProxyType({})


class TaskState(NamedTuple):
    """What is true of a task in any revision.

    Attributes:
        task: its status counts if it has ended without an outcome, as a cancelled one does. Any other follows from the
            questions and the outcome.
        method: of the request that became the task.
        asked: the open questions: method and params by key.
    """

    task: types.Task
    method: str = "tools/call"
    asked: Mapping[str, tuple[str, Model]] = _NONE_ASKED
    outcome: TaskOutcome = None


class TaskWriter(Writer):
    """Writes tasks as well. Every method but the first four raises -32601 where the revision has no such message."""

    __slots__ = ()

    def asks_for_task(self, method: str, params: Model, declared: ClientCapabilities) -> bool:
        """Return whether the sender of this request takes a task as its answer (M-TSK-1, L-TSK-1).

        Args:
            declared: what the client declares, for this request if the revision has requests declare it.
        """
        known = self.revision.requests.get(method)
        if known is None or known.as_task is None:
            return False
        return declares(declared, known.as_task) if self._decides else wanted_task(params)

    def may_ask_for_task(self, method: str, declared: ClientCapabilities) -> bool:
        """Return whether a server may have this request run as a task of its client (L-TSK-1)."""
        known = self.revision.requests.get(method)
        if known is None or known.as_task is None or self._decides:
            return False
        return declares(declared, known.as_task)

    def check_declared(self, method: str, params: Model, declared: ClientCapabilities) -> None:
        """Raise `CapabilityError` unless the client declares, in this request, what its method needs (M-TSK-7, M-TSK-8)."""
        known = self.revision.requests.get(method)
        needs = None if known is None else known.needs
        if method == "subscriptions/listen":
            assert isinstance(params, types.SubscriptionsListenRequestParams)
            if params.notifications.task_ids:
                method, needs = f"taskIds in {method}", TASKS_GATE
        missing = None if needs is None else lacks(declared, (needs,))
        if missing is not None:
            text = f"{method} needs a client that declares {needs} in the request, as {dumps(missing).decode()}"
            raise CapabilityError(text, missing)

    def related_meta(self, task_id: str, meta: JsonObject | None = None) -> JsonObject | None:
        """Return the `_meta` of a message that belongs to a task: 2025-11-25 names the task there (L-TSK-7)."""
        if self.revision.tasks is not TaskStyle.REQUESTED:
            return meta
        return {**(meta or {}), RELATED_TASK: types.RelatedTaskMetadata(task_id=task_id).wire()}

    def shown_task(self, state: TaskState) -> types.Task:
        """Return the task with the status that this revision shows (L-TSK-5, M-TSK-4).

        The message of a failed one is the reason: what its work said last is out of date, and hosts show this text.
        """
        status = self._status(state)
        if status == state.task.status:
            return state.task
        shown: dict[str, object] = {"status": status}
        if status == "failed" and (reason := _failure_text(state.outcome)):
            shown["status_message"] = reason
        return state.task.model_copy(update=shown)

    def encode_task(self, state: TaskState, identity: Encoded | None = None) -> Encoded:
        """The answer to `tasks/get`."""
        task = self.shown_task(state)
        written = self.encode_result("tasks/get", _as(types.GetTaskResult, task), identity)
        return self._with_details(written, task.status, state)

    def encode_cancelled_task(self, state: TaskState, identity: Encoded | None = None) -> Encoded:
        """The answer to `tasks/cancel`: the task, or an acknowledgement."""
        return self.encode_result("tasks/cancel", types.CancelTaskResult(task=self.shown_task(state)), identity)

    def encode_created_task(
        self, state: TaskState, identity: Encoded | None = None, meta: JsonObject | None = None
    ) -> Encoded:
        """The answer to the request that became the task; `meta` may hold a text for the model (`IMMEDIATE_RESPONSE`)."""
        return self.encode_result(state.method, _as(types.CreateTaskResult, self.shown_task(state), meta), identity)

    def encode_task_notification(self, state: TaskState, meta: JsonObject | None = None) -> tuple[str, Encoded]:
        """The notification that a task has changed: its method, and its params."""
        method = _NEWS.get(self.revision.tasks, "notifications/tasks")
        task = self.shown_task(state)
        written = self.encode_notification(method, _as(types.TaskStatusNotificationParams, task, meta))
        return method, self._with_details(written, task.status, state)

    def encode_task_payload(self, method: str, result: Model, task_id: str) -> Encoded:
        """The answer to `tasks/result`: the result of the request that became the task, which it names (L-TSK-6, L-TSK-7).

        Args:
            method: of that request.
        """
        if "tasks/result" not in self.revision.requests:
            raise self._lacks("tasks/result")
        related = self.related_meta(task_id, result.meta if isinstance(result, MetaModel) else None)
        return self.encode_result(method, result.model_copy(update={"meta": related}))

    def _status(self, state: TaskState) -> types.TaskStatus:
        outcome = state.outcome
        if state.task.status == "cancelled" or (outcome is None and state.task.status in ("completed", "failed")):
            return state.task.status
        if outcome is None:
            return "input_required" if state.asked else "working"
        is_error = isinstance(outcome, CallToolResult) and outcome.is_error
        failed = isinstance(outcome, ErrorDetail) or (is_error and self.revision.error_result_fails)
        return "failed" if failed else "completed"

    def _with_details(self, written: Encoded, status: types.TaskStatus, state: TaskState) -> Encoded:
        """Add what the status calls for, where a task holds it. Spliced in: a result may be large, and is encoded once."""
        if not self._decides:
            return written
        match status, state.outcome:
            case "input_required", _:
                details = b',"inputRequests":' + self._questions(state.asked)
            case "failed", ErrorDetail() as error:
                details = b',"error":' + dump_error(error)
            case "completed", Model() as result:
                details = b',"result":' + self.encode_result(state.method, result).raw
            case "completed" | "failed", _:
                raise LocalProtocolError(
                    f"the task {state.task.task_id[:64]} has ended, and what came of it is missing"
                )
            case _:
                return written
        return Encoded(written.raw[:-1] + details + b"}")


def _failure_text(outcome: TaskOutcome) -> str:
    """Return why a task failed, in at most `MAX_REASON` characters; empty if its outcome has no text."""
    text = ""
    if isinstance(outcome, ErrorDetail):
        text = outcome.message
    elif isinstance(outcome, CallToolResult):
        text = next((block.text for block in outcome.content if isinstance(block, types.TextContent)), "")
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"


def _as(kind: type[T], task: types.Task, meta: JsonObject | None = None) -> T:
    """Return a task as a message that says nothing else."""
    return kind.model_validate({**{name: getattr(task, name) for name in types.Task.model_fields}, "meta": meta})


# Received tasks to models: 2025-11-25 names the members of a task otherwise, and puts it elsewhere.

TASK: Final = frozenset({"task"})
"""The member of params that asks for a task."""

_ANSWERS: Final = frozenset({"content", "action"})
"""What the answers to requests that may become tasks have, and the answer that a task was created has not."""

_NEW_NAMES: Final[Mapping[str, str]] = {old: name for name, old in OLD_TASK_NAMES.items()}

_NEW: Final = frozenset({*OLD_TASK_NAMES, "inputRequests", "result", "error"})
"""Members of a task that the extension has added."""


def without(names: Collection[str], members: JsonObject) -> JsonObject:
    """What a peer sends under names that its revision does not have means nothing."""
    if members.keys().isdisjoint(names):
        return members
    return {name: value for name, value in members.items() if name not in names}


def without_tasks(members: JsonObject) -> JsonObject:
    """Return a message whose questions do not ask to be tasks: none of a round can (M-MRTR-2s)."""
    asked = members.get("inputRequests")
    if not isinstance(asked, dict):
        return members
    return {**members, "inputRequests": {key: _without_task(question) for key, question in asked.items()}}


def _without_task(question: JsonValue) -> JsonValue:
    params = question.get("params") if isinstance(question, dict) else None
    if not isinstance(question, dict) or not isinstance(params, dict):
        return question
    return {**question, "params": without(TASK, params)}


def says_task(result: JsonObject) -> bool:
    """Return whether a result of 2025-11-25 says that its request has become a task."""
    return isinstance(result.get("task"), dict) and _ANSWERS.isdisjoint(result)


def read_created_task(result: JsonObject) -> types.CreateTaskResult:
    """Return such a result. Raises what `validated` raises."""
    task = validated(types.Task, _renamed(result.get("task")), "result.task", OLD_TASK_NAMES)
    return types.CreateTaskResult.model_validate({**dict(task), "meta": _meta(result)})


def read_members(style: TaskStyle, kind: type[Model], members: JsonObject, path: str) -> Model:
    """Return a result, or the params of a notification, as a `kind` of `TASK_READERS`. Raises what `validated` raises."""
    if style is TaskStyle.REQUESTED:
        return TASK_READERS[kind.__name__](members, path)
    return validated(kind, without_tasks(members), path)


def _read_task(members: JsonObject, path: str) -> Model:
    return validated(types.GetTaskResult, _renamed(members), path, OLD_TASK_NAMES)


def _read_news(members: JsonObject, path: str) -> Model:
    return validated(types.TaskStatusNotificationParams, _renamed(members), path, OLD_TASK_NAMES)


def _read_cancelled(members: JsonObject, path: str) -> Model:
    task = validated(types.Task, _renamed(without(("_meta",), members)), path, OLD_TASK_NAMES)
    return types.CancelTaskResult(task=task, meta=_meta(members))


def _read_list(members: JsonObject, path: str) -> Model:
    tasks = members.get("tasks")
    renamed = [_renamed(task) for task in tasks] if isinstance(tasks, list) else tasks
    return validated(types.ListTasksResult, {**members, "tasks": renamed}, path, OLD_TASK_NAMES)


TASK_READERS: Final[Mapping[str, Callable[[JsonObject, str], Model]]] = {
    "GetTaskResult": _read_task,
    "TaskStatusNotificationParams": _read_news,
    "CancelTaskResult": _read_cancelled,
    "ListTasksResult": _read_list,
}
"""Read what older revisions write otherwise, by the names of the types, which are not loaded for it."""


def _renamed(task: JsonValue) -> JsonValue:
    """Return a task of 2025-11-25 with the names of the extension, of which the other members mean nothing there."""
    if not isinstance(task, dict):
        return task
    return {_NEW_NAMES.get(name, name): value for name, value in without(_NEW, task).items()}


def _meta(result: JsonObject) -> JsonObject | None:
    return validated(EmptyResult, {"_meta": result.get("_meta")}, "result").meta
