"""Handoff tools: tools with three phases, of which only the second one asks the client.

before          prepares: looks up, reserves. Its value is recorded as JSON.
client          asks the user and the model. It may run again in a replay.
after           completes. Its value is the result of the tool.
on_cancel       runs instead of `after` if the call was cancelled, and undoes what `before` did.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast, get_type_hints

import trio
from pydantic import PydanticUserError

from ...base.checks import signature_of
from ...base.logs import peer_logger
from ...errors import LocalProtocolError
from ...runtime import Lane, check_awaited
from ..context import Context, StateT_co
from ..values.signature import is_context
from ..values.step_results import StepResult, return_hint

# `before` and `after` run once per call, because neither can be repeated by a replay: `before` is a step of the journal, and
# `after` runs in the last leg only, since it cannot ask. Each has a lane with a separate path, so that the branches and
# questions of `client` have the same keys in a replay, which skips `before`.
#
# A trace, for a modern call whose process is restarted while the user thinks:
#
#   first process     before()                    runs; its value is recorded under BEFORE
#                     client(value, ctx)          asks; the leg ends, and the state holds the value
#   second process    before()                    does not run: the value comes from the journal
#                     client(value, ctx)          the question has its answer
#                     after(value, answer, ctx)   runs; the call is over
#
# What leads to which end:
#
#   event                                      after     on_cancel
#   client returns                             runs      never
#   client raises                              never     never
#   cancel before `before` has returned        never     never
#   cancel during `client`                     never     runs, unless a replay may continue the call
#   cancel during `after`                      ends it   never


V = TypeVar("V")
C = TypeVar("C")
S = TypeVar("S")
T = TypeVar("T")
logger = peer_logger("trio_mcp.tool")

BEFORE = "before"
"""The name of the journal entry with the value of `before`. Those of steps contain a colon."""


def refuse_to_ask(*_: object) -> NoReturn:
    """Raise `TypeError` for a question of another phase than `client`."""
    raise TypeError(
        "only `client` may ask in a handoff tool: `before`, `after` and `on_cancel` run once, without a replay"
    )


def refuse_to_become_task(*_: object) -> NoReturn:
    """Raise `TypeError` where the tool would run once more from its beginning."""
    raise TypeError(
        "only `client` may become a task in a handoff tool: `before`, `after` and `on_cancel` run once, without a replay"
    )


class PhaseContext(Context[StateT_co]):
    """The context of `before`, `after` and `on_cancel`. It cannot ask, and `step` records nothing.

    A question would end the leg, and a replay would run the phase again from its top.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # they keep their types: all phases are annotated with the same class
        elicit = elicit_url = sample = roots = property(refuse_to_ask)
        become_task = property(refuse_to_become_task)

    async def step(
        self,
        name: str,  # noqa: ARG002
        fn: Callable[..., T | Awaitable[T]],
        *args: object,
        idempotent: bool = False,  # noqa: ARG002
    ) -> T:
        """Run `fn(*args)` and return its result. It is not recorded: no replay runs this phase again."""
        value = fn(*args)
        return cast("T", await value if isinstance(value, Awaitable) else value)


