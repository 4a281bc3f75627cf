"""A tool: a function, the schemas its signature promises, and how one call of it runs."""

from __future__ import annotations

import logging
import math
import re
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias, TypedDict

from ..errors import CapabilityError, LimitExceeded, LocalProtocolError, ProtocolError, RequestTimeout, ToolError
from ..protocol.capabilities import lacks
from ..protocol.http.parameter_headers import ParameterHeaders
from ..runtime import CancelReason, Lane, ThreadLimiter
from ..session import CallPort, Plan, RequestFacts, ResumeMode
from ..types import CallToolResult, ClientCapabilities, Icon, JsonObject, ToolAnnotations
from ..types import Tool as ToolModel
from .branching import CallLimits
from .forms import Elicit, with_questions
from .handler import Function, Handler, function_doc, make_handler
from .options import check_count, check_elicits, check_name, check_resume, check_schema, check_timeout
from .results import Converter, Promise, error_result, read_return, read_schema
from .signature import Arguments, raw_arguments, read_arguments

ResumePolicy: TypeAlias = Literal["auto", "replay", "parked"]
logger = logging.getLogger("trio_mcp.tool")

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")  # L-TOOL-2s
GATES = frozenset({"elicitation", "experimental", "extensions", "roots", "sampling"})
REQUIRES = "trio-mcp/requires"
"""The member of a tool's `_meta` in which it says what its calls need."""


