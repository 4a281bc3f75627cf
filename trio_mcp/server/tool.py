"""A tool: a function, the schemas its signature promises, and how one call of it runs."""

from __future__ import annotations

import inspect
import logging
import math
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, cast

import trio

from ..errors import CapabilityError, LimitExceeded, LocalProtocolError, McpError, ProtocolError, ToolError
from ..runtime import CancelReason
from ..session import Call, Plan, RequestFacts, Resume
from ..types import CallToolResult, JsonObject, ToolAnnotations
from ..types import Tool as ToolModel
from .context import Context
from .results import Converter, ReturnError, error_result, read_return
from .signature import Signature, read_signature

__all__ = ["ResumePolicy", "Tool", "ToolFunction", "ToolOptions", "make_tool"]

ToolFunction: TypeAlias = Callable[..., object]
ResumePolicy: TypeAlias = Literal["auto", "replay", "parked"]
logger = logging.getLogger("trio_mcp.tool")

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")  # L-TOOL-2s


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What a tool says of itself beyond its signature; see `Server.tool`."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | None = None
    timeout: float = math.inf
    meta: JsonObject | None = field(default=None)
    resume: ResumePolicy = "auto"


@dataclass(frozen=True, slots=True)
class Tool:
    """A registered tool. `model` is what `tools/list` shows of it."""

    function: ToolFunction
    model: ToolModel
    timeout: float
    _signature: Signature
    _converted: Converter
    _threads: trio.CapacityLimiter
    _is_async: bool
    _resume: Resume

    @property
    def name(self) -> str:
        return self.model.name

    def plan(self, facts: RequestFacts, arguments: JsonObject) -> Plan | CallToolResult:
        """How to run one call; or the result that says what is wrong with its arguments (L-TOOL-7s, SEP-1303)."""
        try:
            values = self._signature.bind(arguments)
        except ValueError as error:
            return error_result(f"Invalid arguments for {self.name}: {error}")
        return Plan(partial(self._run, facts, values), self.name, self.timeout, self._failed, self._resume)

    async def _run(self, facts: RequestFacts, values: dict[str, object], call: Call) -> CallToolResult:
        if self._signature.context is not None:
            values[self._signature.context] = Context(call, call.actor.root, facts)
        try:
            return self._converted(await self._value(values))
        except ExceptionGroup as group:
            failure: Exception = speaker(group)
        raise failure

    async def _value(self, values: dict[str, object]) -> object:
        if self._is_async:
            return await cast("Awaitable[object]", self.function(**values))
        (value,) = await trio.to_thread.run_sync(
            lambda: (self.function(**values),), abandon_on_cancel=True, limiter=self._threads
        )
        if isinstance(value, Awaitable):  # a plain decorator round an async function
            return cast("object", await value)
        return value

    def _failed(self, cause: BaseException | CancelReason) -> CallToolResult | None:
        """What the model is told; None leaves it to the protocol, or to nobody."""
        match cause:
            case CancelReason.DEADLINE:
                return error_result(f"{self.name} did not finish within {self.timeout:g} seconds.")
            case LocalProtocolError():
                logger.error("the tool %s broke a rule", self.name, exc_info=cause)
                return error_result(f"{self.name}: {cause}")
            case CancelReason() | ProtocolError() | CapabilityError():
                return None
            case ToolError() | LimitExceeded():
                return error_result(str(cause))
            case _:
                reference = secrets.token_hex(4)
                logger.error("the tool %s failed [%s]", self.name, reference, exc_info=cause)
                return error_result(unexpected(self.name, cause, reference))

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


def make_tool(function: ToolFunction, options: ToolOptions, threads: trio.CapacityLimiter) -> Tool:
    """A tool from a function.

    Raises:
        TypeError: the signature cannot be offered as a tool.
        ValueError: the name is not one.
    """
    name = options.name or str(getattr(function, "__name__", ""))
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a tool name: 1 to 128 letters, digits, '_', '-' and '.'")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{name}: a tool is a function or an async function, not a generator")
    signature = read_signature(function)
    output_schema, converted = read_return(signature.returns)
    model = ToolModel(
        name=name,
        title=options.title,
        description=options.description or inspect.getdoc(function),
        input_schema=signature.schema,
        output_schema=output_schema,
        annotations=options.annotations,
        meta=options.meta,
    )
    return Tool(
        function,
        model,
        options.timeout,
        signature,
        converted,
        threads,
        inspect.iscoroutinefunction(function),
        resumed(options),
    )


def resumed(options: ToolOptions) -> Resume:
    """What the policy means for this tool: "auto" replays what its author declared harmless to run twice."""
    match options.resume:
        case "replay":
            return Resume.REPLAY
        case "parked":
            return Resume.PARKED
        case "auto":
            hints = options.annotations
            harmless = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
            return Resume.REPLAY if harmless else Resume.PARKED


def speaker(group: ExceptionGroup[Exception]) -> Exception:
    """The one exception in a group, however deep, or the first of several that all are for the caller; else the group."""
    found = leaves(group)
    if len(found) == 1 or all(isinstance(leaf, McpError) for leaf in found):
        return found[0]
    return group


def leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def unexpected(name: str, cause: BaseException, reference: str) -> str:
    """Safe text for an error that nobody expected: what the author wrote to say stays in the log (reliability row 66)."""
    if isinstance(cause, ReturnError):
        return f"{name}: {cause}"
    return f"{name} failed with an internal error; the server's log has the details under {reference}."
