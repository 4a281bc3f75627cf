"""Calls of tools as tasks: which callers may have one, and which must (L-TSK-2, M-TSK-1)."""

from __future__ import annotations

from functools import partial

from ...errors import CapabilityError, RemoteProtocolError
from ...protocol.jsonrpc import METHOD_NOT_FOUND
from ...protocol.revisions import TASKS_EXTENSION, TASKS_GATE, TaskStyle
from ...runtime import Actor, Lane
from ...session import Call, Plan, RequestFacts
from ...session.calls.facts import TaskSupport
from ...types import CallToolRequestParams, CallToolResult, ToolExecution
from ...types.capabilities import lacks
from ..branching import BranchTerms


def check_task(name: str, support: TaskSupport, facts: RequestFacts, params: CallToolRequestParams) -> None:
    """Raise unless a call may run as its caller wants it, as a task or not.

    Raises:
        RemoteProtocolError: -32601, the tool runs only as a task and the caller does not ask for one, or the reverse.
        CapabilityError: it runs only as a task, and the caller does not declare the extension.
    """
    wants = facts.terms.codec.asks_for_task(facts.method, params, facts.client_capabilities)
    if support is TaskSupport.FORBIDDEN:
        # Under the extension the server decides, and decides against it.
        if wants and facts.terms.codec.revision.tasks is TaskStyle.REQUESTED:
            raise RemoteProtocolError(
                f"the tool {name!r} cannot run as a task: call it without params.task", code=METHOD_NOT_FOUND
            )
    elif support is TaskSupport.REQUIRED and not wants:
        missing = lacks(facts.client_capabilities, (TASKS_GATE,))
        if facts.terms.codec.revision.tasks is TaskStyle.DECLARED and missing is not None:
            raise CapabilityError(
                f"the tool {name!r} runs only as a task: declare the extension {TASKS_EXTENSION}", missing
            )
        raise RemoteProtocolError(
            f"the tool {name!r} runs only as a task: call it with params.task, in revision 2025-11-25",
            code=METHOD_NOT_FOUND,
        )


def as_task(
    planned: Plan | CallToolResult, support: TaskSupport, params: CallToolRequestParams
) -> Plan | CallToolResult:
    """Return how to run a call that may become a task.

    A caller that asked for a task gets one also if the call does not run: its result then says why.
    """
    if isinstance(planned, Plan):
        return planned._replace(task=support, becomes=first_request(params) if support is TaskSupport.LATER else None)
    if params.task is None:
        return planned
    return Plan(partial(return_result, planned), params.name, task=support)


def first_request(params: CallToolRequestParams) -> CallToolRequestParams:
    """Return the params of the call's first request: a task has the answers of later requests in its journal."""
    return params.model_copy(update={"input_responses": None, "request_state": None})


async def return_result(
    result: CallToolResult, _call: Call, _place: Actor | Lane, _parent: BranchTerms | None = None
) -> CallToolResult:
    return result


def listed_execution(support: TaskSupport) -> ToolExecution | None:
    """Return what a listing says of how a tool runs; nothing of one that never runs as a task, which is the default."""
    return None if support is TaskSupport.FORBIDDEN else ToolExecution.model_validate({"task_support": support.listed})
