"""The tools of a loop: what an author may give, what the model is offered of it, and what runs a call of it.

given                                     runs as
the name of a tool of this server         a call of it: middleware, limits, scopes and timeout included
a function or `Tool` that is registered   the same
another function, or another `Tool`       the tool that it is, without middleware
a `Client`, or `ClientTools` of one       a call of the other server's tool
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

from ...base.checks import check_sequence, mistake
from ...base.logs import peer_logger
from ...base.named_tuples import NamedTuple
from ...errors import (
    CapabilityError,
    Disconnected,
    LimitExceeded,
    PeerError,
    ProviderError,
    RemoteProtocolError,
    RequestTimeout,
    ToolError,
)
from ...protocol.json_limits import held_size
from ...protocol.shown_text import dump_shown, shown_model
from ...protocol.strict_json import dumps, loads
from ...runtime import Lane, TokenBudget
from ...runtime.branch import with_timeout
from ...session import Call, Plan, RequestFacts, TokenUsage
from ...session.calls.services import RunnableTool
from ...session.dropped_items import LeftOut, by_key
from ...session.token_usage import call_result, error_result
from ...types import (
    CallToolRequestParams,
    CallToolResult,
    JsonValue,
    SamplingMessage,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from ..branching import BranchTerms
from ..nested import NestedBody, route_nested, run_in_lane
from ..tool_options import check_tool_name
from .prompts import OfferedTool

# What a tool loop returns, and how a tool ends one.

ENDED: Final = "A tool has ended the loop."
"""The text of a break without a value."""


class BreakToolLoop(ToolError):
    """Raise this in a tool to end the loop that runs it, because the result is known or cannot be found.

        raise BreakToolLoop({"flight": "TP3"})

    The other calls of the round are cancelled, and the model gets no more requests. If a client calls the tool, the call
    returns an error result with this text.

    Args:
        value: JSON; `ToolLoopResult.value` has it.
        text: what `ToolLoopResult.text` and the conversation have; by default the value, as JSON if it is not text.

    Raises:
        ValueError: JSON cannot hold the value or the text.
    """

    def __init__(self, value: JsonValue = None, text: str | None = None) -> None:
        written = dumps(value)
        if text is None:
            text = value if isinstance(value, str) else ENDED if value is None else written.decode()
        super().__init__(loads(dump_shown(text, "text")))
        # As a replay would read it from the journal.
        self.value = loads(written)


@dataclass(frozen=True, slots=True)
class ToolLoopResult:
    """The outcome of `ctx.run_tool_loop`.

    Attributes:
        text: the last answer of the model; or the text of the `BreakToolLoop` that ended the loop.
        ended_by: "answer", if the model called no more tools; "limit", if it had to answer without tools in the last round that
            `max_iterations` allows; or "break".
        value: the value of the `BreakToolLoop`; None without one.
        messages: the whole conversation, the messages that the loop began with included.
        usage: the tokens of all answers, as far as they were reported.
        iterations: how many times the model was asked.
        stop_reason: why the model stopped in its last answer, such as "endTurn"; None if the client did not say.
    """

    text: str
    ended_by: Literal["answer", "limit", "break"]
    value: JsonValue
    messages: tuple[SamplingMessage, ...] = field(repr=False)
    usage: TokenUsage
    iterations: int
    stop_reason: str | None


logger = peer_logger("trio_mcp.tool")

CALL: Final = "tools/call"
FAILED: Final = "The call failed: {}"


@runtime_checkable
class ToolClient(Protocol):
    """A connection to another server, as `trio_mcp.Client` is one."""

    async def list_tools(self) -> list[Tool]:
        """Return every tool of the server."""
        ...

    async def call_tool(self, name: str, arguments: Mapping[str, JsonValue] | None = None) -> CallToolResult:
        """Call a tool and return its result."""
        ...


@dataclass(frozen=True, slots=True)
class ClientTools:
    """Some of the tools of another server.

    Attributes:
        client: a connected `Client`.
        names: the tools that the model may call.

    Raises:
        TypeError: `names` is not a list of names.
    """

    client: ToolClient
    names: Sequence[str]

    def __post_init__(self) -> None:
        check_sequence("names", self.names, str, 'a list of names, such as ["search"]', "the name of a tool")


LoopTool: TypeAlias = str | OfferedTool | ToolClient | ClientTools
"""A tool for a loop: the name of a tool of this server, a function, a `Tool` of a server, or a client with all its tools."""


Listing: TypeAlias = Callable[[int, ToolClient], Awaitable[list[Tool]]]
"""Lists the tools of a client, which stands at this place of an author's list."""


