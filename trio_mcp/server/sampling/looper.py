"""`ToolLooper`: the method of `Context` that lets a model call tools until it has an answer."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Final, Unpack, cast, get_args

from ... import types
from ...base.checks import check_choice, check_int
from ...runtime import Lane, run_child
from ...runtime.branch import with_timeout
from .. import sampling
from ..branching import freeze_messages
from ..unawaited import waits_in_threads
from .sampler import Sampler

MAX_ITERATIONS: Final = 10
"""Rounds of a loop. A modern client answers as many in one call by default, and the model is asked in one each."""


class ToolLooper(Sampler):
    """The method of `Context` that runs a tool loop."""

    __slots__ = ()

    @waits_in_threads("ctx.run_tool_loop")
    def run_tool_loop(
        self,
        prompt: sampling.Prompt | Sequence[types.SamplingMessage] | None,
        tools: Sequence[sampling.LoopTool],
        *,
        max_iterations: int = MAX_ITERATIONS,
        tool_choice: sampling.ToolChoiceMode | None = None,
        progress: bool = False,
        **options: Unpack[sampling.SampleOptions],
    ) -> Coroutine[object, object, sampling.ToolLoopResult]:
        """Ask the model, run the tools that it calls, and ask again with the results, until it calls none.

        The calls of an answer run concurrently, each as a branch of this call. A call that fails is an error result, which the
        model reads: a `ToolError` with its text, any other exception with a reference to the log. A tool ends the loop by
        `BreakToolLoop`. In the last round that `max_iterations` allows, the model gets no tools and has to answer.

        A prompt continues the conversation of this body or branch, as in `sample`: afterwards `ctx.messages` ends with all
        messages of the loop. A failure or a cancel adds nothing. Given messages are not stored. See
        https://github.com/trio-mcp/trio-mcp/blob/main/docs/tool-loops.md.

        Args:
            prompt: what `sample` takes; or a list of `SamplingMessage`, the complete conversation. None with `messages=`, and
                after `add_tool_results`.
            tools: functions, which get a `Context` if they have a parameter for one; tools of this server, by name or by value;
                a `Client` of another server, or `ClientTools` of one.
            max_iterations: how many times the model may be asked (default 10).
            tool_choice: "auto", "required" (for the first round) or "none".
            progress: report the rounds, such as "round 2 of at most 10", to a caller that asked for progress. For a body that
                reports no progress itself.
            options: see `trio_mcp.server.SampleOptions`; `timeout` is for the whole loop, and `max_tokens` for each answer.

        Raises:
            BranchLimit: the loop did not end within `timeout`, no tokens are left, or the branches nest too deep.
            LimitExceeded: an answer of the model has more than 100 calls; none of them ran.
            LookupError: `tools` has a name that no tool has.
            CapabilityError, LocalProtocolError, MalformedAnswer, PeerError, ProviderError: as from `sample`.
            TypeError, ValueError: an argument is wrong; raised by the call itself, or when the tools are read.

        A cancel withdraws the question, and cancels the calls that run.
        """
        if is_conversation(prompt):
            options, prompt = with_messages(options, cast("Sequence[types.SamplingMessage]", prompt)), None
        if prompt is not None and options.get("messages") is not None:
            raise TypeError("a tool loop takes either a prompt or messages")
        continues = bool(self._messages) and sampling.answers.has_results(self._messages[-1])
        if prompt is None and options.get("messages") is None and not continues:
            raise TypeError("a tool loop takes a prompt or messages; only after add_tool_results it needs neither")
        sampling.request.check_sample_options(options, ToolLooper.run_tool_loop)
        sampling.loop_tools.check_loop_tools(tools)
        check_int("max_iterations", max_iterations, least=1)
        if tool_choice is not None:
            check_choice("tool_choice", tool_choice, get_args(sampling.prompts.ToolChoiceMode))
        if (given := options.get("messages")) is not None:
            options = {**options, "messages": tuple(given)}
        parts = None if prompt is None else sampling.prompts.prompt_parts(cast("sampling.Prompt", prompt))
        choice = None if tool_choice is None else types.ToolChoice(mode=tool_choice)
        return self._run_loop(parts, sampling.loop.LoopOptions([*tools], max_iterations, progress), choice, options)

    async def _run_loop(
        self,
        parts: list[sampling.PromptPart] | None,
        loop: sampling.loop.LoopOptions,
        choice: types.ToolChoice | None,
        options: sampling.SampleOptions,
    ) -> sampling.ToolLoopResult:
        """Run the loop in a separate lane, and add its messages to the conversation."""
        asked = () if parts is None else (await sampling.prompts.prompt_message(parts),)
        given = options.get("messages")
        messages = (*self._messages, *asked) if given is None else tuple(given)
        sampling.answers.check_conversation(messages, is_history=given is None)
        params = sampling.request.request_params(options, messages, self._terms.system_prompt).model_copy(
            update={"tool_choice": choice}
        )
        work = with_timeout(
            partial(sampling.loop.run_loop, self._call, self._terms, loop, params), options.get("timeout", math.inf)
        )
        lane = self._lane
        child = Lane(lane.actor, lane.next_path(), lane, None, lane.depth).titled("tool loop")
        result = await run_child(lane, child, work)
        if given is None:
            # In one assignment, and read only now: other tasks of this body may have sampled in the meantime.
            added = result.messages[len(messages) :]
            self._messages = (*self._messages, *freeze_messages(asked), *added)
        return result


def is_conversation(prompt: object) -> bool:
    """Return whether this is a list of messages, and no prompt."""
    return (
        isinstance(prompt, list | tuple)
        and bool(prompt)
        and all(isinstance(each, types.SamplingMessage) for each in prompt)
    )


def with_messages(options: sampling.SampleOptions, messages: Sequence[types.SamplingMessage]) -> sampling.SampleOptions:
    """Return the options with a conversation that was given in place of the prompt."""
    if options.get("messages") is not None:
        raise TypeError("a tool loop takes its messages once")
    return {**options, "messages": messages}
