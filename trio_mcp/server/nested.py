"""Requests of a handler to the server that it belongs to, for resources, prompts and tools, in a branch of its call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias, cast

import trio

from ..base.checks import check_str, check_str_mapping
from ..errors import LocalProtocolError, PeerError, ProtocolError
from ..protocol.jsonrpc import METHOD_NOT_FOUND
from ..runtime import Lane, run_branch
from ..session import Call, Plan, RequestFacts
from ..types import (
    GetPromptRequestParams,
    GetPromptResult,
    Model,
    ReadResourceRequestParams,
    ReadResourceResult,
)
from .branching import BranchTerms

NestedBody: TypeAlias = Callable[[Call, Lane, BranchTerms], Awaitable[Model]]


async def read_resource(call: Call, lane: Lane, terms: BranchTerms, uri: str) -> ReadResourceResult:
    """Read a resource in a branch of `lane`; see `Context.read_resource`."""
    params = ReadResourceRequestParams(uri=check_str("the URI", uri))
    result = await run_nested(call, lane, terms, "resources/read", params)
    assert isinstance(result, ReadResourceResult)
    return result


async def get_prompt(
    call: Call, lane: Lane, terms: BranchTerms, name: str, arguments: Mapping[str, str] | None
) -> GetPromptResult:
    """Render a prompt in a branch of `lane`; see `Context.get_prompt`."""
    given = None if arguments is None else check_str_mapping("the arguments of the prompt", arguments)
    params = GetPromptRequestParams(name=check_str("the name of the prompt", name), arguments=given)
    result = await run_nested(call, lane, terms, "prompts/get", params)
    assert isinstance(result, GetPromptResult)
    return result


async def run_nested(call: Call, lane: Lane, terms: BranchTerms, method: str, params: Model) -> Model:
    """Run the handler of a request in a branch, with what the parent's terms allow."""
    # Resources that read each other may never wait: other tasks have a turn, and a cancel is noticed.
    await trio.lowlevel.checkpoint()
    plan = nested_plan(call, method, params)
    # Every plan of these two methods runs `Handler.run`, perhaps inside of middleware, and both take terms too.
    body = cast("NestedBody", plan.run)
    work = partial(run_in_lane, body, call, terms, method)
    max_depth = min(terms.max_depth, call.services.options.max_depth)
    return await run_branch(lane, work, timeout=plan.timeout, max_depth=max_depth)


async def run_in_lane(body: NestedBody, call: Call, terms: BranchTerms, title: str, lane: Lane) -> Model:
    return await body(call, lane.titled(title), terms)


def nested_plan(call: Call, method: str, params: Model) -> Plan:
    """Return how to serve a request that the call makes to its own server. Raises as `route_nested` does."""
    plan = route_nested(call, call.facts._replace(method=method), params)
    assert isinstance(plan, Plan)
    return plan


def route_nested(call: Call, facts: RequestFacts, params: Model) -> object:
    """Return what the route of a request returns that the call makes to its own server.

    Raises:
        ResourceNotFound: there is no such resource.
        PeerError: the request was rejected, with the code that a client would receive.
    """
    route = call.offers.routes.get(facts.method)
    if route is None:
        raise PeerError(METHOD_NOT_FOUND, f"this server does not offer {facts.method}")
    try:
        return route(facts, params)
    except LocalProtocolError:
        raise
    except ProtocolError as error:
        # Not the error itself: uncaught, it would be the answer to the request of this call, which is a different one.
        raise PeerError(error.code, error.args[0], error.data) from None
