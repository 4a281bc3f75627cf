"""Call middleware: functions that run around the body of each call, and may run it several times."""

# A layer of middleware is one function; the first one that was added is the outermost. The body of a plan and each layer have the
# same form, `run(lane)`. What a layer gets as its `handler` runs the next layer:
#
#   run of a layer's handler     lane                            steps and questions of the body
#   the first                    that of the layer itself        have the keys that they have without middleware
#   each further one             `lane.again(layer, run)`        have keys that begin with its path, which no branch has
#
# The numbers of layers and runs do not depend on what the body does, so a replay finds the entries of each run in the journal.

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from ..base.checks import check_callable, signature_of
from ..base.late import hinting
from ..base.named_tuples import NamedTuple
from ..protocol.jsonrpc import Encoded
from ..runtime import Actor, Lane, check_awaited, run_child
from ..session import Call, Plan, RequestFacts, Route
from ..types import (
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    JsonValue,
    Model,
    ReadResourceResult,
)
from .branching import BranchTerms
from .context import Context
from .handler import exception_to_report
from .large_results import LimitedBody
from .unawaited import UnawaitedAnswer

CallResult: TypeAlias = CallToolResult | GetPromptResult | ReadResourceResult
"""What a tool, a prompt or a resource returns to the client."""

CallHandler: TypeAlias = Callable[[], Awaitable[CallResult]]
"""Runs the next middleware, or the body, and raises what that raises. Another call runs it again.

Raises `RuntimeError` when its middleware has ended.
"""

CallKind: TypeAlias = Literal["tool", "prompt", "resource"]

KINDS: Final[Mapping[str, CallKind]] = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource"}
"""What the methods call whose calls middleware sees."""

RESULTS: Final[Mapping[CallKind, type[CallResult]]] = {
    "tool": CallToolResult,
    "prompt": GetPromptResult,
    "resource": ReadResourceResult,
}
"""What those calls return."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """The call that a middleware runs around.

    Attributes:
        kind: "tool", "prompt" or "resource".
        name: the name of the tool or prompt, or the URI of the resource.
        arguments: as the client sent them; they have been validated. Empty for a resource.
        ctx: the context of the call: with it a middleware can ask and report, and read `ctx.request` and `ctx.state`.
    """

    kind: CallKind
    name: str
    arguments: Mapping[str, JsonValue]
    ctx: Context

    @property
    def principal(self) -> str | None:
        """The caller's identity, as `authenticate=` returned it; None without authentication."""
        return self.ctx.request.principal


CallMiddleware: TypeAlias = Callable[[CallRequest, CallHandler], Awaitable[CallResult]]
"""An async function that returns the result of its handler, or another one, or raises."""


def with_middleware(routes: Mapping[str, Route], middleware: Sequence[CallMiddleware]) -> Mapping[str, Route]:
    """Return the routes; the bodies of tools, prompts and resources run inside of the middleware."""
    if not middleware:
        return routes
    layers = tuple(middleware)
    wrapped = {method: partial(wrapped_plan, layers, kind, routes[method]) for method, kind in KINDS.items()}
    return {**routes, **wrapped}


def wrapped_plan(
    layers: tuple[CallMiddleware, ...], kind: CallKind, route: Route, facts: RequestFacts, params: Model
) -> Model | Encoded | Plan:
    """Return what the route returns; a plan runs inside of the layers."""
    plan = route(facts, params)
    if not isinstance(plan, Plan):
        return plan
    arguments: Mapping[str, JsonValue] = {}
    if isinstance(params, CallToolRequestParams | GetPromptRequestParams):
        arguments = params.arguments or {}
    target = CallTarget(kind, plan.target, arguments)
    if isinstance(plan.run, LimitedBody):
        return plan._replace(run=replace(plan.run, run=partial(run_layers, layers, target, plan.run.run)))
    return plan._replace(run=partial(run_layers, layers, target, plan.run))


class CallTarget(NamedTuple):
    """What a call is of; see `CallRequest`."""

    kind: CallKind
    name: str
    arguments: Mapping[str, JsonValue]


async def run_layers(
    layers: tuple[CallMiddleware, ...],
    target: CallTarget,
    run: Callable[..., Awaitable[Model]],
    call: Call,
    place: Actor | Lane,
    *parent: BranchTerms,
    first: int = 0,
) -> Model:
    """Run a body inside of the layers. Raises what comes out of them; see `exception_to_report`.

    Args:
        run: the body of the plan of the call.
        parent: the terms of the handler that reads this resource or prompt, if one does.
        first: the number of the first layer; the layers round these have lower ones.
    """
    lane = place if isinstance(place, Lane) else Lane(place)
    request = CallRequest(*target, Context(call, lane))
    try:
        body = lambda in_lane: run(call, in_lane, *parent)  # noqa: E731
        return await run_layer(layers, 0, request, body, lane, first)
    except ExceptionGroup as group:
        failure: Exception = exception_to_report(group)
    try:
        raise failure
    finally:
        # Its traceback holds this frame.
        del failure


async def run_layer(
    layers: tuple[CallMiddleware, ...],
    number: int,
    request: CallRequest,
    body: Callable[[Lane], Awaitable[Model]],
    lane: Lane,
    first: int,
) -> Model:
    """Run one layer and those inside of it, the last of which is the body."""
    if number == len(layers):
        return await body(lane)
    middleware, runs, over = layers[number], 0, False

    async def run() -> Model:
        nonlocal runs
        if over:
            raise RuntimeError(
                f"the handler of the middleware {name_of(middleware)} was called after the middleware had ended: the call of "
                f"{request.kind} {request.name[:128]!r} is over, and nothing was run"
            )
        runs += 1
        if runs == 1:
            return await run_layer(layers, number + 1, request, body, lane, first)
        inside = lambda again: run_layer(layers, number + 1, request, body, again, first)  # noqa: E731
        return await run_child(lane, lane.again(first + number, runs), inside)

    def handler(*arguments: object, **options: object) -> Awaitable[Model]:
        if arguments or options:
            raise TypeError("the handler of a middleware takes no arguments: write `await handler()`")
        return UnawaitedAnswer(run(), "handler", lane)

    try:
        result = await middleware(request, handler)  # type: ignore[arg-type]
    finally:
        # It may have stored the handler.
        over = True
    if not isinstance(result, RESULTS[request.kind]):
        raise TypeError(
            f"the middleware {name_of(middleware)} returned {type(result).__name__} for a {request.kind}: return what "
            "`await handler()` returns"
        )
    check_awaited(lane)
    return result


def name_of(middleware: CallMiddleware) -> str:
    return str(getattr(middleware, "__qualname__", None) or repr(middleware))


def check_middleware(middleware: object) -> None:
    """Raise `TypeError` unless this can be a call middleware: an async function of a request and a handler."""
    expected = "an async function: `async def middleware(call: CallRequest, handler: CallHandler) -> CallResult`"
    check_callable("middleware", middleware, expected)
    # An object may have an async `__call__`.
    method = getattr(type(middleware), "__call__", None)  # noqa: B004
    if not (inspect.iscoroutinefunction(middleware) or inspect.iscoroutinefunction(method)):
        raise TypeError(f"middleware must be {expected}, not {middleware!r:.80}")
    try:
        signature_of(cast("CallMiddleware", middleware)).bind(None, None)
    except TypeError as error:
        raise TypeError(f"middleware must be {expected}; this one cannot be called with two: {error}") from error


if not TYPE_CHECKING:
    # FastMCP has its classes in a module of this name.
    __getattr__ = hinting(__name__, "Middleware MiddlewareContext")