@dataclass(frozen=True, slots=True, eq=False)
class Handoff(Generic[V, C, S]):
    """The phases of a tool, and how they are run.

    Attributes:
        tool: the name of the tool, for logs.
        value: how the value of `before` is recorded.
    """

    tool: str
    value: StepResult
    client: Callable[[V, Context[S]], Awaitable[C]]
    on_cancel: Callable[[V, Context[S]], Awaitable[object]] | None

    async def run(
        self,
        ctx: Context[S],
        before: Callable[[Context[S]], Awaitable[V]],
        after: Callable[[V, C, Context[S]], Awaitable[object]],
    ) -> object:
        """Run the phases of one call, and return the value of `after`.

        Raises what a phase raises, and `LocalProtocolError` if the value of `before` cannot be recorded.
        """
        value = await self._value(ctx, before)
        try:
            answer = await self.client(value, ctx)
            # Also if `client` caught the cancel, or the cancel came too late for it.
            await trio.lowlevel.checkpoint_if_cancelled()
            # Before `after`, which must not complete a call whose user was not asked.
            check_awaited(ctx._lane)  # noqa: SLF001  the phases are a part of the handler
        except BaseException:
            # Not by the exception: a clean-up of `client` may have raised another one, or a group that holds the cancel.
            if self.on_cancel is not None and trio.current_effective_deadline() == -math.inf:
                await self._clean_up(self.on_cancel, value, ctx)  # noqa: ASYNC102  it opens a shielded scope
            raise
        phase, memory = phase_context(ctx, "after"), ctx._call.memory  # noqa: SLF001
        if memory is not None:
            # It has no result in the journal: the call ends with it.
            await memory.begin_step(phase_path(ctx, "after"))
        return await checked(phase, after(value, answer, phase))

    async def _value(self, ctx: Context[S], before: Callable[[Context[S]], Awaitable[V]]) -> V:
        memory = ctx._call.memory  # noqa: SLF001  the phases are a part of the handler
        # Middleware may run the tool several times in one call: each run has its value, which its `on_cancel` may undo.
        entry = phase_path(ctx, BEFORE)
        recorded = None if memory is None else memory.recall_step(entry)
        if recorded is not None:
            await trio.lowlevel.checkpoint()
            return cast("V", self.value.from_json(recorded.value))
        phase = phase_context(ctx, BEFORE)
        if memory is not None:
            await memory.begin_step(entry)
        value = await checked(phase, before(phase))
        try:
            data = self.value.to_json(BEFORE, value)
        except TypeError as error:
            raise LocalProtocolError(str(error)) from error
        if memory is not None:
            memory.record_step(entry, data)
            await memory.commit()
        # Restored also where nothing is replayed: what a replay would lose is missing in every call, and so in the first test.
        return cast("V", self.value.from_json(data))

    async def _clean_up(
        self, on_cancel: Callable[[V, Context[S]], Awaitable[object]], value: V, ctx: Context[S]
    ) -> None:
        call = ctx._call  # noqa: SLF001
        actor = call.actor
        if actor.reason is None:
            # Cancelled with the whole service, perhaps, which gives its reason in the same turn of the event loop.
            await trio.lowlevel.cancel_shielded_checkpoint()
        if call.continues_elsewhere:
            logger.info("on_cancel of the tool %s was not run: the call may continue in another process", self.tool)
            return
        # When it is over, the call is stuck.
        grace = max(0.0, min(call.services.options.cancel_grace, actor.overdue_at - trio.current_time()))
        with trio.move_on_after(grace, shield=True) as scope:
            try:
                phase = phase_context(ctx, "on_cancel")
                await checked(phase, on_cancel(value, phase))
            except Exception:
                # Logged and not raised: the call was cancelled, and its caller learns that.
                logger.exception("on_cancel of the tool %s failed", self.tool)
        if scope.cancelled_caught:
            logger.error(
                "on_cancel of the tool %s has not ended within %g seconds, and was cancelled", self.tool, grace
            )


def phase_path(ctx: Context[S], phase: str) -> str:
    """Return the name of a phase in the journal: that of a further run of the tool begins with the path of its lane."""
    path = ctx._lane.path  # noqa: SLF001
    return f"{path}/{phase}" if path else phase


def phase_context(ctx: Context[S], phase: str) -> PhaseContext[S]:
    """Return the context of a phase that may not ask."""
    call, terms = ctx._call, ctx._terms  # noqa: SLF001
    # The terms reach resources and prompts that the phase reads, whose contexts are their own.
    return PhaseContext(call, Lane(call.actor, f"/{phase_path(ctx, phase)}"), terms._replace(allow_elicit=False))


async def checked(phase: PhaseContext[S], running: Awaitable[T]) -> T:
    """Run a phase and return its value. Raises `LocalProtocolError` if it has returned and not awaited what it called."""
    value = await running
    check_awaited(phase._lane)  # noqa: SLF001  the phases are a part of the handler
    return value


