"""Received tasks to models: 2025-11-25 names the members of a task otherwise, and puts it elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from ... import types
from ...types import (
    EmptyResult,
    JsonObject,
    JsonValue,
    Model,
)
from ..revisions import TaskStyle
from .rewrites import OLD_TASK_NAMES
from .validation import validated

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
    """Return a result, or the params of a notification, as a `kind`. Raises what `validated` raises."""
    reader = _READERS.get(kind.__name__)
    if reader is None:
        return validated(kind, members, path)
    if style is TaskStyle.REQUESTED:
        return reader(members, path)
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


_READERS: Final[Mapping[str, Callable[[JsonObject, str], Model]]] = {
    "GetTaskResult": _read_task,
    "TaskStatusNotificationParams": _read_news,
    "CancelTaskResult": _read_cancelled,
    "ListTasksResult": _read_list,
}
"""By the names of the types, which are not loaded for it."""


def _renamed(task: JsonValue) -> JsonValue:
    """Return a task of 2025-11-25 with the names of the extension, of which the other members mean nothing there."""
    if not isinstance(task, dict):
        return task
    return {_NEW_NAMES.get(name, name): value for name, value in without(_NEW, task).items()}


def _meta(result: JsonObject) -> JsonObject | None:
    return validated(EmptyResult, {"_meta": result.get("_meta")}, "result").meta
