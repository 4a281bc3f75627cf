"""`Context`: what a handler sees of its call, to ask, to report, to branch, and to read the facts of its request."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Generic, Never, Self, TypeAlias, Unpack, cast, overload

import trio
from typing_extensions import TypeVar

from .. import server, types
from ..base.checks import check_no_options, missing
from ..runtime import Branch, Branches, CancelReason, Lane, race, run_branch
from ..session import Question
from ..types import RequestParams
from .branching import (
    NO_OPTIONS,
    BranchOptions,
    Messages,
    branch_traced,
    check_branch_options,
    freeze_messages,
)
from .options import ask_timeout, ask_within, check_branch
from .sampling import ToolLooper
from .unawaited import must_be_awaited, waits_in_threads

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
S = TypeVar("S")
StateT_co = TypeVar("StateT_co", default=object, covariant=True)


# How some methods work in the thread of a plain function.

NO_BRANCHES = "branches run on Trio, beside their body: make it an `async def`, or start threads and wait for them"


async def no_branches(*_args: object, **_options: object) -> Never:
    raise RuntimeError(NO_BRANCHES)


class Context(ToolLooper, Generic[StateT_co]):
    """The running call: asks the user and the model, reports, and starts branches. A function gets it by declaring a parameter.

    It can be used until the call ends, in any task of the call. Each branch gets a separate context, with separate messages.
    `Context[Database]` says what type `state` has. In the thread of a plain function its methods wait, without `await`, and
    return their values; see `SyncContext`.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise missing("Context", name, server.other_names.OF_CONTEXT)

    # asking

    @property
    def elicit(self) -> server.Elicitation:
        """Ask the user: `await ctx.elicit(message, schema)`, `ctx.elicit.strict(...)`, `ctx.elicit.with_retry(...)`.

        `trio_mcp.server.Elicitation` describes the schemas, the arguments and the errors of each.
        """
        return server.elicit.elicitation.Elicitation(self._call, self._lane, self._terms)

    @waits_in_threads("ctx.elicit_url")
    def elicit_url(
        self,
        message: str,
        url: server.elicit.url.Url,
        *,
        elicitation_id: str | None = None,
        done: server.elicit.url.Done | None = None,
        wait: bool = True,
        timeout: float = math.inf,
        **unknown: Never,
    ) -> Coroutine[object, object, server.UrlElicited]:
        """Ask the user to open a page, and wait until the user has finished there.

        https://github.com/trio-mcp/trio-mcp/blob/main/docs/forms.md#pages has examples.

        Args:
            url: the page, or a function that returns it for the id of the elicitation. It must not hold secrets (L-ELI-7s).
            elicitation_id: identifies this visit, for `Server.complete_elicitation`; by default a random one.
            done: returns whether the user has finished; asked once a second, in addition to `Server.complete_elicitation`.
            wait: False returns when the user agrees to open the page.
            timeout: seconds for all of it. By default, only the call's own timeout applies.

        Returns:
            `UrlAccepted`, `Declined` or `Dismissed`; look at `.action`.

        Raises:
            CapabilityError: the client cannot open pages; nothing was sent.
            RequestTimeout: the user did not answer, or did not finish, within `timeout`.
            ValueError: `url` is not an http or https URL, or `elicitation_id` is in use.
            BranchElicitNotAllowed, PeerError, TypeError: as from `elicit`.
        """
        if unknown:
            check_no_options(unknown, Context.elicit_url, "ctx.elicit_url()")
        page = server.elicit.url.Page(message, url, elicitation_id, done, wait)
        return server.elicit.url.elicit_url(self._call, self._lane, self._terms, page, timeout)

    @must_be_awaited("ctx.roots")
    async def roots(self, *, timeout: float = math.inf) -> list[types.Root]:
        """Return the folders that the client works in. They are hints, not permissions (L-ROOT-1c).

        Raises:
            CapabilityError: the client does not declare roots.
            PeerError: the client returned an error; see `sample`.
            RequestTimeout: there was no answer within `timeout` seconds; the question was withdrawn.
        """
        question = Question("roots", "roots/list", RequestParams(), types.ListRootsResult, ("roots",))
        return (await ask_within(self._call, self._lane, question, ask_timeout(timeout))).roots

    # running

    async def _step_in_thread(
        self, name: str, fn: Callable[..., T | Awaitable[T]], *args: object, idempotent: bool = False
    ) -> T:
        """Run a step for a plain function: the event loop must not wait for `fn`, if that is one too."""
        run_step = server.values.step_results.run_step
        return await run_step(self._call, self._lane, name, fn, args, idempotent=idempotent, in_thread=True)

    # Two signatures, since mypy finds no T for an async function in a union.
    @overload
    async def step(self, name: str, fn: Callable[..., Awaitable[T]], *args: object, idempotent: bool = False) -> T: ...

    @overload
    async def step(self, name: str, fn: Callable[..., T], *args: object, idempotent: bool = False) -> T: ...

    @must_be_awaited("ctx.step", in_thread=_step_in_thread)
    async def step(self, name: str, fn: Callable[..., T | Awaitable[T]], *args: object, idempotent: bool = False) -> T:
        """Run `fn(*args)`, record its result, and return it; a replay of the call returns the recorded result instead.

        The result must be JSON, or `fn` must have a return annotation from which it can be restored. A tool that is never
        replayed (`resume="parked"`) may return anything.

        Args:
            name: identifies the step in its branch.
            idempotent: running `fn` twice does no harm. With a durable store a replay runs such a step again if it was running
                when the process ended; another step ends the call with an error that names it.

        Raises:
            ValueError: the name was used before.
            TypeError: the call may be replayed, and the result cannot be recorded.

        If `fn` is cancelled, nothing is recorded, and a replay runs it again.
        """
        return await server.values.step_results.run_step(self._call, self._lane, name, fn, args, idempotent=idempotent)

    @must_be_awaited("ctx.become_task")
    async def become_task(self) -> None:
        """Continue this call as a task, in a tool with `task="later"`. What the tool asked before, it asked in the call itself.

        Where the caller takes no task, or the call is one already, this does nothing. Otherwise the caller gets the task, and the
        tool runs once more from its beginning, in the task. Up to here, questions and steps return at once what they returned
        before, and a question that timed out raises `RequestTimeout` again. If no request of the client is open, as may be after
        such a question, this waits for the next one, as a question does.

        Raises:
            RuntimeError: the tool has another `task=` than "later", or a branch or a step of it is running.
            LimitExceeded: the server, or this caller, has as many open tasks as may be.
            StoreError: the store does not keep the task.
        """
        await self._call.become_task(self._lane)

    @must_be_awaited("ctx.read_resource")
    async def read_resource(self, uri: str) -> types.ReadResourceResult:
        """Read a resource of this server, as a branch of this call, and return its contents.

        It may ask the user, as this body or branch may. An exception of the resource's function propagates unchanged.

        Raises:
            ResourceNotFound: there is no such resource.
            PeerError: the URI is not valid for the function; code -32602, as a client receives.
            BranchLimit: it timed out, or the call has too many branches or they nest too deep.
        """
        return await server.nested.read_resource(self._call, self._lane, self._terms, uri)

    @must_be_awaited("ctx.get_prompt")
    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> types.GetPromptResult:
        """Return a prompt of this server, rendered as a branch of this call; see `read_resource`.

        Raises:
            PeerError: there is no such prompt, or its arguments are wrong; code -32602, as a client receives.
        """
        return await server.nested.get_prompt(self._call, self._lane, self._terms, name, arguments)

    @must_be_awaited("ctx.branch", in_thread=no_branches)
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
        if not trio.lowlevel.in_trio_task():
            raise RuntimeError(NO_BRANCHES)
        return BranchGroup(self)

    @overload
    async def branch_all(self, first: BranchBody[StateT_co, A], second: BranchBody[StateT_co, B], /) -> tuple[A, B]: ...
    @overload
    async def branch_all(
        self, first: BranchBody[StateT_co, A], second: BranchBody[StateT_co, B], third: BranchBody[StateT_co, C], /
    ) -> tuple[A, B, C]: ...
    @overload
    async def branch_all(self, *fns: BranchBody[StateT_co, T]) -> tuple[T, ...]: ...
    @must_be_awaited("ctx.branch_all", in_thread=no_branches)
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
    @must_be_awaited("ctx.branch_race", in_thread=no_branches)
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
        return cast("StateT_co", self._call.offers.state)

    @property
    def deadline(self) -> float:
        """When the call will be cancelled, on Trio's clock (seconds); infinity without a timeout."""
        scoped = trio.current_effective_deadline() if trio.lowlevel.in_trio_task() else math.inf
        return min(self._call.actor.deadline, scoped)

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
        work: Callable[[Lane], Awaitable[T]] = lambda lane: fn(  # noqa: E731
            type(self)(self._call, lane.titled(fn), terms, messages)
        )
        if (telemetry := self._call.services.telemetry) is not None and not telemetry.is_idle:
            work = branch_traced(telemetry, fn, work)
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


# What a call holds for its author, in the memory budget of the service.


def keep_until_end(ctx: Context) -> Callable[[int], None]:
    """Return a function that draws bytes from the memory budget until the call ends; it raises `LimitExceeded` without room."""
    return ctx._call.actor.keep  # noqa: SLF001  a context has no such method: its author's values are not counted
