"""What a handler reports to its client while it runs: progress and log messages; and the facts of its request."""

from __future__ import annotations

import trio

from ..checks import check_choice, check_seconds, check_str
from ..session import Call, Caller, RequestFacts
from ..types import LOGGING_LEVELS, JsonValue, LoggingLevel
from .unawaited import must_be_awaited


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
        """Say how the work stands, in words for the user: what a task shows as its status message until the next call of this.

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
