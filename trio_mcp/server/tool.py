"""Tools: a function with the schemas of its signature, and how `tools/call` runs it."""

from __future__ import annotations

import math
import re
import secrets
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from ..checks import check_instance, check_int
from ..errors import (
    CapabilityError,
    LimitExceeded,
    LocalProtocolError,
    MalformedAnswer,
    ProtocolError,
    QuestionRejected,
    RemoteProtocolError,
    RequestTimeout,
    ToolError,
)
from ..logs import peer_logger
from ..protocol.http.parameter_headers import ParameterHeaders
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.meta import REQUIRED_CAPABILITIES
from ..runtime import Actor, CancelReason, Lane, ThreadLimiter
from ..session import Call, Plan, RequestFacts, ResumeMode
from ..types import CallToolRequestParams, CallToolResult, ClientCapabilities, JsonObject, Model, ToolAnnotations
from ..types import Tool as ToolModel
from ..types.capabilities import lacks
from .branching import BranchTerms
from .catalog import Catalog
from .concurrency import ConcurrencyLimit, ToolBusy
from .handler import Function, Handler, make_handler
from .options import OfferKeywords, check_count, check_offer, listed_members, name_for, question_keys, resume_mode
from .results import Converter, ReturnSpec, error_result, return_spec, schema_return_spec
from .schema_checks import DearCheck
from .signature import Arguments, schema_arguments, signature_arguments

logger = peer_logger("trio_mcp.tool")

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")  # L-TOOL-2s
CAPABILITIES = frozenset({"elicitation", "experimental", "extensions", "roots", "sampling"})
"""The client capabilities that a tool may require."""
REQUIRES_META_KEY = "trio-mcp/requires"
"""The member of a tool's `_meta` in which it publishes the capabilities that its calls need."""


class ToolKeywords(OfferKeywords, total=False):
    """The options of a tool: those of `OfferKeywords`, and these.

    annotations: hints about what it does; clients do not trust them.
    requires: client capabilities that a call needs, such as `{"sampling", "elicitation.form"}`. Other clients cannot call the
        tool, and legacy ones do not see it in the list.
    input_schema: JSON Schema (2020-12) of the arguments, instead of the signature's; the function takes them as one dict.
    output_schema: JSON Schema of the structured result, instead of the return annotation's.
    max_depth: how deep the branches of a call may nest; a branch may be started with another limit.
    token_budget: how many tokens the samples of a call may use, including those in branches.
    limit: how many calls of the tool run at once. A modern call does not count while it waits for an answer.
    queue: how many more calls may wait for one of these to end (default 0); all others are rejected.
    """

    annotations: ToolAnnotations
    requires: Collection[str]
    input_schema: JsonObject
    output_schema: JsonObject
    max_depth: int
    token_budget: int
    limit: int
    queue: int


