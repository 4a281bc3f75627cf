"""What a handler sees of its call: the way to ask, to report, to branch, and the facts of its request."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Self, TypeAlias, TypeVar, cast, overload

import trio

from ..errors import ElicitationInvalid
from ..runtime import Branch, Branches, CancelReason, Lane, run_branch
from ..session import Call, Question, RequestFacts
from ..types import (
    LOGGING_LEVELS,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    JsonObject,
    JsonValue,
    ListRootsResult,
    LoggingLevel,
    ModelPreferences,
    RequestParams,
    Root,
    SamplingMessage,
    TextContent,
)
from .forms import Elicit, Form, FormError, form
from .patience import patience
from .steps import step_result

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")

__all__ = ["Accepted", "BranchGroup", "Context", "Declined", "Dismissed", "Elicited", "Sampled"]


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T_co]):
    """The user answered; `content` is the validated value."""

    content: T_co
    action: Literal["accept"] = "accept"


@dataclass(frozen=True, slots=True)
class Declined:
    """The user said no."""

    action: Literal["decline"] = "decline"


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The user closed the question without choosing."""

    action: Literal["cancel"] = "cancel"


Elicited: TypeAlias = Accepted[T] | Declined | Dismissed


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the client's model answered: all blocks in `message`, its text in `text`."""

    message: CreateMessageResult

    @property
    def text(self) -> str:
        blocks = self.message.content if isinstance(self.message.content, list) else [self.message.content]
        return "".join(block.text for block in blocks if isinstance(block, TextContent))

    @property
    def model(self) -> str:
        return self.message.model

    @property
    def stop_reason(self) -> str | None:
        return self.message.stop_reason


class Context:
    """A tool declares a parameter of this type to be given one. It is good for the length of the call, in any of its tasks."""

    __slots__ = ("_call", "_keys", "_lane", "_request")

    def __init__(self, call: Call, lane: Lane, request: RequestFacts, keys: frozenset[str] = frozenset()) -> None:
        self._call = call
        self._lane = lane
        self._request = request
        self._keys = keys

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
            CapabilityError: the client cannot ask its user; nothing was sent.
            ElicitationInvalid: every answer broke the schema.
            FormError: the schema is not flat; the message names the member.
            LookupError: the tool did not declare this `Elicit`.
            RequestTimeout: there was no answer within `timeout`; the question was withdrawn.

        A cancel withdraws the question.
        """
        asked: Form[object] = form(self._declared(schema))
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

        Raises:
            RequestTimeout: there was no answer within `timeout` seconds; the question was withdrawn.
            CapabilityError: the client offers no model; nothing was sent.
            PeerError: the client refused or failed (handshake era; a modern client does not come back then).
            TypeError: neither or both of `prompt` and `messages` were given.

        A cancel withdraws the question.
        """
        if (prompt is None) == (messages is None):
            raise TypeError("sample() takes either a prompt or messages")
        conversation = (
            [SamplingMessage(role="user", content=TextContent(text=prompt))] if prompt is not None else messages
        )
        params = CreateMessageRequestParams(
            messages=list(conversation or ()),
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            stop_sequences=None if stop_sequences is None else list(stop_sequences),
            model_preferences=model_preferences,
            metadata=metadata,
        )
        question = Question("sample", "sampling/createMessage", params, CreateMessageResult, ("sampling",))
        return Sampled(await patience(timeout).ask(self._call, self._lane, question))

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
        if level not in LOGGING_LEVELS:
            raise ValueError(f"level: one of {', '.join(LOGGING_LEVELS)}, not {level!r}")
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
        if retry is not None and not 0 <= retry < math.inf:
            raise ValueError(f"retry must be a number of seconds from 0 on, not {retry}")
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

    async def branch(self, fn: Callable[[Context], Awaitable[T]]) -> T:
        """Run `fn(child)` as a branch and return its value; its exception comes out as it is."""
        return await run_branch(self._lane, lambda lane: fn(self._child(lane)))

    def branches(self) -> BranchGroup:
        """`async with ctx.branches() as group: handle = group.start(fn)`: branches that run side by side."""
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

    # knowing

    @property
    def request(self) -> RequestFacts:
        """The request that is being served: id, method, protocol version, client, capabilities, principal, headers, `_meta`.

        In a call that takes several requests it is the current one.
        """
        leg = self._call.leg
        return self._request if leg is None else leg.facts

    @property
    def deadline(self) -> float:
        """When the call must be over, on Trio's clock (seconds); infinity when it may take any time."""
        return min(self._call.actor.deadline, trio.current_effective_deadline())

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why the call was cancelled, for its clean-up to see; None while it was not."""
        return self._call.actor.reason

    def _declared(self, schema: object) -> object:
        """What to ask for; a question by key must be one that was published with the tool."""
        if not isinstance(schema, Elicit):
            if isinstance(schema, Mapping | str):
                raise FormError(f"elicit() takes a type, such as str or a pydantic model, not {schema!r}")
            return schema
        if schema.key not in self._keys:
            raise LookupError(
                f"the question {schema.key!r} was not declared: add it to the elicits of the tool, prompt or resource"
            )
        return schema.schema

    def _child(self, lane: Lane) -> Context:
        return Context(self._call, lane, self._request, self._keys)

    def __repr__(self) -> str:
        remaining = self._call.actor.deadline
        until = "" if remaining == math.inf else f" deadline={remaining:.1f}"
        return f"<Context of {self._call!r}{until}>"


class BranchGroup:
    """Branches that run side by side and are joined at the end of the block."""

    __slots__ = ("_branches", "_ctx")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._branches = Branches(ctx._lane)  # noqa: SLF001  one room

    async def __aenter__(self) -> Self:
        await self._branches.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> bool | None:
        return await self._branches.__aexit__(*exception)  # type: ignore[arg-type]  # noqa: ASYNC102

    def start(self, fn: Callable[[Context], Awaitable[T]]) -> Branch[T]:
        """Start `fn(child)` at once; `await handle.result()` inside the block, `handle.value` after it."""
        return self._branches.start(lambda lane: fn(self._ctx._child(lane)))  # noqa: SLF001


def form_question(message: str, asked: Form[object], name: str | None) -> Question[ElicitResult]:
    params = ElicitRequestFormParams(mode="form", message=message, requested_schema=asked.requested_schema)
    return Question("elicit", "elicitation/create", params, ElicitResult, ("elicitation.form",), name)
