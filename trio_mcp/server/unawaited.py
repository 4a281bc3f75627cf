"""What the methods of a context return: coroutines whose value cannot be used by mistake before it is awaited.

A plain coroutine is true: `if ctx.elicit("Delete?"): delete()`, without `await`, would delete without asking. And a coroutine
that is dropped does nothing: after `ctx.elicit.strict("Delete?")`, the body would go on without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial, wraps
from types import CoroutineType, TracebackType
from typing import Protocol, TypeVar, cast

import trio

from .. import server
from ..base.checks import check_choice, check_seconds, check_str
from ..base.unawaited import Unawaited
from ..runtime import Lane
from ..runtime.threads import await_on_loop
from ..session import Call, Caller, RequestFacts
from ..types import LOGGING_LEVELS, JsonValue, LoggingLevel

# Each answer is in `Lane.unawaited` of its body or branch, by name, until it is awaited:
#
#   event                                  in the lane    then
#   the method is called                   yes
#   the method is called in a thread       no             nothing: it returns the value itself (`await_on_loop`)
#   `await`, or the first `send`           no
#   `close()`, by the author               no
#   its value is used                      no             `TypeError`, where it was used
#   the body or branch returns             yes            `check_awaited` raises `LocalProtocolError`
#   the body or branch raises              yes            nothing: its exception says what is wrong


T_co = TypeVar("T_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Coroutine[object, object, object]])


class UnawaitedAnswer(Unawaited[T_co]):
    """A coroutine of a body or branch, which fails if it drops it.

    Args:
        name: how the author has written the call, such as "ctx.elicit".
        lane: the body or branch that has to await it.

    """

    __slots__ = ("_lane",)

    def __init__(self, coroutine: Coroutine[object, object, T_co], name: str, lane: Lane) -> None:
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


class InLane(Protocol):
    """A context, as far as its answers are concerned."""

    @property
    def _lane(self) -> Lane: ...


def must_be_awaited(
    name: str, in_thread: Callable[..., Coroutine[object, object, object]] | None = None
) -> Callable[[F], F]:
    """Return a decorator of an async method; what the method returns is an `UnawaitedAnswer` with this name.

    In the thread of a plain function the method waits, and returns its value.

    Args:
        in_thread: what runs there in place of the method.
    """

    def decorate(method: F) -> F:
        @wraps(method)
        def call(ctx: InLane, *args: object, **options: object) -> object:
            if not trio.lowlevel.in_trio_task():
                return await_on_loop(partial(in_thread or awaited, ctx, *args, **options), name)
            try:
                coroutine = method(ctx, *args, **options)
            except TypeError:
                # Its body has not run: the arguments are wrong. Python names the class that has the method.
                raise server.other_names.wrong_arguments(name, method, args, options) from None
            return UnawaitedAnswer(coroutine, name, ctx._lane)  # noqa: SLF001  a method of this object

        awaited = cast("F", call)
        return awaited

    return decorate


def waits_in_threads(name: str) -> Callable[[F], F]:
    """Return a decorator of a method that checks its arguments and returns a coroutine.

    The caller gets an `UnawaitedAnswer` with this name; in the thread of a plain function, where it waits, the value.
    """

    def decorate(method: F) -> F:
        @wraps(method)
        def call(ctx: InLane, *args: object, **options: object) -> object:
            if trio.lowlevel.in_trio_task():
                return UnawaitedAnswer(method(ctx, *args, **options), name, ctx._lane)  # noqa: SLF001  as above
            return await_on_loop(partial(method, ctx, *args, **options), name)

        return cast("F", call)

    return decorate


# What a handler reports to its client while it runs: progress and log messages; and the facts of its request.


class Reporter:
    """The methods of `Context` that report to the client of a call."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    @must_be_awaited("ctx.progress")
    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send a progress notification, if the caller requested them.

        A value that is not finite, or not more than the last one of the call, is dropped: the log has a warning for the first
        such value, and the number of the others. Waits while the client is slow to read; a cancel while waiting leaves the
        notification unsent.
        """
        await self._call.progress(progress, total, message)

    @must_be_awaited("ctx.log")
    async def log(self, level: LoggingLevel, data: JsonValue, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of that level. Never put secrets in it (L-LOG-1s).

        Raises:
            ValueError: there is no such level, whether or not the client wants log messages.
        """
        check_choice("level", level, LOGGING_LEVELS)
        await self._call.log(level, data, logger)

    @must_be_awaited("ctx.debug")
    async def debug(self, data: JsonValue, logger: str | None = None) -> None:
        """Send a log message of the level "debug"; see `log`."""
        await self._call.log("debug", data, logger)

    @must_be_awaited("ctx.info")
    async def info(self, data: JsonValue, logger: str | None = None) -> None:
        """Send a log message of the level "info"; see `log`."""
        await self._call.log("info", data, logger)

    @must_be_awaited("ctx.warning")
    async def warning(self, data: JsonValue, logger: str | None = None) -> None:
        """Send a log message of the level "warning"; see `log`."""
        await self._call.log("warning", data, logger)

    @must_be_awaited("ctx.error")
    async def error(self, data: JsonValue, logger: str | None = None) -> None:
        """Send a log message of the level "error"; see `log`."""
        await self._call.log("error", data, logger)

    @must_be_awaited("ctx.status")
    async def status(self, message: str) -> None:
        """Set the status message of a task, in words for the user; it is shown until the next call of this method.

        A call that is not a task has no status, and ignores it. Never put secrets in it: all who may ask for the task read it.
        """
        check_str("message", message)
        self._call.set_status(message)
        await trio.lowlevel.checkpoint()

    @must_be_awaited("ctx.end_stream")
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

    @property
    def request(self) -> RequestFacts:
        """The current request: id, method, protocol version, client, capabilities, caller, headers, `_meta`.

        A modern call that asks takes several requests; this is the latest.
        """
        return self._call.facts

    @property
    def caller(self) -> Caller | None:
        """Who sent the current request: principal, scopes and claims. None if the server does not authenticate its callers."""
        return self._call.facts.caller
