"""The requests about tasks, of both eras: what a caller may ask of a task that it has the id of.

An id that is unknown, somebody else's, or whose time is over gets one and the same answer (L-TSK-9, M-TSK-8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from ...errors import CapabilityError, LimitExceeded, RemoteProtocolError
from ...protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND
from ...protocol.meta import TASKS_EXTENSION
from ...protocol.revisions import TaskStyle
from ...runtime import Actor, Lane
from ...types import (
    CancelTaskResult,
    EmptyResult,
    ListTasksResult,
    Model,
    PaginatedRequestParams,
    TaskRequestParams,
    UpdateTaskRequestParams,
)
from ...types.capabilities import declares
from ..calls.asks_rounds import decoded_answer
from ..calls.call import Call, Plan, Route
from ..calls.facts import RequestFacts
from .faces import payload_of, shown_task, task_of
from .questions import ask_until_over
from .tasks import SeenTask, Tasks

PAGE: int = 100
"""Tasks on a page of `tasks/list`."""

TaskBody: TypeAlias = Callable[[Tasks, Model, Call, Actor | Lane], object]


def task_routes(tasks: Tasks) -> Mapping[str, Route]:
    """Return the functions that serve the requests about tasks, by method."""
    bodies = {
        "tasks/get": run_get,
        "tasks/result": run_result,
        "tasks/list": run_list,
        "tasks/cancel": run_cancel,
        "tasks/update": run_update,
    }
    return {method: partial(serve, tasks, body) for method, body in bodies.items()}
