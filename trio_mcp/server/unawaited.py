"""What the methods of a context return: coroutines whose value cannot be used by mistake before it is awaited.

A plain coroutine is true: `if ctx.elicit("Delete?"): delete()`, without `await`, would delete without asking. And a coroutine
that is dropped does nothing: after `ctx.elicit.strict("Delete?")`, the body would go on without an answer.
"""

# Each answer is in `Lane.unawaited` of its body or branch, by name, until it is awaited:
#
#   event                                  in the lane    then
#   the method is called                   yes
#   the method is called in a thread       no             `RuntimeError`, where it was called
#   `await`, or the first `send`           no
#   `close()`, by the author               no
#   its value is used                      no             `TypeError`, where it was used
#   the body or branch returns             yes            `check_awaited` raises `LocalProtocolError`
#   the body or branch raises              yes            nothing: its exception says what is wrong

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from types import CoroutineType, TracebackType
from typing import Protocol, TypeVar, cast

import trio

from .. import server
from ..runtime import Lane
from ..unawaited import Unawaited

T_co = TypeVar("T_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Coroutine[object, object, object]])


class UnawaitedAnswer(Unawaited[T_co]):
    """A coroutine of a body or branch, which fails if it drops it.

    Args:
        name: how the author has written the call, such as "ctx.elicit".
        lane: the body or branch that has to await it.

    Raises:
        RuntimeError: this is a thread, where nothing can await it.
    """

    __slots__ = ("_lane",)

    def __init__(self, coroutine: Coroutine[object, object, T_co], name: str, lane: Lane) -> None:
        if not trio.lowlevel.in_trio_task():
            coroutine.close()
            raise not_on_trio(name)
        self._coroutine: CoroutineType[object, object, T_co] = coroutine  # type: ignore[assignment]
        self._coroutine.__qualname__ = name
        self._lane: Lane | None = lane
        lane.unawaited = (*lane.unawaited, name)

    def _settle(self) -> None:
        """Note that it was awaited, or must not be any more."""
        lane, self._lane = self._lane, None
        if lane is not None:
            names = [*lane.unawaited]
            names.remove(self._coroutine.__qualname__)
            lane.unawaited = tuple(names)

    def __await__(self) -> Generator[object, None, T_co]:
        self._settle()
        # As the base does; every question comes through here and through `__init__`.
        return self._coroutine.__await__()

    def send(self, value: object) -> object:
        if self._lane is not None:
            self._settle()
        return self._coroutine.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> object:
        self._settle()
        return super().throw(kind, value, traceback)

    def close(self) -> None:
        self._settle()
        super().close()


def not_on_trio(name: str) -> RuntimeError:
    """Return the error of a method that was called in a thread, as by a plain function."""
    return RuntimeError(f"{name} runs on Trio: in a plain function write `trio.from_thread.run({name}, ...)`")


class InLane(Protocol):
    """A context, as far as its answers are concerned."""

    @property
    def _lane(self) -> Lane: ...


def must_be_awaited(name: str) -> Callable[[F], F]:
    """Return a decorator of an async method; what the method returns is an `UnawaitedAnswer` with this name."""

    def decorate(method: F) -> F:
        @wraps(method)
        def call(ctx: InLane, *args: object, **options: object) -> UnawaitedAnswer[object]:
            # Before the arguments are looked at: they may be as `from_thread.run` takes them.
            if not trio.lowlevel.in_trio_task():
                raise not_on_trio(name)
            try:
                coroutine = method(ctx, *args, **options)
            except TypeError:
                # Its body has not run: the arguments are wrong. Python names the class that has the method.
                raise server.other_names.wrong_arguments(name, method, args, options) from None
            return UnawaitedAnswer(coroutine, name, ctx._lane)  # noqa: SLF001  a method of this object

        return cast("F", call)

    return decorate
