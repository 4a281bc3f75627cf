"""`Sampler`: the methods of `Context` that ask a model."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, Unpack, cast, overload

from ... import types
from ...base.checks import check_choice, check_int
from ...runtime import Lane
from ...runtime.loop_turn import is_large, let_others_run
from ...session import Call
from .. import sampling
from ..branching import BODY, BranchTerms, Messages, freeze_messages
from ..options import ask_timeout
from ..unawaited import Reporter, waits_in_threads
from ..values.schema_checks import DeferredCheck

if TYPE_CHECKING:
    from ...types import JsonObject, JsonValue

# How often a model is asked again after an answer that is not what was asked for.

RETRIES: Final = 2
"""How often a model is asked again, unless the author says otherwise."""

MAX_RETRIES: Final = 99
"""More are a mistake: each costs tokens, and a requirement that no answer meets must not be retried endlessly."""


T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class Sampler(Reporter):
    """The methods of `Context` that ask a model, and the conversation with it."""

    _call: Call
    _lane: Lane
    _terms: BranchTerms = BODY
    _messages: Messages = ()

    @overload
    async def sample(
        self,
        prompt: sampling.Prompt | None = None,
        *,
        tools: Sequence[sampling.OfferedTool] | None = None,
        tool_choice: sampling.ToolChoiceMode | None = None,
        returns: None = None,
        **options: Unpack[sampling.SampleOptions],
    ) -> sampling.Sampled: ...
    @overload
    async def sample(
        self,
        prompt: sampling.Prompt | None = None,
        *,
        returns: type[T],
        retries: int = RETRIES,
        **options: Unpack[sampling.SampleOptions],
    ) -> sampling.Sampled[T]: ...
    @overload
    async def sample(
        self,
        prompt: sampling.Prompt | None = None,
        *,
        returns: JsonObject,
        retries: int = RETRIES,
        **options: Unpack[sampling.SampleOptions],
    ) -> sampling.Sampled[JsonValue]: ...
    @overload
    async def sample(
        self,
        prompt: sampling.Prompt | None = None,
        *,
        returns: object,
        retries: int = RETRIES,
        **options: Unpack[sampling.SampleOptions],
    ) -> sampling.Sampled[object]: ...
    @waits_in_threads("ctx.sample")
    def sample(
        self,
        prompt: sampling.Prompt | None = None,
        *,
        tools: Sequence[sampling.OfferedTool] | None = None,
        tool_choice: sampling.ToolChoiceMode | None = None,
        returns: object = None,
        retries: int | None = None,
        **options: Unpack[sampling.SampleOptions],
    ) -> Coroutine[object, object, sampling.Sampled[object]]:
        """Ask the client's model, with either a prompt or complete messages, and return its answer.

        https://github.com/trio-mcp/trio-mcp/blob/main/docs/sampling.md has examples.

        A prompt continues the conversation of this body or branch: the model gets `ctx.messages` and the prompt, and afterwards
        `ctx.messages` ends with the prompt and its answer. A failure or a cancel adds nothing. Given `messages` are sent as they
        are and not stored. After `add_tool_results` neither is needed: the model continues from the results.

        Args:
            prompt: a text; a text, image or audio block; an `Image` or `Audio`; or a list of those.
            tools: what the model may call: functions, tools of a server, or `types.Tool`. The tools that it calls are in
                `.tool_calls` of the answer; they do not run by themselves.
            tool_choice: "auto", "required" or "none".
            returns: the type of a structured answer, or its JSON Schema. The value is in `.data` of the answer.
            retries: how often to ask again after an answer that does not match `returns`, with the reason (default 2).
            options: see `trio_mcp.server.SampleOptions`.

        Raises:
            BranchLimit: no tokens of this branch or of the call are left, or the answer exceeded them.
            RequestTimeout: there was no answer within `timeout`; the request was withdrawn.
            CapabilityError: the client offers no model, or none that takes tools or context; nothing was sent.
            LocalProtocolError: the messages break a rule of conversations, or tool calls wait for `add_tool_results`; nothing was
                sent.
            MalformedAnswer: the client sent something that is not an answer of a model.
            PeerError: the client returned an error; uncaught, it is the error result of the tool. Only a legacy client can; a
                modern one does not retry the call.
            SampleInvalid: no answer matched `returns`, in any attempt.
            TypeError, ValueError: an argument is wrong; raised by the call itself, before it is awaited.

        A cancel withdraws the request.
        """
        if returns is None:
            if retries is not None:
                raise TypeError("retries= goes with returns=: without it, every answer is valid")
            return self._sample(
                "sample",
                prompt,
                sampling.attempts.Unchecked(*sampling.request.check_tools(tools, tool_choice)),
                0,
                options,
            )
        if tools is not None or tool_choice is not None:
            raise TypeError("a sample takes either returns= or tools=: a structured answer is one tool call")
        required = sampling.attempts.DataRequired(sampling.structured.answer_form(returns))
        return self._sample("sample", prompt, required, RETRIES if retries is None else retries, options)

    @overload
    async def sample_schema(
        self,
        prompt: sampling.Prompt | None,
        returns: type[T],
        *,
        retries: int = RETRIES,
        **options: Unpack[sampling.SampleOptions],
    ) -> sampling.Sampled[T]: ...
    @overload
    async def sample_schema(
        self,
        prompt: sampling.Prompt | None,
        returns: JsonObject,
        *,
        retries: int = RETRIES,
        **options: Unpack[sampling.SampleOptions],
    ) -> sampling.Sampled[JsonValue]: ...
    @overload
    async def sample_schema(
        self,
        prompt: sampling.Prompt | None,
        returns: object,
        *,
        retries: int = RETRIES,
        **options: Unpack[sampling.SampleOptions],
    ) -> sampling.Sampled[object]: ...
    @waits_in_threads("ctx.sample_schema")
    def sample_schema(
        self,
        prompt: sampling.Prompt | None,
        returns: object,
        *,
        retries: int = RETRIES,
        **options: Unpack[sampling.SampleOptions],
    ) -> Coroutine[object, object, sampling.Sampled[object]]:
        """Ask for a structured answer: `sample(prompt, returns=returns)`, whose arguments and errors it has."""
        return self._sample(
            "sample_schema",
            prompt,
            sampling.attempts.DataRequired(sampling.structured.answer_form(returns)),
            retries,
            options,
        )

    @waits_in_threads("ctx.sample_tools")
    def sample_tools(
        self,
        prompt: sampling.Prompt | None,
        tools: Sequence[sampling.OfferedTool],
        *,
        tool_choice: sampling.ToolChoiceMode = "required",
        retries: int = RETRIES,
        **options: Unpack[sampling.SampleOptions],
    ) -> Coroutine[object, object, sampling.Sampled]:
        """Ask for calls of tools, and ask again, with the reason, if an answer has none or one of a tool that was not offered.

        Args:
            tool_choice: "required", or "auto" for a model that may also answer without a call.
            retries: how often to ask again.
            prompt, tools, options: as for `sample`.

        Raises:
            SampleInvalid: no answer was valid, in any attempt.
            Others: as `sample`.
        """
        check_choice("tool_choice", tool_choice, ("auto", "required"))
        return self._sample(
            "sample_tools",
            prompt,
            sampling.attempts.CallsRequired(*sampling.request.check_tools(tools, tool_choice)),
            retries,
            options,
        )

    def add_tool_results(self, results: Mapping[str, sampling.ToolOutput]) -> None:
        """Add the results of the tools that the model has called in this conversation. `sample` then continues it.

        Args:
            results: by the ids of `.tool_calls`, one for each: a text, a block, a list of those, JSON, a `CallToolResult`, a
                `ToolResultContent`, or the exception with which the tool failed, whose text the model reads.

        Raises:
            ValueError: a tool call has no result, or a result no tool call; the message names the ids.
            TypeError: a result cannot be sent.
        """
        self._messages = sampling.answers.answered(self._messages, results)

    def _sample(
        self,
        helper: sampling.attempts.Helper,
        prompt: sampling.Prompt | None,
        required: sampling.attempts.Requirement[T],
        retries: int,
        options: sampling.SampleOptions,
    ) -> Coroutine[object, object, sampling.Sampled[T]]:
        """Check the arguments, and return the coroutine that asks."""
        messages = options.get("messages")
        if prompt is not None and messages is not None:
            raise TypeError("a sample takes either a prompt or messages")
        check_int("retries", retries, most=MAX_RETRIES)
        sampling.request.check_sample_options(options, getattr(Sampler, helper))
        if (
            prompt is None
            and messages is None
            and not (self._messages and sampling.answers.has_results(self._messages[-1]))
        ):
            raise TypeError("a sample takes either a prompt or messages; only after add_tool_results it needs neither")
        if messages is not None:
            # The author may go on with the list before this is awaited.
            options = {**options, "messages": tuple(messages)}
        parts = None if prompt is None else sampling.prompts.prompt_parts(prompt)
        return self._ask(helper, parts, required, retries, options)

    async def _ask(
        self,
        helper: sampling.attempts.Helper,
        parts: list[sampling.PromptPart] | None,
        required: sampling.attempts.Requirement[T],
        retries: int,
        options: sampling.SampleOptions,
    ) -> sampling.Sampled[T]:
        """Ask until an answer is valid, add it to the conversation, and return it."""
        limit = ask_timeout(options.get("timeout", math.inf))
        asked = () if parts is None else (await sampling.prompts.prompt_message(parts),)
        given = options.get("messages")
        messages = (*self._messages, *asked) if given is None else tuple(given)
        sampling.answers.check_conversation(messages, is_history=given is None)
        await share_loop(messages)
        first = required.asked(
            sampling.request.request_params(options, messages, self._terms.system_prompt), self._call
        )
        params, attempts = first, list[sampling.answers.SampleAttempt]()
        while True:
            answer = await sampling.loop.ask_model(self._call, self._lane, self._terms.budget, params, limit)
            await share_loop(answer)
            sampling.answers.check_answer(answer)
            try:
                data = await read_answer(required, answer)
            except ValueError as error:
                attempts.append(sampling.attempts.refusal(answer, error))
            else:
                source = required.source(answer)
                if source is not None:
                    await share_loop(answer)  # the check has walked through the data
                sampled = sampling.answers.Sampled(answer, data, messages[-1], source)
                if given is None:
                    self._keep(asked, sampled)
                await share_loop(answer)
                return sampled
            if len(attempts) > retries:
                raise sampling.answers.SampleInvalid(
                    helper, attempts, sampling.answers.Sampled(answer, None, messages[-1])
                )
            params = sampling.attempts.with_reason(first, attempts[-1].reason)

    def _keep(self, asked: tuple[types.SamplingMessage, ...], sampled: sampling.Sampled[object]) -> None:
        """Add a prompt and its answer to the conversation."""
        # An API rejects a message without blocks.
        replies = [sampled.reply] if sampled.content else []
        # In one assignment, after the answer: no other task sees a prompt without its answer. Read only now, since other tasks
        # of this body may have sampled in the meantime.
        self._messages = (*self._messages, *freeze_messages([*asked, *replies]))


async def share_loop(value: object) -> None:
    """Let other tasks run before and after what walks through a large value: each walk takes tens of milliseconds."""
    if is_large(value):
        await let_others_run()


async def read_answer(required: sampling.attempts.Requirement[T], answer: types.CreateMessageResult) -> T:
    """Return the value of an answer; an expensive check runs in a thread. Raises `ValueError` for an invalid answer."""
    try:
        return required.read(answer)
    except DeferredCheck as check:
        # Its traceback holds this frame, which holds it.
        deferred = cast("DeferredCheck[T]", check.with_traceback(None))
    return await deferred.make()