def check_tool_options(options: ToolKeywords) -> None:
    """Raise `TypeError` or `ValueError` if an option of a tool is unknown or has a wrong value."""
    check_offer(options, ToolKeywords.__optional_keys__, "tool()")
    given: Mapping[str, object] = options
    for name in ("input_schema", "output_schema"):
        # A type, such as a model, is a frequent mistake.
        if (schema := given.get(name)) is not None:
            check_instance(name, schema, dict, 'a JSON Schema as a dict, such as {"type": "object"}')
    for name in ("max_depth", "token_budget"):
        check_count(name, given.get(name))
    check_limit(given.get("limit"), given.get("queue"))
    # A string is a collection of letters, each of which would be an unknown capability.
    if isinstance(requires := options.get("requires"), str):
        raise TypeError(f"requires: a set of capabilities, such as {{{requires!r}}}, not {requires!r}")


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A registered tool. `model` is what `tools/list` shows; `mirrored` are the arguments that headers repeat, if any."""

    function: Function
    model: ToolModel
    timeout: float
    requires: tuple[str, ...]
    mirrored: ParameterHeaders | None
    _arguments: Arguments
    _handler: Handler
    _convert: Converter
    _resume: ResumeMode

    @property
    def name(self) -> str:
        """The name under which clients call the tool."""
        return self.model.name

    def callable_by(self, client: ClientCapabilities) -> bool:
        """Return whether a client with these capabilities can call it."""
        return not self.requires or lacks(client, self.requires) is None

    def plan(self, facts: RequestFacts, arguments: JsonObject) -> Plan | CallToolResult:
        """Return how to run one call, or the result that says why it does not run (L-TOOL-7s, SEP-1303).

        It does not if its arguments are wrong, or if the client lacks a capability and its revision has no error code for that.

        Raises:
            CapabilityError: the client lacks a capability that the tool requires, and its revision has an error code for it.
            LimitExceeded: the function needs a thread, and cancelled calls hold them all; or as many of its calls run and wait as
                may.
        """
        # Before the arguments: another client can do nothing about them.
        if self.requires and (missing := lacks(facts.client_capabilities, self.requires)) is not None:
            needed = ", ".join(self.requires)
            lacking = CapabilityError(f"the tool {self.name} needs a client that supports {needed}", missing)
            result = self._error_result(facts, lacking)
            if result is None:
                raise lacking
            return result
        handler = self._handler
        try:
            run = partial(handler.run, self._arguments.bind(arguments), self._convert)
        except ValueError as error:
            return self._invalid(error)
        except DearCheck as check:
            run = partial(self._run_if_valid, check.with_traceback(None))
        if handler.admit is not None:
            handler.admit()
        return Plan(run, self.name, self.timeout, self._error_result, self._resume)

    async def _run_if_valid(
        self, check: DearCheck[dict[str, object]], call: Call, place: Actor | Lane
    ) -> CallToolResult:
        try:
            values = await check.decide()
        except ValueError as error:
            return self._invalid(error)
        return await self._handler.run(values, self._convert, call, place)

    def _invalid(self, error: ValueError) -> CallToolResult:
        # A result and not a protocol error, so that the model reads it and corrects its call.
        return error_result(f"Invalid arguments for {self.name}: {error}")

    def _error_result(self, facts: RequestFacts, cause: BaseException | CancelReason) -> CallToolResult | None:
        """Return the result for a failure; None to answer with a protocol error, or not at all."""
        match cause:
            # The first case that matches counts: `LocalProtocolError` is a `ProtocolError` too, but a bug of this tool.
            case LocalProtocolError():
                logger.error("the tool %s broke a rule", self.name, exc_info=cause)
                return error_result(f"{self.name}: {cause}")
            case CapabilityError() if facts.terms.codec.revision.missing_capability_is_result:
                return error_result(str(cause), {REQUIRED_CAPABILITIES: cause.required})
            # Before `ProtocolError`: what went wrong between the tool and its client is no error of this request.
            case ToolError() | RequestTimeout() | QuestionRejected() | MalformedAnswer():
                return error_result(str(cause))
            case LimitExceeded() if not isinstance(cause, ToolBusy):
                return error_result(str(cause))
            case CancelReason() | ProtocolError() | CapabilityError() | ToolBusy():
                return None
            case _:
                # The reference connects what the user reports with the traceback in the log.
                reference = secrets.token_hex(4)
                logger.error("the tool %s failed [%s]", self.name, reference, exc_info=cause)
                return error_result(internal_error_text(self.name, reference))

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


def check_limit(limit: object, queue: object) -> None:
    """Raise unless `limit` and `queue` are None or counts. Raises `TypeError` for a queue without a limit."""
    if limit is not None:
        check_int("limit", limit, least=1, hint="leave it out for no limit")
    if queue is not None:
        check_int("queue", queue)
        if limit is None:
            raise TypeError("queue: only the calls of a tool with a limit wait, so give limit= too")


def call_tool(tools: Catalog[Tool], facts: RequestFacts, params: Model) -> Model | Plan:
    """Serve `tools/call`.

    Raises:
        RemoteProtocolError: -32602, there is no such tool.
    """
    assert isinstance(params, CallToolRequestParams)
    tool = tools.by_key.get(params.name)
    if tool is None:
        raise RemoteProtocolError(f"Unknown tool: {params.name[:128]}", code=INVALID_PARAMS)
    check_headers(tool, facts, params)
    return tool.plan(facts, params.arguments or {})


def uncallable_tools(tools: Catalog[Tool], facts: RequestFacts) -> frozenset[Tool]:
    """Return the tools that this client cannot call (row 30), where a list belongs to its session."""
    # A modern list belongs to no session, and may be cached for other clients.
    if not facts.terms.codec.revision.hides_gated:
        return frozenset()
    return frozenset(tool for tool in tools if not tool.callable_by(facts.client_capabilities))


def check_retry_headers(tools: Catalog[Tool], facts: RequestFacts, params: Model) -> None:
    """Check the headers of a request that continues a call; `call_tool` checks those of the others."""
    assert isinstance(params, CallToolRequestParams)
    tool = tools.by_key.get(params.name)
    # A tool that was removed in the meantime is no error: its calls continue.
    if tool is not None:
        check_headers(tool, facts, params)


def check_headers(tool: Tool, facts: RequestFacts, params: CallToolRequestParams) -> None:
    """Raise `RemoteProtocolError` if the headers of a call do not match its arguments (M-HTTP-4s); a pipe has no headers."""
    if tool.mirrored is not None and facts.headers and facts.terms.codec.revision.mirrors:
        tool.mirrored.check(facts.headers, params.arguments or {})


def make_tool(function: Function, options: ToolKeywords, threads: ThreadLimiter) -> Tool:
    """Return a tool that runs a function.

    Raises:
        TypeError: the signature cannot be that of a tool, or an option is unknown or has the wrong type.
        ValueError: the name is missing or invalid, an option, a schema or a mirrored argument is not allowed, or a capability is
            unknown.
    """
    check_tool_options(options)
    name = name_for(function, options)
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a tool name: give name=, 1 to 128 letters, digits, '_', '-' and '.'")
    schema, hints = options.get("input_schema"), options.get("annotations")
    arguments = signature_arguments(function) if schema is None else schema_arguments(function, schema)
    returned = tool_return_spec(function, arguments.returns, options.get("output_schema"))
    requires = tuple(sorted(options.get("requires", ())))
    for capability in requires:
        if capability.partition(".")[0] not in CAPABILITIES:
            raise ValueError(f"{name}: no client declares {capability!r}; there are {', '.join(sorted(CAPABILITIES))}")
    model = ToolModel(
        name=name,
        input_schema=arguments.schema,
        output_schema=returned.schema,
        annotations=hints,
        **listed_members(function, options, {REQUIRES_META_KEY: list(requires)} if requires else None),
    )
    max_depth, limit = options.get("max_depth"), options.get("limit")
    terms = BranchTerms(question_keys(options), sys.maxsize if max_depth is None else max_depth)
    return Tool(
        function,
        model,
        options.get("timeout", math.inf),
        requires,
        ParameterHeaders.of(arguments.schema) or None,
        arguments,
        make_handler(
            function,
            arguments.context,
            threads,
            terms,
            options.get("token_budget"),
            None if limit is None else ConcurrencyLimit(name, limit, options.get("queue", 0)),
        ),
        returned.convert,
        resume_mode(options, harmless=hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)),
    )


def tool_return_spec(function: Function, returns: object, schema: JsonObject | None) -> ReturnSpec:
    """Return what the schema, or else the return annotation, declares. Raises `TypeError`, naming the function."""
    try:
        return return_spec(returns) if schema is None else schema_return_spec(schema)
    except TypeError as error:
        raise TypeError(f"{function.__qualname__}: {error}") from error


def internal_error_text(name: str, reference: str) -> str:
    """Return the text for an unexpected error. The exception's own text may hold secrets, and only goes to the log."""
    return f"{name} failed with an internal error; the server's log has the details under {reference}."