def handoff_function(
    tool: str,
    before: Callable[..., Awaitable[V]],
    client: Callable[[V, Context[S]], Awaitable[C]],
    after: Callable[[V, C, Context[S]], Awaitable[object]],
    on_cancel: Callable[[V, Context[S]], Awaitable[object]] | None,
) -> Callable[..., Awaitable[object]]:
    """Return the three phases as one function: it has the parameters of `before` and the return annotation of `after`.

    Raises:
        TypeError: a phase is not an async function or has other parameters, or the value of `before` cannot be JSON.
    """
    check_phase(tool, "before", before)
    check_phase(tool, "client", client, "value", "ctx")
    check_phase(tool, "after", after, "value", "answer", "ctx")
    if on_cancel is not None:
        check_phase(tool, "on_cancel", on_cancel, "value", "ctx")
    handoff = Handoff(tool, recorded_value(tool, before), client, on_cancel)
    hints = get_type_hints(before, include_extras=True)
    parameters = dict(signature_of(before).parameters)
    declared = next((name for name in parameters if is_context(hints.get(name))), None)
    context = free_name(parameters) if declared is None else declared
    if declared is None:
        parameters[context] = inspect.Parameter(context, inspect.Parameter.KEYWORD_ONLY)

    async def run(**values: object) -> object:
        ctx = cast("Context[S]", values.pop(context))

        def start(phase: Context[S]) -> Awaitable[V]:
            return before(**values) if declared is None else before(**values, **{declared: phase})

        return await handoff.run(ctx, start, after)

    hints = {**hints, context: hints.get(context, Context)}
    return described(run, before, after, tuple(parameters.values()), hints)


def described(
    run: Callable[..., Awaitable[object]],
    before: Callable[..., object],
    after: Callable[..., object],
    parameters: tuple[inspect.Parameter, ...],
    hints: dict[str, object],
) -> Callable[..., Awaitable[object]]:
    """Return `run` with the name, docstring and parameters of `before` and the return annotation of `after`."""
    hints.pop("return", None)
    hints.update({"return": returns} if (returns := return_hint(after)) is not inspect.Signature.empty else {})
    facade = cast("Any", run)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(facade, name, getattr(before, name, getattr(facade, name)))
    facade.__annotations__ = hints
    facade.__signature__ = inspect.Signature(parameters)
    return run


def recorded_value(tool: str, before: Callable[..., object]) -> StepResult:
    """Return how the value of `before` is recorded: by its return annotation, or else it must be JSON.

    Raises:
        TypeError: JSON cannot represent the annotation.
    """
    returns = return_hint(before)
    # These say nothing about the value, and a model among its members would come back as a dict.
    undeclared = returns in (inspect.Signature.empty, Any, object, type(None))
    try:
        return StepResult(None if undeclared else returns)
    except PydanticUserError as error:
        raise TypeError(
            f"{tool}: before returns {inspect.formatannotation(returns)}, which JSON cannot represent and a replay could not "
            "restore; return a pydantic model, a dataclass or a plain type"
        ) from error


def check_phase(tool: str, phase: str, function: Callable[..., object], *arguments: str) -> None:
    """Raise `TypeError` unless a phase is an async function that takes these positional arguments, if there are any."""
    expected = f"`async def {phase}({', '.join(arguments or ('...',))})`"
    if not inspect.iscoroutinefunction(function):
        raise TypeError(f"{tool}: {phase} must be an async function, such as {expected}, not {function!r:.80}")
    if arguments and not takes(function, *arguments):
        name = getattr(function, "__qualname__", repr(function))
        raise TypeError(f"{tool}: {phase} is called like {expected}, and {name} takes other parameters")
    if (misplaced := misplaced_context(function, arguments)) is not None:
        raise TypeError(
            f"{tool}: {phase} is called like {expected}, and its parameter {misplaced!r} is annotated with Context, but gets "
            "another argument"
        )


def misplaced_context(function: Callable[..., object], arguments: tuple[str, ...]) -> str | None:
    """Return the name of the first parameter that is annotated with `Context` and gets another argument, or None."""
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError):
        # What an annotation means need not be known here.
        return None
    for argument, name in zip(arguments, signature_of(function).parameters, strict=False):
        if argument != "ctx" and is_context(hints.get(name)):
            return name
    return None


def takes(function: Callable[..., object], *arguments: str) -> bool:
    """Return whether a function can be called with `arguments` as its positional arguments."""
    try:
        signature_of(function).bind(*arguments)
    except (TypeError, ValueError):  # not callable with them, not callable at all, or without a signature
        return False
    return True


def free_name(taken: Collection[str]) -> str:
    """Return a name for the context that is not taken."""
    name = "ctx"
    while name in taken:
        name += "_"
    return name
