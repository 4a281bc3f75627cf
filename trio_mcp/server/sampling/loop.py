"""Running a tool loop as a part of a call: its questions, its calls as branches, and what is recorded of them for a replay.

A loop has a separate lane, so that its keys differ from all others in the call:

    the lane of the body          ""
    the loop                      "/1"           asks "sample/1-1", "sample/1-2", ...
    the calls of all its rounds   "/1/1", "/1/2", ...

The result of each call is recorded as a step of that lane, "round 2 call 1". A replay finds the results, and runs only the calls
that had not ended. A digest of the calls is recorded too, "round 2 calls": if the replay asks something else, say because its
author's text has changed, the model answers again, and its new calls must not get the old results. If a tool ended the loop, the
whole round is one step, "round 2": a replay must not run the calls again that were cancelled then.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final, TypeAlias, cast

import trio

from ...base.groups import without
from ...base.logs import peer_logger
from ...base.named_tuples import NamedTuple
from ...errors import BranchLimit, CapabilityError, LimitExceeded, without_traceback
from ...protocol.strict_json import dumps
from ...runtime import Branches, Lane, TokenBudget
from ...session import Call, used_tokens
from ...session.token_usage import ToolLoop, error_result, text_of
from ...types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    JsonValue,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from ..branching import BranchTerms, freeze_messages
from ..options import AskTimeout, ask_within
from .answers import check_answer
from .loop_tools import BreakToolLoop, LoopTool, LoopTools, ToolClient, ToolLoopResult, loop_tools
from .request import ask_provider, provider_for, sampling_question

# Asking a model: every question to one goes through `ask_model`, and is charged here.


def ask_model(
    call: Call,
    lane: Lane,
    budget: TokenBudget | None,
    params: CreateMessageRequestParams,
    limit: AskTimeout | None,
) -> Awaitable[CreateMessageResult]:
    """Ask the client's model, or that of the server's provider, and charge the tokens to a budget if there is one.

    Raises:
        BranchLimit: nothing is left of the budget, and nothing was sent; or the answer used more than was left.
        CapabilityError: the client lacks a capability that the request needs; nothing was sent.
        MalformedAnswer, QuestionRejected: see `Call.ask`.
        ProviderError: the server's provider has no answer.
        RequestTimeout: there was no answer within the limit; the request was withdrawn.
    """
    # Not `async def`, as `ask_within`.
    if budget is None:
        return ask_either(call, lane, params, limit)
    return ask_and_charge(call, lane, budget, params, limit)


def ask_either(
    call: Call, lane: Lane, params: CreateMessageRequestParams, limit: AskTimeout | None
) -> Awaitable[CreateMessageResult]:
    """Ask the model that the request goes to."""
    provider = provider_for(call, params)
    if provider is None:
        return ask_within(call, lane, sampling_question(params), limit)
    return ask_provider(call, lane, provider, params, limit)


async def ask_and_charge(
    call: Call,
    lane: Lane,
    budget: TokenBudget,
    params: CreateMessageRequestParams,
    limit: AskTimeout | None,
) -> CreateMessageResult:
    """Ask a model and charge the tokens to a budget; see `ask_model`."""
    estimate = call.services.options.estimate_tokens
    budget.check()
    try:
        result = await ask_either(call, lane, params, limit)
    except (CapabilityError, LimitExceeded):  # nothing was sent
        raise
    except BaseException:
        # The request went out, so the model may have worked for it. If a withdrawn or failed sample were free, a loop of
        # timeouts could use any number of tokens.
        budget.count(used_tokens(params, None, estimate))
        raise
    budget.charge(used_tokens(params, result, estimate))
    return result


# A call whose tool asks has no result in the journal when the call of the client is parked, but the answers of its questions are
# there. So a replay looks for the result by `find_step`, and runs the tool, which gets its answers.


logger = peer_logger("trio_mcp.call")

CANCELLED: Final = "This call was cancelled, because another one ended the loop."

STEP_OF_ROUND: Final = re.compile(r":round (\d+)")
STEP_OF_CALL: Final = re.compile(r"/(\d+)")

Results: TypeAlias = dict[int, ToolResultContent]
"""The results of one round, by the place of the call."""


class LoopOptions(NamedTuple):
    """What an author says about a loop."""

    tools: Sequence[LoopTool]
    max_iterations: int
    reports_rounds: bool


class Broken(NamedTuple):
    """What a tool ended the loop with."""

    value: JsonValue
    text: str


class LoopBroken(Exception):
    """A tool has ended the loop: nothing more is asked."""


@dataclass(slots=True, eq=False)
class LoopRun:
    """One tool loop of a call.

    Args:
        call: the call that it is a part of.
        lane: its own lane.
        terms: those of the body or branch that runs it.
    """

    call: Call
    lane: Lane
    terms: BranchTerms
    options: LoopOptions
    tools: LoopTools
    answer: CreateMessageResult | None = None
    broken: Broken | None = None
    rounds: int = 0
    begun: int = 0
    """How many calls all rounds have had."""

    async def ask(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        """Ask the model for the next round.

        Raises:
            LoopBroken: a tool has ended the loop.
        """
        if self.broken is not None:
            raise LoopBroken
        self.rounds += 1
        if self.options.reports_rounds:
            limit = self.options.max_iterations
            await self.call.progress(self.rounds - 1, limit, f"round {self.rounds} of at most {limit}")
        answer = await ask_model(self.call, self.lane, self.terms.budget, params, None)
        check_answer(answer)
        self.answer = answer
        return answer

    async def run_calls(self, uses: Sequence[ToolUseContent]) -> list[ToolResultContent]:
        """Run the calls of one answer as concurrent branches, and return their results in order.

        Raises:
            BranchLimit: the call has too many branches, or they nest too deep.
        """
        self._record_calls(uses)
        name = f"round {self.rounds}"
        recorded = self._recorded(name)
        if recorded is not None:
            return self._broken_before(cast("JsonObject", recorded))
        results = Results()
        await self._run_branches(uses, results)
        if self.broken is not None:
            for index, use in enumerate(uses):
                results.setdefault(index, error_result(use, CANCELLED))
        ordered = [results[index] for index in range(len(uses))]
        if self.broken is not None:
            self._record(name, {**self.broken._asdict(), "results": [result.wire() for result in ordered]})
        return ordered

    async def _run_branches(self, uses: Sequence[ToolUseContent], results: Results) -> None:
        refused: BranchLimit | None = None
        max_depth = min(self.terms.max_depth, self.call.services.options.max_depth)
        async with Branches(self.lane) as branches:
            for index, use in enumerate(uses):
                try:
                    branches.start(partial(self._run_call, branches, results, index, use), max_depth=max_depth)
                except BranchLimit as error:
                    refused = without_traceback(error)
                    branches.cancel()
                    break
        # After the block, which would wrap it in a group.
        if refused is not None:
            raise refused

    async def _run_call(
        self, branches: Branches, results: Results, index: int, use: ToolUseContent, lane: Lane
    ) -> None:
        """Run one call in the lane of its branch, unless an earlier run has its result."""
        name = f"round {self.rounds} call {index + 1}"
        recorded = self._recorded(name)
        if recorded is not None:
            await trio.lowlevel.checkpoint()
            results[index] = ToolResultContent.model_validate(recorded)
            return
        try:
            result = await self.tools.run(use, self.call, lane, self.terms)
        except BreakToolLoop as error:
            # The first one counts: the others are calls that it has cancelled.
            if self.broken is None:
                self.broken = Broken(error.value, str(error))
                results[index] = ToolResultContent(tool_use_id=use.id, content=[TextContent(text=str(error))])
                branches.cancel()
            return
        except BaseExceptionGroup as group:
            if self.broken is None or not isinstance(without(group, trio.Cancelled), Exception):
                raise
            logger.warning(
                "%s: a call of %s failed while it was cancelled", self.call.target_name, use.name, exc_info=True
            )
            await trio.lowlevel.checkpoint()
            return
        results[index] = result
        self._record(name, result.wire())

    def _record_calls(self, uses: Sequence[ToolUseContent]) -> None:
        """Record which calls this round has; forget what was recorded of it and of those after it for others."""
        memory, begun = self.call.memory, self.begun
        self.begun += len(uses)
        if memory is None:
            return
        name, mark = f"round {self.rounds} calls", sha256(dumps([use.wire() for use in uses])).hexdigest()
        recorded = self._recorded(name)
        if recorded == mark:
            return
        if recorded is not None:
            memory.forget_steps(partial(is_after, self.lane.path, self.rounds, begun))
        self._record(name, mark)

    def _broken_before(self, recorded: JsonObject) -> list[ToolResultContent]:
        """Return the results of a round in which a tool ended the loop, in an earlier run."""
        self.broken = Broken(recorded["value"], cast("str", recorded["text"]))
        return [ToolResultContent.model_validate(result) for result in cast("list[JsonValue]", recorded["results"])]

    def _recorded(self, name: str) -> JsonValue:
        return recall(self.call, self.lane, name)

    def _record(self, name: str, value: JsonValue) -> None:
        record(self.call, self.lane, name, value)


async def run_loop(
    call: Call, terms: BranchTerms, options: LoopOptions, params: CreateMessageRequestParams, lane: Lane
) -> ToolLoopResult:
    """Run a tool loop in its lane.

    Raises:
        LookupError, TypeError, ValueError: a tool is wrong; nothing was asked.
        LimitExceeded: the model calls too many tools at once.

    What `ask_model` raises propagates.
    """
    tools = await loop_tools(options.tools, call, partial(list_once, call, lane))
    run = LoopRun(call, lane, terms, options, tools)
    params = params.model_copy(update={"tools": tools.models or None})
    if not tools.models:
        params = params.model_copy(update={"tool_choice": None})
    loop = ToolLoop(params, run.ask, run.run_calls, options.max_iterations)
    try:
        answer = await loop.run()
    except LoopBroken:
        broken = run.broken
        assert broken is not None
        assert run.answer is not None
        return ToolLoopResult(
            broken.text,
            "break",
            broken.value,
            freeze_messages(loop.messages),
            loop.usage,
            loop.iterations,
            run.answer.stop_reason,
        )
    return ToolLoopResult(
        text_of(answer),
        "limit" if loop.is_used_up else "answer",
        None,
        freeze_messages(loop.messages),
        loop.usage,
        loop.iterations,
        answer.stop_reason,
    )


async def list_once(call: Call, lane: Lane, index: int, client: ToolClient) -> list[Tool]:
    """Return the tools of another server; in a replay, those that it had then, since a question must not change."""
    name = f"tools {index + 1}"
    recorded = recall(call, lane, name)
    if recorded is None:
        tools = await client.list_tools()
        record(call, lane, name, [tool.wire() for tool in tools])
        return tools
    await trio.lowlevel.checkpoint()
    return [Tool.model_validate(tool) for tool in cast("list[JsonValue]", recorded)]


def is_after(path: str, rounds: int, begun: int, step: str) -> bool:
    """Return whether a step belongs to a round of the loop in this lane, from the round `rounds` on, or to a call of one.

    Args:
        begun: how many calls the rounds before have had.
        step: its name in the journal.
    """
    if not step.startswith(path):
        return False
    if call := STEP_OF_CALL.match(step, len(path)):
        return int(call[1]) > begun
    round_ = STEP_OF_ROUND.match(step, len(path))
    return round_ is not None and int(round_[1]) >= rounds


def recall(call: Call, lane: Lane, name: str) -> JsonValue:
    """Return what an earlier run of the call has recorded in this lane; None if it has not, or there was none."""
    entry = None if call.memory is None else call.memory.find_step(f"{lane.path}:{name}")
    return None if entry is None else cast("JsonValue", entry.value)


def record(call: Call, lane: Lane, name: str, value: JsonValue) -> None:
    """Record something for a replay, if the call may be replayed."""
    if call.memory is not None:
        call.memory.record_step(f"{lane.path}:{name}", value)