class Runner(Protocol):
    """Runs the calls of one tool."""

    async def run(self, use: ToolUseContent, call: Call, lane: Lane, terms: BranchTerms) -> ToolResultContent:
        """Run a call in this lane and return its result, which is one with `is_error` if it failed.

        Raises:
            BreakToolLoop: the tool ends the loop.
        """
        ...


class LoopTools:
    """What the model of a loop is offered, and what runs it."""

    def __init__(self) -> None:
        self._models: dict[int, list[Tool]] = {}
        self._runners: dict[str, Runner] = {}

    @property
    def models(self) -> list[Tool]:
        """What the model is offered, in the order in which the author gave it: a replay must ask the same question."""
        return [model for place in sorted(self._models) for model in self._models[place]]

    def runner(self, name: str) -> Runner | None:
        """Return what runs the calls of a tool; None if there is none of that name."""
        return self._runners.get(name)

    def add(self, model: Tool, runner: Runner, place: int) -> None:
        """Add a tool. Raises `ValueError` if the name is taken or reserved.

        Args:
            place: in the author's list.
        """
        check_tool_name(model.name, hint="")
        if model.name in self._runners:
            raise ValueError(f"tools: two have the name {model.name!r}")
        self._models.setdefault(place, []).append(model)
        self._runners[model.name] = runner

    async def run(self, use: ToolUseContent, call: Call, lane: Lane, terms: BranchTerms) -> ToolResultContent:
        """Run a call of the model; see `Runner`. A name that was not offered is an error of the model."""
        runner = self._runners.get(use.name)
        if runner is None:
            return error_result(
                use, f"Unknown tool: {use.name[:128]}. There are: {', '.join(self._runners) or 'none'}."
            )
        result = await runner.run(use, call, lane, terms)
        try:
            result = shown_model(result, "result")
            call.actor.keep(held_size(result.encode()))
        except LimitExceeded as error:
            return error_result(use, FAILED.format(error))
        except ValueError as error:
            # The next question could not be sent. So it is the error that the tool's own call would have.
            problem = f"{call.target_name}: the result of the tool {use.name} cannot be sent"
            call.services.failures.log(logger, call.target_name, problem, error)
            return error_result(use, f"{use.name}: the returned value cannot be serialized to JSON: {error}")
        return result


class PlannedTool(NamedTuple):
    """A tool of this server, or one that was made of a function."""

    tool: RunnableTool
    registered: bool

    async def run(self, use: ToolUseContent, call: Call, lane: Lane, terms: BranchTerms) -> ToolResultContent:
        """Run the plan of a call, as for a client, and report a failure as to a client."""
        # The headers of the request mirror other arguments than those of this call.
        facts = call.facts._replace(method=CALL, own_headers=False)
        try:
            plan = self._plan(use, call, facts)
        except PeerError as error:
            return error_result(use, error.message)
        except (CapabilityError, LimitExceeded) as error:
            return error_result(use, str(error))
        if isinstance(plan, CallToolResult):
            return call_result(use, plan)
        # Every plan of a tool runs `Handler.run`, perhaps inside of middleware, and both take terms too.
        body = cast("NestedBody", plan.run)
        if self.tool.token_budget is not None:
            budget = TokenBudget(self.tool.token_budget, terms.budget, f"the tool {use.name}")
            terms = terms._replace(budget=budget)
        try:
            result = await with_timeout(partial(run_in_lane, body, call, terms, use.name), plan.timeout)(lane)
        except BreakToolLoop:
            raise
        except Exception as error:  # noqa: BLE001  the model reads it; what is not meant for it is logged instead
            failure = plan.error_result(facts, error, call.services.failures)
            if failure is None:
                return error_result(use, str(error))
            result = failure
        assert isinstance(result, CallToolResult)
        return call_result(use, result)

    def _plan(self, use: ToolUseContent, call: Call, facts: RequestFacts) -> Plan | CallToolResult:
        if self.registered:
            plan = route_nested(call, facts, CallToolRequestParams(name=use.name, arguments=use.input))
        else:
            plan = self.tool.plan(facts, use.input)
        return cast("Plan | CallToolResult", plan)


