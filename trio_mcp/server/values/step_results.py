"""Steps: running one, recording its result as JSON, and restoring it when the call is replayed."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import TypeVar, cast, get_type_hints

import trio
from pydantic import JsonValue as CheckedJson, TypeAdapter, ValidationError

from ...base.checks import written_annotations
from ...protocol.strict_json import dumps
from ...runtime import Lane
from ...session import Call
from ...types import JsonValue
from .callables import is_async

T = TypeVar("T")


async def run_step(
    call: Call,
    lane: Lane,
    name: str,
    fn: Callable[..., T | Awaitable[T]],
    args: tuple[object, ...],
    *,
    idempotent: bool,
    in_thread: bool = False,
) -> T:
    """Run a step, or return its recorded result; see `Context.step`.

    Args:
        in_thread: run a plain `fn` in a thread.
    """
    key, memory = lane.use_name(name), call.memory
    recorded = None if memory is None else memory.recall_step(key)
    if recorded is not None:
        # The first run may have waited here. A replay must not starve other tasks by rushing through recorded steps.
        await trio.lowlevel.checkpoint()
        return cast("T", step_result(fn).from_json(recorded.value))
    try:
        if memory is not None:
            await memory.begin_step(key, may_run_twice=idempotent)
        if in_thread and not is_async(fn):
            # In a tuple, because Trio refuses a coroutine as the value of a thread.
            (value,) = await trio.to_thread.run_sync(lambda: (fn(*args),))
        else:
            value = fn(*args)
        result = cast("T", await value if isinstance(value, Awaitable) else value)
        if memory is not None:
            memory.record_step(key, step_result(fn).to_json(f"the step {name!r}", result))
    except BaseException:
        # A step that failed was not done: the body may catch the error and run a step of that name again.
        lane.free_name(name)
        if memory is not None:
            memory.fail_step(key, was_given_up=call.actor.scope.cancel_called)
        raise
    if memory is not None and memory.is_durable:
        await memory.commit()
    return result


class StepResult:
    """The JSON form of one function's results: by its return annotation, or else they must be JSON themselves."""

    __slots__ = ("_adapter", "_declared")

    def __init__(self, returns: object) -> None:
        self._declared = returns is not None
        kind = cast("type[object]", returns if self._declared else CheckedJson)
        self._adapter: TypeAdapter[object] = TypeAdapter(kind)

    def to_json(self, what: str, result: object) -> JsonValue:
        """Return the result as JSON; `what` names the function in the error.

        Raises:
            TypeError: `from_json` could not restore it.
        """
        try:
            # Strict without an annotation, so that nothing is converted: a replay must see the value that the first run saw.
            checked = self._adapter.validate_python(result, strict=None if self._declared else True)
            value: JsonValue = self._adapter.dump_python(checked, mode="json", by_alias=True)
            # Pydantic writes NaN, and strings with lone surrogates; both would fail later, when the state is sealed.
            dumps(value)
        except (ValidationError, ValueError, TypeError) as error:
            how = "it does not match the return annotation" if self._declared else "add a return annotation"
            kind = type(result).__name__
            raise TypeError(f"{what} returned a {kind} that cannot be recorded for a replay: {how}") from error
        return value

    def from_json(self, value: object) -> object:
        """Return the recorded result.

        Raises:
            ValueError: the return annotation has changed since.
        """
        return self._adapter.validate_python(value)


def return_hint(function: Callable[..., object]) -> object:
    """Return the return annotation of a function, or `inspect.Signature.empty`.

    Raises:
        NameError: it names something that the module of the function does not define.
    """
    while isinstance(function, partial):
        function = function.func
    # Only this one is evaluated: the others may be local to the function in which a tool is built.
    written = written_annotations(function)
    if "return" not in written:
        return inspect.Signature.empty
    alone = SimpleNamespace(__annotations__={"return": written["return"]})
    return get_type_hints(alone, getattr(inspect.unwrap(function), "__globals__", {}), include_extras=True)["return"]


@lru_cache(maxsize=1024)
def step_result(fn: Callable[..., object]) -> StepResult:
    """Return how the results of `fn` are recorded."""
    try:
        returns = get_type_hints(fn).get("return")
    except (NameError, TypeError):
        # An annotation that cannot be evaluated, or a callable without annotations, such as a partial.
        returns = None
    return StepResult(None if returns is type(None) else returns)
