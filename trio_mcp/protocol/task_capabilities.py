"""What declares that a side runs tasks, in both ways of writing: each codec leaves out the one that its revision lacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ..types import ClientCapabilities, JsonObject, ServerCapabilities
from .meta import TASKS_EXTENSION
from .revisions import TASK_GATES

C = TypeVar("C", ClientCapabilities, ServerCapabilities)


def with_tasks(capabilities: C, methods: Iterable[str], *, listed: bool = True) -> C:
    """Return capabilities that declare tasks too.

    Args:
        methods: the requests of the other side that may become tasks here, such as "tools/call"; a client with none of them
            declares only that it takes tasks as answers (the extension).
            The keys of `TASK_GATES`.
        listed: callers can be told apart, so that each may list its own tasks (2025-11-25, L-TSK-8).
    """
    requests: JsonObject = {}
    for method in methods:
        group, name = TASK_GATES[method].split(".")[2:]
        requests[group] = {name: {}}
    # A host looks at whether `requests.tools.call` exists, so that each object is written, although it is empty.
    tasks: JsonObject = {**({"list": {}} if listed else {}), "cancel": {}, "requests": requests}
    extensions = {**(capabilities.extensions or {}), TASKS_EXTENSION: {}}
    return capabilities.model_copy(update={"tasks": tasks if requests else None, "extensions": extensions})
