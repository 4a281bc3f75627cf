"""Attempts: which failures are worth another one, after how long, and one deadline over all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeVar

import trio

from ..backoff import Backoff
from ..errors import ProviderError, ProviderErrorKind
from ..logs import peer_logger

T = TypeVar("T")

_log = peer_logger("trio_mcp.providers")

TIMEOUT: Final = 300.0
MAX_RETRIES: Final = 2
RETRY_BACKOFF: Final = Backoff(first=0.5, longest=8.0)

MAX_WAIT: Final = 60.0
"""The longest `Retry-After` in seconds that is waited for; a longer one ends the attempts."""

PASSING: Final = (ProviderErrorKind.RATE_LIMITED, ProviderErrorKind.UNAVAILABLE, ProviderErrorKind.UNREACHABLE)
"""The kinds of failures after which another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often to ask, and for how long.

    Attributes:
        max_retries: attempts after the first.
        timeout: seconds for all attempts and the waits between them.
        backoff: the waits between attempts, where the API names none.
    """

    max_retries: int = MAX_RETRIES
    timeout: float = TIMEOUT
    backoff: Backoff = RETRY_BACKOFF

    async def run(self, name: str, ask: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool] = lambda: True) -> T:
        """Return what `ask` returns; a failure that may pass is repeated. Every failure is logged.

        Args:
            name: what is asked, for the log.
            ask: makes one attempt.
            may_repeat: whether another attempt may be made after one that failed.

        Raises:
            ProviderError: the last failure; or `TIMEOUT`, if the time ran out.
        """
        with trio.move_on_after(self.timeout) as scope:
            for failures in count(1):
                try:
                    return await ask()
                except ProviderError as error:
                    failure = error
                wait = self._wait(failure, failures) if may_repeat() else None
                try:
                    if wait is None or trio.current_time() + wait > scope.deadline:
                        _log.warning("%s: %s (%s)", name, failure, failure.kind)
                        raise failure
                    _log.warning("%s: %s (%s); trying again in %g seconds", name, failure, failure.kind, wait)
                finally:
                    # Its traceback refers to this frame.
                    del failure
                await trio.sleep(wait)
        text = f"{name} gave no answer within {self.timeout:g} seconds"
        _log.warning("%s", text)
        raise ProviderError(text, kind=ProviderErrorKind.TIMEOUT)

    def _wait(self, failure: ProviderError, failures: int) -> float | None:
        """Return the seconds until the next attempt, or None if there is none."""
        if failures > self.max_retries or failure.kind not in PASSING:
            return None
        asked = failure.retry_after
        if asked is None:
            return self.backoff.delay(failures - 1)
        return asked if asked <= MAX_WAIT else None
