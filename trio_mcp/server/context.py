"""What a handler sees of its call: the way to ask, to report, to branch, and the facts of its request."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, Unpack, cast, overload

import trio

from ..checks import check_choice, check_seconds
from ..errors import BranchElicitNotAllowed, ElicitationInvalid
from ..runtime import CancelReason, Lane, race, run_branch
from ..session import CallPort, Question, RequestFacts
from ..types import (
    LOGGING_LEVELS,
    CreateMessageRequestParams,
    JsonObject,
    JsonValue,
    ListRootsResult,
    LoggingLevel,
    ModelPreferences,
    RequestParams,
    Root,
    SamplingMessage,
)
from .asking import Accepted, Declined, Dismissed, Elicited, Sampled, ask_model, form_question, spoken
from .branching import PLAIN, BranchGroup, BranchOptions, BranchSettings, Conversation, Terms, branch_settings, own
from .forms import Elicit, Form, declared, form
from .options import check_branch
from .patience import patience
from .steps import step_result

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


BODY = Terms()


class Context:
    """A tool declares a parameter of this type to be given one. It is good for the length of the call, in any of its tasks."""

    __slots__ = ("_call", "_lane", "_messages", "_terms")

    def __init__(self, call: CallPort, lane: Lane, terms: Terms = BODY, messages: Conversation = ()) -> None:
        self._call = call
        self._lane = lane
        self._terms = terms
        self._messages = messages

    # asking

    @overload
    async def elicit(  # type: ignore[overload-overlap]
        self, message: str, schema: type[T], *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[T]: ...
    @overload
    async def elicit(  # type: ignore[overload-overlap]
        self, message: str, schema: Elicit[T], *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[T]: ...
    @overload
    async def elicit(
        self, message: str, schema: object, *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[JsonValue]: ...
    async def elicit(
        self, message: str, schema: object, *, reask: int = 2, timeout: float = math.inf
    ) -> Elicited[object]:
        """Ask the user to fill in a form, and wait for the answer for as long as it takes, or for `timeout` seconds.

        Args:
            message: what to ask.
            schema: a pydantic model with flat fields, or a single type: `bool`, `str`, `int`, `float`, `Literal[...]`,
                an `Enum` of strings, `list[Literal[...]]`. Or an `Elicit` that the tool has declared.
            reask: how often an answer that breaks the schema is asked for again, with the reason.
            timeout: seconds for a valid answer, however often it is asked for.

        Returns:
            `Accepted`, `Declined` or `Dismissed`; look at `.action`.

        Raises:
            BranchElicitNotAllowed: this is a branch that may not ask; nothing was sent.
            CapabilityError: the client cannot ask its user; nothing was sent.
            ElicitationInvalid: every answer broke the schema.
            FormError: the schema is not flat; the message names the member.
            LookupError: the tool did not declare this `Elicit`.
            RequestTimeout: there was no answer within `timeout`; the question was withdrawn.

        A client of the handshake era is asked one thing at a time by each call (`ServiceOptions.parallel_prompts`). A cancel
        withdraws the question, or the place in line.
        """
        if not self._terms.allow_elicit:
            raise BranchElicitNotAllowed("this branch may not ask the user: it was started with allow_elicit=False")
        asked: Form[object] = form(declared(schema, self._terms.keys))
        name = schema.key if isinstance(schema, Elicit) else None
        question, problem, waits = message, "", patience(timeout)
        for _ in range(reask + 1):
            result = await waits.ask(self._call, self._lane, form_question(question, asked, name))
            if result.action == "decline":
                return Declined()
            if result.action == "cancel":
                return Dismissed()
            try:
                return Accepted(asked.read(cast("JsonObject", result.content or {})))
            except ValueError as error:
                problem = str(error)
                question = f"{message}\n\nThe last answer could not be used: {problem}"
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
        """Ask the client's model, with either a prompt or whole messages, for at most `max_tokens` tokens.

        A prompt goes on with the conversation of this body or branch: the model is sent `ctx.messages` and the prompt, and both
        the prompt and its answer are in `ctx.messages` afterwards. What fails or is cancelled leaves nothing there. Given
        `messages` are sent as they are, and nothing is kept of them. `system_prompt` is by default that of the branch.

        Raises:
            BranchLimit: the tokens of this branch, or of the call, are used up; with the first answer that is too much, too.
            RequestTimeout: there was no answer within `timeout` seconds; the question was withdrawn.
            CapabilityError: the client offers no model; nothing was sent.
            PeerError: the client refused or failed (handshake era; a modern client does not come back then).
            TypeError: neither or both of `prompt` and `messages` were given.

        A cancel withdraws the question.
        """
        if (prompt is None) == (messages is None):
            raise TypeError("sample() takes either a prompt or messages")
        asked = None if prompt is None else spoken(prompt)
        params = CreateMessageRequestParams(
            messages=list(messages or ()) if asked is None else [*self._messages, asked],
            max_tokens=max_tokens,
            system_prompt=self._terms.system_prompt if system_prompt is None else system_prompt,
            temperature=temperature,
            stop_sequences=None if stop_sequences is None else list(stop_sequences),
            model_preferences=model_preferences,
            metadata=metadata,
        )
        answer = await ask_model(patience(timeout), self._call, self._lane, params, self._terms.budget)
        if asked is not None:  # at once: nobody sees a prompt without its answer, and what was said meanwhile stays
            said = SamplingMessage(role=answer.role, content=answer.content)
            self._messages = (*self._messages, asked, *own([said]))
        return Sampled(answer)

    async def roots(self, *, timeout: float = math.inf) -> list[Root]:
        """The folders the client works in. They are hints, not permissions (L-ROOT-1c).

        Raises:
            CapabilityError: the client does not tell its roots.
            RequestTimeout: there was no answer within `timeout` seconds; the question was withdrawn.
        """
        question = Question("roots", "roots/list", RequestParams(), ListRootsResult, ("roots",))
        return (await patience(timeout).ask(self._call, self._lane, question)).roots

    # telling

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the call is; silent when the caller did not ask for it. Values must rise.

        Waits while the client is slow to read; a cancel while waiting leaves the report unsent.
        """
        await self._call.progress(progress, total, message)

    async def log(self, level: LoggingLevel, data: JsonValue, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of that level. Never put secrets in it (L-LOG-1s).

        Raises:
            ValueError: there is no such level, whether anybody listens or not.
        """
        check_choice("level", level, LOGGING_LEVELS)
        await self._call.log(level, data, logger)

    async def end_stream(self, retry: float | None = None) -> None:
        """Let the client hang up; it comes back after `retry` seconds for what was said meanwhile (L-HTTP-7s).

        That is possible over HTTP with 2025-11-25. Everywhere else there is nothing to hang up, and this does nothing. When it
        returns, the stream has ended; the call goes on, and is cancelled if the client stays away for longer than the server's
        `disconnect_grace` on top of `retry`. Without `retry` the client decides when to come back. A cancel while waiting may or
        may not have ended the stream.

        Raises:
            ValueError: `retry` is negative or not finite.
        """
        if retry is not None:
            check_seconds("retry", retry, finite=True)
        await self._call.end_stream(retry)

    # doing

    async def step(self, name: str, fn: Callable[..., T | Awaitable[T]], *args: object) -> T:
        """Run `fn(*args)` once in the life of this call, however often its body runs, and return its result.

        Its result must be JSON, or `fn` must say what it returns, so that a replay can restore it; a tool that is never
        replayed (`resume="parked"`) may return anything.

        Args:
            name: identifies the step in its branch.

        Raises:
            ValueError: the name was used before.
            TypeError: the call may be replayed, and the result cannot be kept.

        A cancel in the middle leaves the step not done.
        """
        key = self._lane.use_name(name)
        known = self._call.recall_step(key)
        if known is not None:
            await trio.lowlevel.checkpoint()
            return cast("T", step_result(fn).restore(known.value))
        try:
            value = fn(*args)
            result = cast("T", await value if isinstance(value, Awaitable) else value)
            if self._call.replayable:
                self._call.record_step(key, step_result(fn).keep(name, result))
        except BaseException:
            self._lane.free_name(name)
            raise
        return result

    async def branch(self, fn: Callable[[Context], Awaitable[T]], **options: Unpack[BranchOptions]) -> T:
        """Run `fn(child)` as a branch and return its value; its exception comes out as it is.

        `trio_mcp.server.BranchOptions` says what may be said of a branch: `messages`, `inherit_messages`, `system_prompt`,
        `inherit_system_prompt`, `max_depth`, `token_budget`, `timeout` (seconds) and `allow_elicit`.

        Raises:
            BranchLimit: the call has too many branches, or they nest too deep, and nothing of `fn` has run; or the time of the
                branch was up, and it has unwound; or its tokens were used up.
            TypeError, ValueError: an option cannot be said of a branch.
        """
        settings = branch_settings(options)
        work, max_depth = self._begun(fn, settings)
        return await run_branch(self._lane, work, timeout=settings.timeout, max_depth=max_depth)

    def branches(self) -> BranchGroup:
        """`async with ctx.branches() as group: handle = group.start(fn)`: branches that run side by side.

        The first failure cancels the others, and comes out in an `ExceptionGroup`. `start` takes the options of `branch`.
        """
        return BranchGroup(self)

    @overload
    async def branch_all(
        self, first: Callable[[Context], Awaitable[A]], second: Callable[[Context], Awaitable[B]], /
    ) -> tuple[A, B]: ...
    @overload
    async def branch_all(
        self,
        first: Callable[[Context], Awaitable[A]],
        second: Callable[[Context], Awaitable[B]],
        third: Callable[[Context], Awaitable[C]],
        /,
    ) -> tuple[A, B, C]: ...
    @overload
    async def branch_all(self, *fns: Callable[[Context], Awaitable[T]]) -> tuple[T, ...]: ...
    async def branch_all(self, *fns: Callable[[Context], Awaitable[object]]) -> tuple[object, ...]:
        """Run each `fn(child)` as a branch, side by side, and return their values in order.

        The first failure cancels the others and comes out in an `ExceptionGroup`.
        """
        async with self.branches() as group:
            handles = [group.start(fn) for fn in fns]
        return tuple(handle.value for handle in handles)

    @overload
    async def branch_race(
        self, first: Callable[[Context], Awaitable[A]], second: Callable[[Context], Awaitable[B]], /
    ) -> A | B: ...
    @overload
    async def branch_race(
        self,
        first: Callable[[Context], Awaitable[A]],
        second: Callable[[Context], Awaitable[B]],
        third: Callable[[Context], Awaitable[C]],
        /,
    ) -> A | B | C: ...
    @overload
    async def branch_race(self, *fns: Callable[[Context], Awaitable[T]]) -> T: ...
    async def branch_race(self, *fns: Callable[[Context], Awaitable[object]]) -> object:
        """Run each `fn(child)` as a branch, side by side, until the first of them ends, and return its value.

        The others are cancelled, and have unwound when this returns. If the first one failed, its error comes out in an
        `ExceptionGroup`, as from `branch_all`.
        """
        if not fns:
            raise TypeError("branch_race() takes at least one function")
        begun = [self._begun(fn, PLAIN) for fn in fns]
        return await race(self._lane, *(work for work, _ in begun), max_depth=begun[0][1])

    # knowing

    @property
    def request(self) -> RequestFacts:
        """The request that is being served: id, method, protocol version, client, capabilities, principal, headers, `_meta`.

        In a call that takes several requests it is the current one.
        """
        return self._call.facts

    @property
    def deadline(self) -> float:
        """When the call must be over, on Trio's clock (seconds); infinity when it may take any time."""
        return min(self._call.deadline, trio.current_effective_deadline())

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why this body or branch was cancelled, for its clean-up to see; None while it was not.

        The first reason stands: that of the call, or in a branch SIBLING when another one failed or won the race, and DEADLINE
        when its own time was up.
        """
        return self._lane.reason

    @property
    def messages(self) -> Conversation:
        """The conversation of this body or branch with the client's model so far: prompts and answers, oldest first."""
        return own(self._messages)

    @property
    def system_prompt(self) -> str | None:
        """What `sample` tells the model beforehand unless it is given something else; set where a branch is started."""
        return self._terms.system_prompt

    @property
    def parent_messages(self) -> Conversation:
        """The conversation of the parent when this branch was started; nothing for the body of a call."""
        return own(self._terms.parent_messages)

    @property
    def parent_system_prompt(self) -> str | None:
        """The system prompt of the parent; None for the body of a call."""
        return self._terms.parent_system_prompt

    @property
    def depth(self) -> int:
        """How deep this branch is: 0 for the body of a call, 1 for its branches, and so on."""
        return self._lane.depth

    def _begun(
        self, fn: Callable[[Context], Awaitable[T]], settings: BranchSettings
    ) -> tuple[Callable[[Lane], Awaitable[T]], int]:
        """A branch as it is now, when it is started: what its lane runs, and how deep that may be."""
        check_branch(fn)
        inherited = self._messages if settings.inherit_messages else ()
        messages = (*inherited, *own(settings.messages)) if settings.messages else inherited
        terms = self._terms.child(settings, self._messages)
        max_depth = min(terms.max_depth, self._call.options.max_depth)
        return lambda lane: fn(Context(self._call, lane, terms, messages)), max_depth

    def __repr__(self) -> str:
        remaining = self._call.deadline
        until = "" if remaining == math.inf else f" deadline={remaining:.1f}"
        return f"<Context of {self._call!r}{until}>"
