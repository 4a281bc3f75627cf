"""Attempts in virtual time: which failures are repeated, how long is waited, and the one deadline over all attempts."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.providers.api import MAX_WAIT, RETRY_BACKOFF, Attempts

EVEN = replace(RETRY_BACKOFF, first=1, longest=3, jitter=0)


def failure(kind: ProviderErrorKind, retry_after: float | None = None) -> ProviderError:
    return ProviderError("no", kind=kind, retry_after=retry_after)


REPEATED = (ProviderErrorKind.RATE_LIMITED, ProviderErrorKind.UNAVAILABLE, ProviderErrorKind.UNREACHABLE)
BUSY = failure(ProviderErrorKind.UNAVAILABLE)


class Api:
    """Fails with these errors, then answers; keeps the times at which it was asked."""

    def __init__(self, *failures: ProviderError, seconds: float = 0) -> None:
        self._failures = list(failures)
        self._seconds = seconds
        self.times: list[float] = []

    async def ask(self) -> str:
        self.times.append(trio.current_time())
        await trio.sleep(self._seconds)
        if self._failures:
            raise self._failures.pop(0)
        return "answer"

    @property
    def waits(self) -> list[float]:
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


@pytest.mark.parametrize("kind", ProviderErrorKind)
async def test_only_a_failure_that_may_pass_is_repeated(kind: ProviderErrorKind, autojump_clock: MockClock) -> None:
    api = Api(failure(kind))
    if kind in REPEATED:
        assert await Attempts().run("api", api.ask) == "answer"
    else:
        with pytest.raises(ProviderError) as caught:
            await Attempts().run("api", api.ask)
        assert caught.value.kind is kind
    assert len(api.times) == (2 if kind in REPEATED else 1)


async def test_waits_grow_as_the_backoff_says(autojump_clock: MockClock) -> None:
    api = Api(*[BUSY] * 4)
    assert await Attempts(max_retries=4, backoff=EVEN).run("api", api.ask) == "answer"
    assert api.waits == pytest.approx([1, 2, 3, 3])


async def test_retry_after_is_waited_for_also_where_the_backoff_is_longer_or_shorter(autojump_clock: MockClock) -> None:
    asked = [failure(ProviderErrorKind.RATE_LIMITED, seconds) for seconds in (7.5, 0, MAX_WAIT)]
    api = Api(*asked, BUSY)
    await Attempts(max_retries=4, backoff=EVEN).run("api", api.ask)
    assert api.waits == pytest.approx([7.5, 0, MAX_WAIT, 3])


async def test_a_retry_after_that_is_too_long_ends_the_attempts(autojump_clock: MockClock) -> None:
    api = Api(failure(ProviderErrorKind.RATE_LIMITED, MAX_WAIT + 1))
    with pytest.raises(ProviderError) as caught:
        await Attempts(timeout=1000).run("api", api.ask)
    assert (caught.value.retry_after, len(api.times)) == (MAX_WAIT + 1, 1)


async def test_the_deadline_is_one_for_all_attempts_and_their_waits(autojump_clock: MockClock) -> None:
    api = Api(*[BUSY] * 9, seconds=4)
    start = trio.current_time()
    with pytest.raises(ProviderError) as caught:
        await Attempts(max_retries=9, timeout=10, backoff=EVEN).run("api", api.ask)
    # 4 seconds, 1 between, 4 more, and a wait of 2 would end after the deadline.
    assert (caught.value.kind, len(api.times)) == (ProviderErrorKind.UNAVAILABLE, 2)
    assert trio.current_time() - start == pytest.approx(9)


async def test_an_attempt_that_runs_at_the_deadline_is_cancelled(autojump_clock: MockClock) -> None:
    api = Api(BUSY, seconds=4)
    start = trio.current_time()
    with pytest.raises(ProviderError) as caught:
        await Attempts(timeout=7, backoff=EVEN).run("api", api.ask)
    assert (caught.value.kind, len(api.times)) == (ProviderErrorKind.TIMEOUT, 2)
    assert trio.current_time() - start == pytest.approx(7)


async def test_retries_end_with_the_last_failure(autojump_clock: MockClock) -> None:
    last = failure(ProviderErrorKind.UNREACHABLE)
    api = Api(BUSY, BUSY, last)
    with pytest.raises(ProviderError) as caught:
        await Attempts(max_retries=2).run("api", api.ask)
    assert caught.value is last


async def test_without_retries_there_is_one_attempt() -> None:
    api = Api(BUSY)
    with pytest.raises(ProviderError):
        await Attempts(max_retries=0).run("api", api.ask)
    assert len(api.times) == 1


async def test_what_must_not_be_repeated_is_not() -> None:
    api = Api(BUSY)
    with pytest.raises(ProviderError):
        await Attempts().run("api", api.ask, may_repeat=lambda: False)
    assert len(api.times) == 1


@pytest.mark.parametrize("at", [0.5, 1.5, 2.5], ids=["first attempt", "wait", "second attempt"])
async def test_a_cancel_of_the_caller_reaches_it_and_is_no_timeout(at: float, autojump_clock: MockClock) -> None:
    api = Api(BUSY, BUSY, seconds=1)
    with trio.move_on_after(at) as scope:
        await Attempts(timeout=50, backoff=EVEN).run("api", api.ask)
    assert scope.cancelled_caught
    assert len(api.times) == (2 if at > 2 else 1)


async def test_every_failure_is_logged_once(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderError):
        await Attempts(max_retries=2).run("api", Api(BUSY, BUSY, BUSY).ask)
    assert [(record.name, record.levelname) for record in caplog.records] == [("trio_mcp.providers", "WARNING")] * 3
