"""The log of calls: one record for each call of a tool, prompt or resource, when it is over."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from ..base.groups import split_group
from ..base.logs import LOG_CONTEXT, LogContext
from ..base.values import one_line
from ..errors import ToolError
from ..protocol.jsonrpc import Encoded
from ..runtime import Actor, Lane
from ..session import Call, Plan, RequestFacts, Route
from ..types import JsonValue, Model
from .branching import BranchTerms

METHODS: Final = ("tools/call", "prompts/get", "resources/read")

logger: Final = logging.getLogger("trio_mcp.calls")


def with_call_log(routes: Mapping[str, Route]) -> Mapping[str, Route]:
    """Return the routes, whose calls are logged."""
    return {**routes, **{method: partial(logged_plan, method, routes[method]) for method in METHODS}}


def logged_plan(method: str, route: Route, facts: RequestFacts, params: Model) -> Model | Encoded | Plan:
    """Return what the route returns; the call of a plan is logged."""
    plan = route(facts, params)
    return plan._replace(run=partial(run_logged, method, plan)) if isinstance(plan, Plan) else plan


async def run_logged(method: str, plan: Plan, call: Call, place: Actor | Lane, *parent: BranchTerms) -> Model:
    """Run the body of a plan, and log how it ended. Raises what it raises."""
    facts = call.facts
    context = LogContext(LOG_CONTEXT.get().request, facts.principal, method, plan.target)
    token = LOG_CONTEXT.set(context)
    began, outcome = time.monotonic(), "failed"
    try:
        result = await plan.run(call, place, *parent)
        outcome = "error" if getattr(result, "is_error", None) else "ok"
        return result
    except BaseException as error:
        outcome = outcome_of(error)
        raise
    finally:
        log_call(context, facts, outcome, time.monotonic() - began)
        LOG_CONTEXT.reset(token)


def outcome_of(error: BaseException) -> str:
    """Return the word for what a body raised."""
    cancelled, failure = split_group(error, trio.Cancelled)
    if failure is None and cancelled is not None:
        return "cancelled"
    return "error" if isinstance(failure, ToolError) else "failed"


def log_call(context: LogContext, facts: RequestFacts, outcome: str, seconds: float) -> None:
    """Log one call that is over.

    Args:
        seconds: from the start of its body to its end, with the time that its questions took.
    """
    call: dict[str, JsonValue] = {
        "method": context.method,
        "name": None if context.name is None else one_line(context.name),
        "id": facts.id if isinstance(facts.id, int) else one_line(facts.id),
        "outcome": outcome,
        "seconds": round(seconds, 6),
    }
    whose = "" if facts.principal is None else f" {one_line(facts.principal)}"
    request = "" if context.request is None else f" [{context.request}]"
    logger.info(
        "%s %s %s in %.1f ms%s%s",
        context.method,
        call["name"],
        outcome,
        seconds * 1000,
        whose,
        request,
        extra={"fields": {"call": call}},
    )
