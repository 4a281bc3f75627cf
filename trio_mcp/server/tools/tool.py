"""Tools: a function with the schemas of its signature, and how `tools/call` runs it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ... import server
from ...base.logs import FailureLog, peer_logger
from ...base.values import make_tuple
from ...errors import (
    CapabilityError,
    InvalidRequestState,
    LimitExceeded,
    LocalProtocolError,
    MalformedAnswer,
    ProtocolError,
    ProviderError,
    QuestionRejected,
    RemoteProtocolError,
    RequestTimeout,
    ResourceNotFound,
    ToolError,
    UrlElicitationRequired,
)
from ...protocol.codec.models import Params, PlainCall
from ...protocol.http.headers import ParameterHeaders
from ...protocol.jsonrpc import INVALID_PARAMS
from ...protocol.revisions import REQUIRED_CAPABILITIES, REQUIRED_SCOPES
from ...runtime import Actor, CancelReason, Lane, ThreadLimiter
from ...session import Call, Plan, RequestFacts, ResumeMode
from ...session.calls.call import Body
from ...session.calls.facts import NEVER_A_TASK, TaskSupport
from ...session.calls.failures import author_hint, url_required_code
from ...types import CallToolRequestParams, CallToolResult, ClientCapabilities, JsonObject, Model, Tool as ToolModel
from ...types.capabilities import lacks
from ..access import Access, Restricted, access_of
from ..branching import BranchTerms
from ..catalog import Catalog
from ..handler import Function, Handler, make_handler
from ..options import check_listable, listed_members, name_for, on_its_loop, resume_mode
from ..tool_options import (
    REQUIRES_META_KEY,
    ToolKeywords,
    branch_terms,
    check_tool_name,
    check_tool_options,
    concurrency_limit,
    is_harmless,
    published_meta,
    required_capabilities,
    task_support,
    tool_hints,
)
from ..values.callables import callable_name
from ..values.schema_checks import DeferredCheck
from ..values.signature import Arguments, schema_arguments, signature_arguments
from ..values.text_results import PLAIN_TEXT, TEXT, Converter, ReturnSpec, error_result, return_spec
from .task_calls import as_task, check_task, listed_execution

if TYPE_CHECKING:
    from ..values.parameters_model import ParametersModel

logger = peer_logger("trio_mcp.tool")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tool:
    """A tool, registered or not.

    Attributes:
        name: the name under which clients call it.
        function: the registered function; for a handoff tool, its `before`.
        model: what `tools/list` shows.
        mirrored: the arguments that headers repeat, if any.
        access: who may see and call it; None for everybody.
        task: whether its calls run as tasks.
        mounts: the servers that it comes through; empty for a tool of the server itself.
    """

    name: str
    function: Function
    model: ToolModel
    timeout: float
    requires: tuple[str, ...]
    mirrored: ParameterHeaders | None
    access: Access | None
    _arguments: Arguments
    _handler: Handler
    _convert: Converter
    _resume: ResumeMode
    _heartbeat: float | None
    _repeatable: bool
    _make: Callable[[ThreadLimiter], Tool]
    max_result: int | None
    task: TaskSupport = TaskSupport.FORBIDDEN
    mounts: server.mounts.Mounts = ()

    @property
    def token_budget(self) -> int | None:
        """The tokens that the samples of one call may use; None for no limit."""
        return self._handler.token_budget

    def with_threads(self, threads: ThreadLimiter) -> Tool:
        """Return the tool of another server, whose plain functions run in `threads`."""
        # Made again, and not only with another handler: what a handler counts belongs to one server.
        return self if self._handler.threads is threads else self._make(threads)

    def without(self, fulfilled: frozenset[str]) -> Tool:
        """Return the tool without the requirements that its server fulfils."""
        if fulfilled.isdisjoint(self.requires):
            return self
        requires = tuple(name for name in self.requires if name not in fulfilled)
        meta = {name: value for name, value in (self.model.meta or {}).items() if name != REQUIRES_META_KEY}
        if requires:
            meta[REQUIRES_META_KEY] = [*requires]
        return replace(self, requires=requires, model=self.model.model_copy(update={"meta": meta or None}))

    def mounted(self, mount: server.mounts.MountPoint) -> Tool:
        """Return the tool as the outer server of a mount has it. Raises `ValueError` if its name is too long there."""
        name = mount.outer_name(self.name)
        check_tool_name(name, hint="a mounted one has ")
        model = self.model.model_copy(update={"name": name})
        return replace(self, name=name, model=model, mounts=(*self.mounts, mount)).without(mount.fulfilled)

    def callable_by(self, client: ClientCapabilities) -> bool:
        """Return whether a client with these capabilities can call it."""
        return not self.requires or lacks(client, self.requires) is None

    def plan(self, facts: RequestFacts, arguments: JsonObject, *, is_plain: bool = False) -> Plan | CallToolResult:
        """Return how to run one call, or the result that says why it does not run (L-TOOL-7s, SEP-1303).

        It does not if its arguments are wrong, or if the client lacks a capability and its revision has no error code for that.

        Args:
            is_plain: nothing looks at the result before it is sent, so that one that is a text need be no model.

        Raises:
            CapabilityError: the client lacks a capability that the tool requires, and its revision has an error code for it.
            LimitExceeded: the function needs a thread, and cancelled calls hold them all; or as many of its calls run and wait as
                may.
        """
        if self.access is not None and self.access.lacks_scopes(facts.caller):
            return self._lacks_scopes(self.access)
        # Before the arguments: another client can do nothing about them.
        if self.requires and (missing := lacks(facts.client_capabilities, self.requires)) is not None:
            needed = ", ".join(self.requires)
            lacking = CapabilityError(f"the tool {self.name} needs a client that supports {needed}", missing)
            result = lacking_result(facts, lacking)
            if result is None:
                raise lacking
            return result
        handler, convert = self._handler, self._convert
        if is_plain and convert is TEXT and self.max_result is None and not self.mounts:
            convert = PLAIN_TEXT
        run: Body
        try:
            run = partial(handler.run, self._arguments.bind(arguments), convert)
        except ValueError as error:
            return self._invalid(error)
        except DeferredCheck as check:
            run = partial(self._run_if_valid, check.with_traceback(None))
        if handler.admit is not None:
            handler.admit()
        if self.mounts:
            run = server.mounts.mounted_body(self.mounts, "tool", self.name, arguments, run)
        body = run if self.max_result is None else server.large_results.LimitedBody(run, self.name, self.max_result)
        repeatable, error_result = self._repeatable, self._error_result
        return make_tuple(
            Plan,
            (
                body,
                self.name,
                self.timeout,
                error_result,
                self._resume,
                self._heartbeat,
                repeatable,
                NEVER_A_TASK,
                None,
                False,
            ),
        )

    async def _run_if_valid(
        self,
        check: DeferredCheck[dict[str, object]],
        call: Call,
        place: Actor | Lane,
        parent: BranchTerms | None = None,
    ) -> CallToolResult:
        try:
            values = await check.decide(self._handler.threads, call.actor.caller)
        except ValueError as error:
            return self._invalid(error)
        return await self._handler.run(values, self._convert, call, place, parent)

    def _lacks_scopes(self, access: Access) -> CallToolResult:
        scopes = sorted(access.scopes)
        return error_result(access.lacking_text(f"the tool {self.name}"), {REQUIRED_SCOPES: [*scopes]})

    def _invalid(self, error: ValueError) -> CallToolResult:
        # A result and not a protocol error, so that the model reads it and corrects its call.
        return error_result(f"Invalid arguments for {self.name}: {error}")

    def _error_result(
        self, facts: RequestFacts, cause: BaseException | CancelReason, failures: FailureLog
    ) -> CallToolResult | None:
        """Return the result for a failure; None to answer with a protocol error, or not at all."""
        match cause:
            # The first case that matches counts: `LocalProtocolError` is a `ProtocolError` too, but a bug of this tool.
            case LocalProtocolError():
                failures.log(logger, self.name, f"the tool {self.name} failed: {cause}", cause)
                return error_result(f"{self.name}: {cause}")
            case CapabilityError():
                return lacking_result(facts, cause)
            case UrlElicitationRequired() if url_required_code(facts) is not None:
                return None
            # Before `ProtocolError`: what went wrong between the tool and its client is not an error of this request.
            case ToolError() | RequestTimeout() | ResourceNotFound() | QuestionRejected() | MalformedAnswer():
                return error_result(str(cause))
            case LimitExceeded() if not isinstance(cause, server.concurrency.ToolBusy):
                return error_result(str(cause))
            case CancelReason() | ProtocolError() | server.concurrency.ToolBusy():
                return None
            case ProviderError():
                failures.log(logger, self.name, f"the tool {self.name} has no answer of its model", cause)
                return error_result(cause.public_text)
            case _:
                # The reference connects what the user reports with the traceback in the log.
                reference = secrets.token_hex(4)
                hint = author_hint(cause, "tool")
                failures.log(logger, self.name, f"the tool {self.name} failed", cause, reference=reference, hint=hint)
                return error_result(internal_error_text(self.name, reference))

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


def lacking_result(facts: RequestFacts, lacking: CapabilityError) -> CallToolResult | None:
    """Return the result that says which capability the client lacks; None if its revision has an error code for that."""
    if facts.terms.codec.revision.missing_capability_is_result:
        return error_result(str(lacking), {REQUIRED_CAPABILITIES: lacking.required})
    return None


def call_tool(tools: Catalog[Tool], facts: RequestFacts, params: Params) -> Model | Plan:
    """Serve `tools/call`; nothing but the encoder sees the result of a plain call.

    Raises:
        RemoteProtocolError: -32602, there is no such tool.
    """
    assert isinstance(params, PlainCall | CallToolRequestParams)
    tool = tools.by_key.get(params.name)
    if tool is None or (tool.access is not None and tool.access.hides_from(facts.caller)):
        raise unknown_tool(tools, facts, params.name)
    if tool.mirrored is not None:
        check_headers(tool, facts, params)
    if isinstance(params, PlainCall):
        if tool.task is NEVER_A_TASK:
            return tool.plan(facts, params.arguments, is_plain=True)
        params = params.model
    if tool.task is NEVER_A_TASK and params.task is None:
        return tool.plan(facts, params.arguments or {})
    # Without a tool that runs as a task the server does not declare tasks, and ignores that one is asked for (L-TSK-1).
    if tool.task is not TaskSupport.FORBIDDEN or any(each.task is not TaskSupport.FORBIDDEN for each in tools):
        check_task(tool.name, tool.task, facts, params)
    return as_task(tool.plan(facts, params.arguments or {}), tool.task, params)


MAX_LOOKED_AT: Final = 500
"""How many tools are looked at for one that a caller may have meant."""


def unknown_tool(tools: Catalog[Tool], facts: RequestFacts, name: str) -> RemoteProtocolError:
    """Return the error for a tool that does not exist, or is hidden; it names none that is hidden from this caller."""
    caller, capabilities = facts.caller, facts.client_capabilities
    # Of the first ones: otherwise each unknown name would cost a call of every `visible`.
    first = [numbered.item for numbered in tools.snapshot()[:MAX_LOOKED_AT]]
    known = (
        tool.name
        for tool in first
        if (tool.access is None or not tool.access.hides_from(caller)) and tool.callable_by(capabilities)
    )
    return RemoteProtocolError(
        f"Unknown tool: {name[:128]}{server.other_names.meant(name, known)}", code=INVALID_PARAMS
    )


def uncallable_tools(tools: Catalog[Tool], restricted: Restricted[Tool], facts: RequestFacts) -> frozenset[Tool]:
    """Return the tools that are hidden from this caller, and in a session those that its client cannot call (row 30)."""
    hidden = restricted.hidden(facts)
    # A modern list belongs to no session, and may be cached for other clients.
    if not facts.terms.codec.revision.hides_gated:
        return hidden
    return hidden.union(tool for tool in tools if not tool.callable_by(facts.client_capabilities))


def check_retry(tools: Catalog[Tool], facts: RequestFacts, params: Model) -> None:
    """Check the caller and the headers of a request that continues a call; `call_tool` checks those of the others.

    Raises:
        InvalidRequestState: the tool is hidden from the caller.
        RemoteProtocolError: the caller lacks its scopes, or a header differs.
    """
    assert isinstance(params, CallToolRequestParams)
    tool = tools.by_key.get(params.name)
    # A tool that was removed in the meantime is not an error: its calls continue.
    if tool is None:
        return
    # The caller may have fewer rights than when the call began.
    if tool.access is not None:
        # The error of a tool that does not exist, for which no state is good.
        hidden = partial(InvalidRequestState, "the tool is hidden from this caller")
        tool.access.check(facts.caller, f"the tool {tool.name}", hidden)
    check_headers(tool, facts, params)


def check_headers(tool: Tool, facts: RequestFacts, params: CallToolRequestParams | PlainCall) -> None:
    """Raise `RemoteProtocolError` if the headers of a call do not match its arguments (M-HTTP-4s); elsewhere it has none."""
    if tool.mirrored is not None and facts.own_headers and facts.terms.codec.revision.mirrors:
        tool.mirrored.check(facts.headers, params.arguments or {})


def make_tool(
    function: Function,
    options: ToolKeywords,
    threads: ThreadLimiter,
    *,
    parameters: ParametersModel | None = None,
    before: Function | None = None,
) -> Tool:
    """Return a tool that runs a function.

    Args:
        parameters: makes the one argument that the function takes, instead of its signature.
        before: the first phase of a handoff, if the function runs one.

    Raises:
        TypeError: the signature cannot be that of a tool, or an option is unknown or has the wrong type.
        ValueError: the name is missing or invalid, an option, a schema or a mirrored argument is not allowed, or a capability is
            unknown.
    """
    check_tool_options(options)
    name = name_for(function, options)
    check_tool_name(name)
    hints, requires = tool_hints(options.get("annotations")), required_capabilities(name, options)
    resume = resume_mode(options, harmless=before is not None or is_harmless(hints))
    support = task_support(options, resume)
    arguments = tool_arguments(name, function, options, parameters)
    returned = tool_return_spec(function, arguments.returns, options.get("output_schema"))
    model = ToolModel(
        name=name,
        input_schema=arguments.schema,
        output_schema=listed_output(returned, options),
        annotations=hints,
        execution=listed_execution(support),
        **listed_members(function, options, published_meta(name, options, requires)),
    )
    check_listable("tool", name, model)
    return Tool(
        name,
        before or function,
        model,
        options.get("timeout", math.inf),
        requires,
        ParameterHeaders.of(arguments.schema) or None,
        access_of(name, options),
        arguments,
        # The phases of a handoff run each on its loop.
        tool_handler(
            name, function if before is not None else on_its_loop(function, options), arguments, options, threads
        ),
        returned.convert,
        resume,
        options.get("heartbeat"),
        is_harmless(hints),
        lambda others: make_tool(function, options, others, parameters=parameters, before=before),
        options.get("max_result"),
        support,
    )


def tool_handler(
    name: str, function: Function, arguments: Arguments, options: ToolKeywords, threads: ThreadLimiter
) -> Handler:
    """Return what runs the function of a tool."""
    budget, limit = options.get("token_budget"), concurrency_limit(name, options)
    return make_handler(function, arguments.context, threads, branch_terms(options), budget, limit)


def tool_arguments(
    name: str, function: Function, options: ToolKeywords, parameters: ParametersModel | None
) -> Arguments:
    """Return what a tool takes, and warn if its schema keeps `$ref`."""
    schema = options.get("input_schema")
    if parameters is not None:
        arguments = parameters.arguments_of(function)
    else:
        arguments = signature_arguments(function) if schema is None else schema_arguments(function, schema)
    if arguments.kept is not None:
        logger.warning(
            "the input schema of the tool %s keeps $ref, which some hosts do not resolve: %s", name, arguments.kept
        )
    return arguments


def listed_output(returned: ReturnSpec, options: ToolKeywords) -> JsonObject | None:
    """Return the output schema that a listing shows: none with `max_result`, because a preview has no structure."""
    return returned.schema if options.get("max_result") is None else None


def tool_return_spec(function: Function, returns: object, schema: JsonObject | None) -> ReturnSpec:
    """Return what the schema, or else the return annotation, declares. The errors name the function."""
    if schema is not None:
        return server.values.results.schema_return_spec(schema, callable_name(function))
    try:
        return return_spec(returns)
    except TypeError as error:
        raise TypeError(f"{callable_name(function)}: {error}") from error


def internal_error_text(name: str, reference: str) -> str:
    """Return the text for an unexpected error. The exception's own text may hold secrets, and only goes to the log."""
    return f"{name} failed with an internal error; the server's log has the details under {reference}."