class RemoteTool(NamedTuple):
    """A tool of another server.

    Attributes:
        listed: whether the server has listed it, and the author has not named it.
    """

    client: ToolClient
    listed: bool

    async def run(self, use: ToolUseContent, call: Call, lane: Lane, terms: BranchTerms) -> ToolResultContent:  # noqa: ARG002
        """Call the tool. The text of an error of its server is for the model, which is the one that calls it."""
        try:
            return call_result(use, await self.client.call_tool(use.name, use.input))
        except (PeerError, RemoteProtocolError, RequestTimeout, LimitExceeded, CapabilityError) as error:
            return error_result(use, FAILED.format(error))
        except ProviderError as error:
            log_failure(call, use, error)
            return error_result(use, FAILED.format(error.public_text))
        except Disconnected as error:
            log_failure(call, use, error)
            return error_result(use, FAILED.format("its server cannot be reached"))
        except Exception as error:  # noqa: BLE001  the model reads that it failed, and the log has why
            log_failure(call, use, error)
            return error_result(use, FAILED.format("it failed with an internal error"))


def log_failure(call: Call, use: ToolUseContent, error: Exception) -> None:
    """Log why a tool of another server gave no result."""
    problem = f"{call.target_name}: the tool {use.name[:128]!r} of another server has no result"
    call.services.failures.log(logger, call.target_name, problem, error)


async def loop_tools(tools: Sequence[LoopTool], call: Call, listing: Listing) -> LoopTools:
    """Return the tools of a loop. Those that are hidden from the caller are left out.

    What the author names has precedence over what a client lists, in any order.

    Raises:
        LookupError: this server, or the other one, has no tool of a name.
        TypeError: one is not a tool.
        ValueError: two have one name, or a name is reserved.

    What `list_tools` of a client raises propagates.
    """
    offered = LoopTools()
    for index, tool in enumerate(tools):
        if isinstance(tool, ClientTools):
            models = by_key(await listing(index, tool.client), attrgetter("name"), {})
            if missing := [name for name in tool.names if name not in models]:
                raise LookupError(f"tools: the other server has no tool {', '.join(map(repr, missing))}")
            for name in tool.names:
                offered.add(models[name], RemoteTool(tool.client, listed=False), index)
        elif not isinstance(tool, ToolClient):
            add_local(offered, tool, call, index)
    for index, tool in enumerate(tools):
        if isinstance(tool, ToolClient):
            add_listed(offered, tool, await listing(index, tool), call, index)
    return offered


def add_listed(offered: LoopTools, client: ToolClient, models: Iterable[Tool], call: Call, place: int) -> None:
    """Add all tools of another server that can be offered, and log the others.

    Raises:
        ValueError: a tool of another client, or one that was chosen from this one, has the name of one of them.
    """
    reasons: dict[str, str] = {}
    for name, model in by_key(models, attrgetter("name"), reasons).items():
        known = offered.runner(name)
        if isinstance(known, RemoteTool) and (known.listed or known.client is client):
            raise ValueError(f"tools: two have the name {name!r}; a ClientGroup has a prefix for each of its servers")
        if known is not None:
            reasons[name] = "the loop has another tool of that name"
            continue
        try:
            offered.add(model, RemoteTool(client, listed=True), place)
        except ValueError as error:
            reasons[name] = str(error)
    LeftOut(logger, f"a client in a tool loop of {call.target_name!r}").note("tool", reasons)


def add_local(offered: LoopTools, tool: LoopTool, call: Call, place: int) -> None:
    """Add a tool of this server, or a function."""
    own = call.offers.tools
    assert own is not None, "a server that runs calls with a context has tools"
    name = own.registered(tool)
    if name is not None:
        found = own.named(name, call.facts)
        if found is not None:
            offered.add(found.model, PlannedTool(found, registered=True), place)
        return
    if isinstance(tool, str):
        raise LookupError(f"tools: this server has no tool {tool!r}")
    made = own.made_of(tool)
    if made is None:
        expected = "the name of a tool, a function, a Tool of a server, a Client or ClientTools"
        raise TypeError(mistake("each of tools", expected, tool))
    offered.add(made.model, PlannedTool(made, registered=False), place)


def check_loop_tools(tools: object) -> None:
    """Raise `TypeError` unless this is a list of what may be tools."""
    # One tool without a list is a frequent mistake.
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise TypeError(mistake("tools", "a list of tools", tools))
    for tool in tools:
        if isinstance(tool, Tool):
            raise TypeError(f"tools: a types.Tool, such as {tool.name!r}, has nothing that runs it: give a function")
