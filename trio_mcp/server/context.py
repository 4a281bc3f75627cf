"""`Context`: what a handler sees of its call, to ask, to report, to branch, and to read the facts of its request."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Self, TypeAlias, Unpack, cast, overload

import trio
from typing_extensions import TypeVar

from ..checks import check_choice, check_seconds
from ..errors import BranchElicitNotAllowed, ElicitationInvalid
from ..runtime import Branch, Branches, CancelReason, Lane, race, run_branch
from ..session import Call, Question, RequestFacts
from ..types import (
    LOGGING_LEVELS,
    CreateMessageRequestParams,
    JsonObject,
    JsonValue,
    ListRootsResult,
    LoggingLevel,
    Model,
    ModelPreferences,
    RequestParams,
    Root,
    SamplingMessage,
)
from .ask_timeout import AskTimeout
from .asking import Accepted, Declined, Dismissed, Elicited, Sampled, charge, sampling_question, user_message
from .branching import BODY, NO_OPTIONS, BranchOptions, BranchTerms, Messages, check_branch_options, freeze_messages
from .forms import Elicit, form_question
from .options import check_branch
from .step_results import run_step

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R", bound=Model)
S = TypeVar("S")
StateT_co = TypeVar("StateT_co", default=object, covariant=True)


class Context(Generic[StateT_co]):
    """The running call: asks the user and the model, reports, and starts branches. A function gets it by declaring a parameter.

    It can be used until the call ends, in any task of the call. Each branch gets a separate context, with separate messages.
    `Context[Database]` says what type `state` has.
    """

    __slots__ = ("_call", "_lane", "_messages", "_terms")

    def __init__(self, call: Call, lane: Lane, terms: BranchTerms = BODY, messages: Messages = ()) -> None:
        self._call = call
        self._lane = lane
        self._terms = terms
        self._messages = messages

    # asking

    @overload
    async def elicit(  # type: ignore[overload-overlap]
        self, message: str, schema: type[T] | Elicit[T], *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[T]: ...
    @overload
    async def elicit(
        self, message: str, schema: object, *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[JsonValue]: ...
    async def elicit(
        self, message: str, schema: object, *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[object]:
        """Ask the user to fill in a form, and return the answer.

        Args:
            message: the text to show.
            schema: a pydantic model with flat fields, or a single type: `bool`, `str`, `int`, `float`, `Literal[...]`,
                an `Enum` of strings, `list[Literal[...]]`. Or an `Elicit` that the tool has declared.
            reask: how often to ask again, with the reason, after an answer that does not match the schema.
            timeout: seconds for all attempts together. By default, only the call's own timeout applies.

        Returns:
            `Accepted`, `Declined` or `Dismissed`; look at `.action`.

        Raises:
            BranchElicitNotAllowed: this is a branch that may not ask; nothing was sent.
            CapabilityError: the client cannot ask its user; nothing was sent.
            ElicitationInvalid: no answer matched the schema.
            FormError: the schema is not flat; the message names the member.
            LookupError: the tool did not declare this `Elicit`.
            PeerError: the client returned an error, which is no choice of its user; see `sample`.
            RequestTimeout: there was no answer within `timeout`; the question was withdrawn.

        A legacy client receives the questions of one call one at a time (see `ServiceOptions.parallel_prompts`). A cancel
        withdraws the question.
        """
        if not self._terms.allow_elicit:
            raise BranchElicitNotAllowed("this branch may not ask the user: it was started with allow_elicit=False")
        text, problem, limit = message, "", None if timeout == math.inf else AskTimeout(timeout)
        for _ in range(reask + 1):
            form, question = form_question(text, schema, self._terms.keys)
            result = await self._ask(question, limit)
            if result.action == "decline":
                return Declined()
            if result.action == "cancel":
                return Dismissed()
            try:
                return Accepted(form.read(cast("JsonObject", result.content or {})))
            except ValueError as error:
                problem = str(error)
                text = f"{message}\n\nThe last answer could not be used: {problem}"
        raise ElicitationInvalid(f"the answer to {message!r} was still invalid after {reask + 1} attempts: {problem}")

    async def sample(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[SamplingMessage] | None = None,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: ModelPreferences | None = None,
        metadata: JsonObject | None = None,
        timeout: float = math.inf,
    ) -> Sampled:
        """Ask the client's model, with either a prompt or complete messages, and return its answer.

        A prompt continues the conversation of this body or branch: the model gets `ctx.messages` and the prompt, and afterwards
        `ctx.messages` ends with the prompt and its answer. A failure or a cancel adds nothing. Given `messages` are sent as they
        are and not stored.

        Args:
            max_tokens: limit for the answer.
            system_prompt: defaults to that of the branch.
            timeout: seconds. By default, only the call's own timeout applies.

        Raises:
            BranchLimit: no tokens of this branch or of the call are left, or the answer exceeded them.
            RequestTimeout: there was no answer within `timeout`; the request was withdrawn.
            CapabilityError: the client offers no model; nothing was sent.
            PeerError: the client returned an error; uncaught, it is the error result of the tool. Only a legacy client can; a
                modern one does not retry the call.
            TypeError: neither or both of `prompt` and `messages` were given.

        A cancel withdraws the request.
        """
        if (prompt is None) == (messages is None):
            raise TypeError("sample() takes either a prompt or messages")
        asked = None if prompt is None else user_message(prompt)
        params = CreateMessageRequestParams(
            messages=list(messages or ()) if asked is None else [*self._messages, asked],
            max_tokens=max_tokens,
            system_prompt=self._terms.system_prompt if system_prompt is None else system_prompt,
            temperature=temperature,
            stop_sequences=None if stop_sequences is None else list(stop_sequences),
            model_preferences=model_preferences,
            metadata=metadata,
        )
        question = sampling_question(params)
        limit = None if timeout == math.inf else AskTimeout(timeout)
        if self._terms.budget is None:
            answer = await self._ask(question, limit)
        else:
            estimate = self._call.services.options.estimate_tokens
            answer = await charge(lambda: self._ask(question, limit), params, self._terms.budget, estimate)
        if asked is not None:
            # Both in one assignment, after the answer: no other task sees a prompt without its answer. Read again here, since
            # other tasks of this body may have sampled in the meantime.
            reply = SamplingMessage(role=answer.role, content=answer.content)
            self._messages = (*self._messages, asked, *freeze_messages([reply]))
        return Sampled(answer)

    async def roots(self, *, timeout: float = math.inf) -> list[Root]:
        """Return the folders that the client works in. They are hints, not permissions (L-ROOT-1c).

        Raises:
            CapabilityError: the client does not declare roots.
            PeerError: the client returned an error; see `sample`.
            RequestTimeout: there was no answer within `timeout` seconds; the question was withdrawn.
        """
        question = Question("roots", "roots/list", RequestParams(), ListRootsResult, ("roots",))
        return (await self._ask(question, None if timeout == math.inf else AskTimeout(timeout))).roots

    def _ask(self, question: Question[R], limit: AskTimeout | None) -> Awaitable[R]:
        # Not `async def`: each coroutine more is half a kilobyte of a call that waits, and thousands may wait.
        return self._call.ask(self._lane, question) if limit is None else limit.ask(self._call, self._lane, question)

    # reporting

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send a progress notification, if the caller requested them. Values must increase.

        Waits while the client is slow to read; a cancel while waiting leaves the notification unsent.
        """
        await self._call.progress(progress, total, message)

    async def log(self, level: LoggingLevel, data: JsonValue, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of that level. Never put secrets in it (L-LOG-1s).

        Raises:
            ValueError: there is no such level, whether or not the client wants log messages.
        """
        check_choice("level", level, LOGGING_LEVELS)
        await self._call.log(level, data, logger)

    async def end_stream(self, retry: float | None = None) -> None:
        """End the HTTP stream of this call, so that the client reconnects after `retry` seconds (L-HTTP-7s).

        It then receives what was sent in the meantime. Without `retry` the client decides when to reconnect. The call continues;
        it is cancelled if the client has not reconnected `retry` plus `HttpLimits.disconnect_grace` seconds later. This works
        only over Streamable HTTP with 2025-11-25; otherwise it does nothing. If it is cancelled, the stream may have ended.

        Raises:
            ValueError: `retry` is negative or not finite.
        """
        if retry is not None:
            check_seconds("retry", retry, finite=True)
        await self._call.end_stream(retry)

    # running

    async def step(self, name: str, fn: Callable[..., T | Awaitable[T]], *args: object) -> T:
        """Run `fn(*args)`, record its result, and return it; a replay of the call returns the recorded result instead.

        The result must be JSON, or `fn` must have a return annotation from which it can be restored. A tool that is never
        replayed (`resume="parked"`) may return anything.

        Args:
            name: identifies the step in its branch.

        Raises:
            ValueError: the name was used before.
            TypeError: the call may be replayed, and the result cannot be recorded.

        If `fn` is cancelled, nothing is recorded, and a replay runs it again.
        """
        return await run_step(self._call, self._lane, name, fn, args)

    async def branch(self, fn: BranchBody[StateT_co, T], **options: Unpack[BranchOptions]) -> T:
        """Run `fn(child)`, with a new context, as a branch and return its value; an exception propagates unchanged.

        The options are those of `trio_mcp.server.BranchOptions`: `messages`, `inherit_messages`, `system_prompt`,
        `inherit_system_prompt`, `max_depth`, `token_budget`, `timeout` (seconds) and `allow_elicit`.

        Raises:
            BranchLimit: the call has too many branches, or they nest too deep (`fn` has not run); or the branch timed out (all
                of it has ended); or its tokens were used up.
            TypeError, ValueError: an option is unknown or has a wrong value.
        """
        work, timeout, max_depth = self._prepare_branch(fn, options)
        return await run_branch(self._lane, work, timeout=timeout, max_depth=max_depth)

    def branches(self) -> BranchGroup[StateT_co]:
        """Return a group of concurrent branches: `async with ctx.branches() as group: handle = group.start(fn)`.

        The first failure cancels the others, and is raised in an `ExceptionGroup`. `start` takes the options of `branch`.
        """
        return BranchGroup(self)

    @overload
    async def branch_all(self, first: BranchBody[StateT_co, A], second: BranchBody[StateT_co, B], /) -> tuple[A, B]: ...
    @overload
    async def branch_all(
        self, first: BranchBody[StateT_co, A], second: BranchBody[StateT_co, B], third: BranchBody[StateT_co, C], /
    ) -> tuple[A, B, C]: ...
    @overload
    async def branch_all(self, *fns: BranchBody[StateT_co, T]) -> tuple[T, ...]: ...
    async def branch_all(self, *fns: BranchBody[StateT_co, object]) -> tuple[object, ...]:
        """Run each `fn(child)` as a branch, concurrently, and return their values in order.

        The first failure cancels the others and is raised in an `ExceptionGroup`.
        """
        async with self.branches() as group:
            handles = [group.start(fn) for fn in fns]
        return tuple(handle.value for handle in handles)

    @overload
    async def branch_race(self, first: BranchBody[StateT_co, A], second: BranchBody[StateT_co, B], /) -> A | B: ...
    @overload
    async def branch_race(
        self, first: BranchBody[StateT_co, A], second: BranchBody[StateT_co, B], third: BranchBody[StateT_co, C], /
    ) -> A | B | C: ...
    @overload
    async def branch_race(self, *fns: BranchBody[StateT_co, T]) -> T: ...
    async def branch_race(self, *fns: BranchBody[StateT_co, object]) -> object:
        """Run each `fn(child)` as a branch, concurrently, until the first of them ends, and return its value.

        The others are cancelled, and have ended when this returns. If the first one failed, its error is raised in an
        `ExceptionGroup`, as from `branch_all`.
        """
        if not fns:
            raise TypeError("branch_race() takes at least one function")
        prepared = [self._prepare_branch(fn, NO_OPTIONS) for fn in fns]
        return await race(self._lane, *(work for work, _, _ in prepared), max_depth=prepared[0][2])

    # facts

    @property
    def state(self) -> StateT_co:
        """What the server's lifespan yielded; None without one. All calls of the process share it."""
        return cast("StateT_co", self._call.services.state)

    @property
    def request(self) -> RequestFacts:
        """The current request: id, method, protocol version, client, capabilities, principal, headers, `_meta`.

        A modern call that asks takes several requests; this is the latest.
        """
        return self._call.facts

    @property
    def deadline(self) -> float:
        """When the call will be cancelled, on Trio's clock (seconds); infinity without a timeout."""
        return min(self._call.actor.deadline, trio.current_effective_deadline())

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why the call or this branch was cancelled; None if it was not. Clean-up code can read it.

        In a branch it is the reason of the call, SIBLING if another branch failed or won the race, or DEADLINE if the branch's
        own timeout expired. If there are several reasons, the first one is kept.
        """
        return self._lane.reason

    @property
    def messages(self) -> Messages:
        """The conversation of this body or branch with the client's model: prompts and answers, oldest first."""
        return freeze_messages(self._messages)

    @property
    def system_prompt(self) -> str | None:
        """The default system prompt of `sample`; set where a branch is started."""
        return self._terms.system_prompt

    @property
    def parent_messages(self) -> Messages:
        """The conversation of the parent when this branch was started; empty for the body of a call."""
        return freeze_messages(self._terms.parent_messages)

    @property
    def parent_system_prompt(self) -> str | None:
        """The system prompt of the parent; None for the body of a call."""
        return self._terms.parent_system_prompt

    @property
    def depth(self) -> int:
        """How deep this branch is: 0 for the body of a call, 1 for its branches, and so on."""
        return self._lane.depth

    def _prepare_branch(
        self, fn: BranchBody[StateT_co, T], options: BranchOptions
    ) -> tuple[Callable[[Lane], Awaitable[T]], float, int]:
        """Return what the lane of a branch runs, its timeout, and how deep it may be."""
        if options:
            check_branch_options(options)
        check_branch(fn)
        # Read now and not when the task of the branch first runs: the parent may sample in between.
        inherited = self._messages if options.get("inherit_messages", True) else ()
        messages = (*inherited, *freeze_messages(options.get("messages", ())))
        terms = self._terms.for_branch(options, self._messages)
        max_depth = min(terms.max_depth, self._call.services.options.max_depth)
        work = lambda lane: fn(Context(self._call, lane, terms, messages))  # noqa: E731
        return work, options.get("timeout", math.inf), max_depth

    def __repr__(self) -> str:
        until = "" if self._call.actor.deadline == math.inf else f" deadline={self._call.actor.deadline:.1f}"
        return f"<Context of {self._call!r}{until}>"


BranchBody: TypeAlias = Callable[[Context[S]], Awaitable[T]]
"""A function that runs as a branch. Below the class that it refers to, because an alias is evaluated at import."""


class BranchGroup(Generic[StateT_co]):
    """Branches that run concurrently and are joined at the end of the block."""

    __slots__ = ("_branches", "_ctx")

    def __init__(self, ctx: Context[StateT_co]) -> None:
        self._ctx = ctx
        self._branches = Branches(ctx._lane)  # noqa: SLF001  both classes are the handler's view of one lane

    async def __aenter__(self) -> Self:
        await self._branches.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> bool | None:
        return await self._branches.__aexit__(*exception)  # type: ignore[arg-type]  # noqa: ASYNC102

    def start(self, fn: BranchBody[StateT_co, T], **options: Unpack[BranchOptions]) -> Branch[T]:
        """Start `fn(child)`; use `await handle.result()` inside the block, `handle.value` after it.

        Raises:
            BranchLimit: the call has too many branches, or they nest too deep; `fn` has not run.
            RuntimeError: this is not inside the `async with` block.
            TypeError, ValueError: an option is unknown or has a wrong value.
        """
        work, timeout, max_depth = self._ctx._prepare_branch(fn, options)  # noqa: SLF001
        return self._branches.start(work, timeout=timeout, max_depth=max_depth)