class ToolKeywords(TypedDict, total=False):
    """What a tool says of itself beyond its signature.

    name, title, description: the function's name and docstring, unless given.
    annotations: hints about what it does; clients do not trust them.
    icons: images to show beside its name.
    timeout: seconds after which a call is cancelled and its caller told.
    meta: more members for its `_meta`.
    resume: what becomes of a call that waits for an answer when its process is gone. "replay": the body runs again, and what
        it had asked and done in a `ctx.step` returns at once. "parked": the call is lost and its caller told. "auto": replay
        if `annotations` say that it is read-only or idempotent, else parked.
    requires: client capabilities that a call needs, such as `{"sampling", "elicitation.form"}`. Others cannot call it, and
        where a listing belongs to a session they do not see it.
    elicits: the questions it may ask, published with it; only these may then be asked by key.
    input_schema: its arguments as JSON Schema (2020-12), instead of the signature's: the function takes them as one dict.
    output_schema: its structured result as JSON Schema, instead of the return annotation's.
    max_depth: how deep the branches of a call may nest; a branch may be started with a limit of its own.
    token_budget: how many tokens the samples of a call, those in branches included, may use.
    """

    name: str
    title: str
    description: str
    annotations: ToolAnnotations
    icons: Sequence[Icon]
    timeout: float
    meta: JsonObject
    resume: ResumePolicy
    requires: Collection[str]
    elicits: Sequence[Elicit[object]]
    input_schema: JsonObject
    output_schema: JsonObject
    max_depth: int
    token_budget: int


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The same as a value, with defaults; see `ToolKeywords`."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | None = None
    icons: Sequence[Icon] = ()
    timeout: float = math.inf
    meta: JsonObject | None = field(default=None)
    resume: ResumePolicy = "auto"
    requires: Collection[str] = ()
    elicits: Sequence[Elicit[object]] = ()
    input_schema: JsonObject | None = None
    output_schema: JsonObject | None = None
    max_depth: int | None = None
    token_budget: int | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        check_timeout(self.timeout)
        check_resume(self.resume)
        check_elicits(self.elicits)
        check_schema("input_schema", self.input_schema)
        check_schema("output_schema", self.output_schema)
        check_count("max_depth", self.max_depth)
        check_count("token_budget", self.token_budget)
        if isinstance(self.requires, str):
            raise TypeError(
                f"requires: a set of capabilities, such as {{{self.requires!r}}}, not {self.requires!r} alone"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A registered tool. `model` is what `tools/list` shows of it, `mirrored` the arguments that headers repeat."""

    function: Function
    model: ToolModel
    timeout: float
    requires: tuple[str, ...]
    mirrored: ParameterHeaders
    _arguments: Arguments
    _handler: Handler
    _converted: Converter
    _resume: ResumeMode

    @property
    def name(self) -> str:
        return self.model.name

    def open_to(self, client: ClientCapabilities) -> bool:
        """Whether a client with these capabilities can call it."""
        return not self.requires or lacks(client, self.requires) is None

    def plan(self, facts: RequestFacts, arguments: JsonObject) -> Plan | CallToolResult:
        """How to run one call; or the result that says what is wrong with its arguments (L-TOOL-7s, SEP-1303).

        Raises:
            CapabilityError: the client lacks what the tool requires; nothing of it runs.
            LimitExceeded: a plain function would need a thread, and all are held by calls that were cancelled.
        """
        if self.requires and (missing := lacks(facts.client_capabilities, self.requires)) is not None:
            needed = ", ".join(self.requires)
            raise CapabilityError(f"the tool {self.name} needs a client that supports {needed}", missing)
        try:
            values = self._arguments.bind(arguments)
        except ValueError as error:
            return error_result(f"Invalid arguments for {self.name}: {error}")
        self._handler.admit()
        return Plan(partial(self._run, values), self.name, self.timeout, self._failed, self._resume)

    async def _run(self, values: dict[str, object], call: CallPort, lane: Lane) -> CallToolResult:
        return self._converted(await self._handler(values, call, lane))

    def _failed(self, cause: BaseException | CancelReason) -> CallToolResult | None:
        """What the model is told; None leaves it to the protocol, or to nobody."""
        match cause:
            case LocalProtocolError():
                logger.error("the tool %s broke a rule", self.name, exc_info=cause)
                return error_result(f"{self.name}: {cause}")
            case CancelReason() | ProtocolError() | CapabilityError():
                return None
            case ToolError() | LimitExceeded() | RequestTimeout():
                return error_result(str(cause))
            case _:
                reference = secrets.token_hex(4)
                logger.error("the tool %s failed [%s]", self.name, reference, exc_info=cause)
                return error_result(unexpected(self.name, reference))

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


def make_tool(function: Function, options: ToolOptions, threads: ThreadLimiter) -> Tool:
    """A tool from a function.

    Raises:
        TypeError: the signature cannot be offered as a tool.
        ValueError: the name is not one, a schema or a mirrored argument is not allowed, or a capability is unknown.
    """
    name = options.name or str(getattr(function, "__name__", ""))
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a tool name: give name=, 1 to 128 letters, digits, '_', '-' and '.'")
    arguments = (
        read_arguments(function) if options.input_schema is None else raw_arguments(function, options.input_schema)
    )
    returned = (
        promised(function, arguments.returns) if options.output_schema is None else read_schema(options.output_schema)
    )
    requires = required(name, options.requires)
    limits = CallLimits(options.max_depth, options.token_budget)
    model = ToolModel(
        name=name,
        title=options.title,
        description=options.description or function_doc(function),
        input_schema=arguments.schema,
        output_schema=returned.schema,
        annotations=options.annotations,
        icons=list(options.icons) or None,
        meta=published(options, requires),
    )
    return Tool(
        function,
        model,
        options.timeout,
        requires,
        ParameterHeaders.of(arguments.schema),
        arguments,
        make_handler(function, arguments.context, threads, options.elicits, limits),
        returned.converted,
        resumed(options.resume, options.annotations),
    )


def promised(function: Function, returns: object) -> Promise:
    """What the return annotation promises. Raises `TypeError`, naming the function, when it cannot be kept."""
    try:
        return read_return(returns)
    except TypeError as error:
        raise TypeError(f"{function.__qualname__}: {error}") from error


def required(name: str, gates: Collection[str]) -> tuple[str, ...]:
    for gate in gates:
        if gate.partition(".")[0] not in GATES:
            raise ValueError(f"{name}: no client declares {gate!r}; there are {', '.join(sorted(GATES))}")
    return tuple(sorted(gates))


def published(options: ToolOptions, requires: Sequence[str]) -> JsonObject | None:
    """The tool's `_meta`: the author's, and what its calls need and may ask."""
    needs: JsonObject = {REQUIRES: list(requires)} if requires else {}
    return with_questions({**(options.meta or {}), **needs}, options.elicits)


def resumed(policy: ResumePolicy, hints: ToolAnnotations | None) -> ResumeMode:
    """What the policy means for this tool: "auto" replays what its author declared harmless to run twice."""
    match policy:
        case "replay":
            return ResumeMode.REPLAY
        case "parked":
            return ResumeMode.PARKED
        case "auto":
            harmless = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
            return ResumeMode.REPLAY if harmless else ResumeMode.PARKED


def unexpected(name: str, reference: str) -> str:
    """Safe text for an error that nobody expected: what the author wrote to say stays in the log (reliability row 66)."""
    return f"{name} failed with an internal error; the server's log has the details under {reference}."
