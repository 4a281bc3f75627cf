"""A store that hangs costs a quarter of a second once, and one line in the log."""

from __future__ import annotations

import pytest
import trio
from log_limits import new_records
from stage import Talk
from talking import Session, WatchedStore, said

from trio_mcp.stores import StoreConflict, StoreError
from trio_mcp_transports.http.sessions.breaker import PATIENCE, PROBE_SECONDS, Breaker


class Home:
    """A store that works, hangs or fails."""

    def __init__(self) -> None:
        self.calls = 0
        self.answer: trio.Event | Exception | None = None

    async def write(self) -> None:
        self.calls += 1
        await trio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            await self.answer.wait()


@pytest.fixture
def home() -> Home:
    return Home()


@pytest.fixture
def breaker() -> Breaker:
    return Breaker("not kept", new_records("trio_mcp.http"))


async def test_a_store_that_hangs_is_asked_once(home: Home, breaker: Breaker, caplog: pytest.LogCaptureFixture) -> None:
    home.answer = trio.Event()
    began = trio.current_time()
    assert [await breaker.run(home.write) for _ in range(100)] == [False] * 100
    assert trio.current_time() - began == pytest.approx(PATIENCE)
    assert home.calls == 1
    assert len(caplog.records) == 1


async def test_a_probe_finds_out_that_it_answers_again(home: Home, breaker: Breaker) -> None:
    home.answer = trio.Event()
    await breaker.run(home.write)
    home.answer = None
    assert not await breaker.run(home.write)
    await trio.sleep(PROBE_SECONDS)
    assert await breaker.run(home.write)
    assert not breaker.is_open


async def test_a_probe_that_hangs_is_the_only_one(
    home: Home, breaker: Breaker, caplog: pytest.LogCaptureFixture
) -> None:
    home.answer = trio.Event()
    await breaker.run(home.write)
    await trio.sleep(PROBE_SECONDS)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(breaker.run, home.write)
    assert home.calls == 2
    assert breaker.is_open
    assert len(caplog.records) == 1


async def test_a_store_that_fails_is_asked_again_at_once(home: Home, breaker: Breaker) -> None:
    home.answer = StoreError("the disk is full")
    assert not await breaker.run(home.write)
    home.answer = None
    assert await breaker.run(home.write)


async def test_a_conflict_is_no_failure(home: Home, breaker: Breaker, caplog: pytest.LogCaptureFixture) -> None:
    home.answer = StoreConflict("it has changed")
    with pytest.raises(StoreConflict):
        await breaker.run(home.write)
    assert caplog.records == []


async def test_a_stream_goes_on_while_its_log_hangs(talk: Talk, session: Session, store: WatchedStore) -> None:
    reply = await session.call()
    store.hold()
    for number in range(20):
        await talk.say(number)
    await trio.sleep(2 * PATIENCE)
    assert said(reply) == list(range(20))
