"""A store whose writes are made late, in any order, or never: no call runs twice, and no key is blocked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias

import pytest
import trio
from crashing_store import Change
from keyed_shop import Process, Shop, process
from late_keys_program import Program
from late_store import NEVER, Lateness, LateStore
from talk import Legacy, Modern, play
from task_talk import DECLARES
from trio.testing import wait_all_tasks_blocked
from wire_terms import SERVER_BUSY

from trio_mcp.errors import LimitExceeded
from trio_mcp.session.recovery import settling
from trio_mcp.session.recovery.key_store import CallKey, Claim, KeyStore, StoredKey
from trio_mcp.stores import Put, Remove, StoreError, StoreFull

SETTLED = 60.0
"""Seconds after which everything is settled."""

LATE = (0.0, 3.0, 30.0, NEVER)
"""When a write is made after its timeout: at once; after the next one was written; after all others; not at all."""


def late(kind: str, number: int, seconds: float | None, times: int = 1) -> Lateness:
    """Return the delay of writes that put a record of this kind: `times` of them are late, from this number on."""
    count = 0

    def lateness(changes: Sequence[Change]) -> float | None:
        nonlocal count
        if not any(isinstance(change, Put) and change.record.kind == kind for change in changes):
            return None
        count += 1
        return seconds if number <= count < number + times else None

    return lateness


def late_removal(kind: str) -> Lateness:
    """Return the lateness of the writes that remove a record of this kind."""
    return lambda changes: 30.0 if any(isinstance(each, Remove) and each.kind == kind for each in changes) else None


def unsettled(only: Process) -> int:
    return len(only.player.talk.service.calls.settling)


@pytest.mark.parametrize("seconds", LATE)
@pytest.mark.parametrize("pause", [0.0, 2.0, SETTLED])
async def test_a_call_whose_key_could_not_be_recorded_runs_in_a_repeat(
    shop: Shop, era: type[Legacy], seconds: float, pause: float
) -> None:
    shop.hold.set()
    async with process(shop, era, late("key", 1, seconds)) as only:
        assert await only.code_of("pay") == SERVER_BUSY
        await trio.sleep(pause)
        assert await only.text_of("pay") == "paid 1"
        await trio.sleep(SETTLED)
        assert unsettled(only) == 0
    async with process(shop, era) as second:
        assert await second.text_of("pay", only.node) == "paid 1"


@pytest.mark.parametrize("seconds", LATE)
async def test_another_process_runs_it_when_it_is_known_that_it_never_ran(
    shop: Shop, era: type[Legacy], seconds: float
) -> None:
    shop.hold.set()
    async with process(shop, era, late("key", 1, seconds)) as first, process(shop, era) as second:
        await first.call("pay")
        await first.player.error()
        await trio.sleep(SETTLED)
        assert unsettled(first) == 0
        assert await second.text_of("pay", first.node) == "paid 1"
        assert await first.text_of("pay") == "paid 1"
    assert shop.done == ["pay"]


@pytest.mark.parametrize("seconds", LATE)
async def test_an_outcome_is_stored_as_soon_as_the_store_answers_again(
    shop: Shop, era: type[Legacy], seconds: float
) -> None:
    shop.hold.set()
    async with process(shop, era, late("key", 2, seconds, times=3)) as first:
        assert await first.text_of("pay") == "paid 1"
        # In memory, then in the store.
        for pause in (0, SETTLED, 2 * SETTLED):
            await trio.sleep(pause)
            assert await first.text_of("pay") == "paid 1"
        assert unsettled(first) == 0
    async with process(shop, era) as second:
        assert await second.text_of("pay", first.node) == "paid 1"
    assert shop.done == ["pay"]


async def test_a_key_whose_outcome_is_not_stored_is_never_blocked_and_never_runs_again(era: type[Legacy]) -> None:
    shop = Shop(grace=1)
    async with process(shop, era) as only:
        await only.call("pay")
        await wait_all_tasks_blocked()
        only.store.failing = True
        shop.hold.set()
        assert await only.text() == "paid 1"
        for _ in range(3):
            await trio.sleep(SETTLED)
            assert await only.text_of("pay") == "paid 1"
        only.store.failing = False
        await trio.sleep(SETTLED)
        assert unsettled(only) == 0
    assert shop.done == ["pay"]


async def test_an_outcome_that_memory_has_no_room_for_is_unknown(
    era: type[Legacy], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(grace=1)
    monkeypatch.setattr(settling.Settling, "has_room", lambda _self, size, _caller: not size)
    async with process(shop, era, late("key", 2, NEVER)) as only:
        shop.hold.set()
        assert await only.text_of("pay") == "paid 1"
        await trio.sleep(1.5)
        assert await only.has_lost("pay")
    assert shop.done == ["pay"]


@pytest.mark.parametrize("seconds", [None, *LATE])
async def test_a_call_that_is_left_goes_on_in_a_repeat_also_if_the_store_is_late(
    shop: Shop, era: type[Legacy], seconds: float | None
) -> None:
    async with process(shop, era, late("key", 2, seconds)) as only:
        await only.call("order")
        await wait_all_tasks_blocked()
        only.hang_up()
        await wait_all_tasks_blocked()
        shop.hold.set()
        assert await only.text_of("order", only.node) == "ordered"
        await trio.sleep(SETTLED)
        assert await only.text_of("order", only.node) == "ordered"
    assert shop.done == ["charge", "ship"]


async def test_another_process_waits_until_the_process_that_lives_has_stored_the_outcome(
    shop: Shop, era: type[Legacy]
) -> None:
    shop.hold.set()
    async with process(shop, era, late("key", 2, NEVER)) as first, process(shop, era) as second:
        assert await first.text_of("pay") == "paid 1"
        assert await second.text_of("pay", first.node) == "paid 1"
    assert shop.done == ["pay"]


async def test_a_key_that_cannot_be_settled_before_the_process_ends_is_that_of_a_lost_call(
    shop: Shop, era: type[Legacy]
) -> None:
    shop.hold.set()
    async with process(shop, era, late("key", 1, 0.0)) as first:
        await first.call("pay")
        await first.player.error()
        first.store.make_late()
    async with process(shop, era) as second:
        assert await second.has_lost("pay", first.node)
    assert shop.done == []


class Lingering(Shop):
    """Its payments take their time to be cancelled."""

    async def pay(self) -> str:
        self.done.append("pay")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(3)


async def test_a_repeat_is_refused_while_the_call_of_its_key_cleans_up(era: type[Legacy]) -> None:
    shop = Lingering()
    async with process(shop, era) as only:
        await only.call("pay")
        await wait_all_tasks_blocked()
        only.hang_up()
        await trio.sleep(1)
        assert await only.code_of("pay") == SERVER_BUSY
        await trio.sleep(3)
        assert await only.has_lost("pay")
    assert shop.done == ["pay"]


KEY = CallKey(b"digest", b"request", None)


async def test_a_key_that_is_claimed_again_is_left_no_more(shop: Shop) -> None:
    async with process(shop, Modern) as first:
        keys = stored_keys_of(first)
        claim = await keys.claim(KEY)
        assert isinstance(claim, Claim)
        claim.leave()
        # Before the task runs that writes it.
        again = await keys.claim(KEY)
        assert isinstance(again, Claim)
        assert again.is_adopted
        await trio.sleep(SETTLED)
        async with process(shop, Modern) as second:
            with pytest.raises(LimitExceeded):
                await stored_keys_of(second).claim(KEY)


def is_full(_changes: Sequence[Change]) -> None:
    raise StoreFull("there is no room")


async def test_a_key_that_was_given_up_is_not_blocked_by_a_repeat_that_a_full_store_refuses(shop: Shop) -> None:
    async with process(shop, Modern) as first:
        keys = stored_keys_of(first)
        claim = await keys.claim(KEY)
        assert isinstance(claim, Claim)
        first.store.on_write = is_full
        # No call is started: the server runs as many as it may.
        claim.give_up()
        await wait_all_tasks_blocked()
        with pytest.raises(StoreFull):
            await keys.claim(KEY)
        first.store.on_write = lambda _changes: None
        again = await keys.claim(KEY)
        assert isinstance(again, Claim)
        again.give_up()
        await trio.sleep(SETTLED)
        assert unsettled(first) == 0
        async with process(shop, Modern) as second:
            assert isinstance(await stored_keys_of(second).claim(KEY), Claim)


async def test_an_open_key_of_this_process_that_nothing_here_knows_is_never_run(shop: Shop) -> None:
    async with process(shop, Modern) as only:
        assert isinstance(await stored_keys_of(only).claim(KEY), Claim)
        known = await stored_keys_of(only).claim(KEY)
        assert isinstance(known, StoredKey)
        assert (known.is_over, known.outcome) == (True, None)


def stored_keys_of(process: Process) -> KeyStore:
    keys = process.player.talk.service.idempotency_keys.store
    assert keys is not None
    return keys


async def test_there_is_a_limit_of_unsettled_keys(
    shop: Shop, era: type[Legacy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "UNSETTLED", settling.UNSETTLED._replace(limit=2))
    shop.hold.set()
    async with process(shop, era) as only:
        await only.player.talk.initialize() if era is Legacy else None
        only.store.failing = True
        for number in range(4):
            await only.call("pay", key=f"{number}")
            error = await only.player.error()
            assert error["code"] == SERVER_BUSY
        assert "2 writes" in error["message"]
        assert unsettled(only) == 2
        memory = only.player.talk.service.options.memory
        held = memory.drawn
        only.store.failing = False
        await trio.sleep(SETTLED)
        assert unsettled(only) == 0
        assert memory.drawn < held
        assert await only.text_of("pay", key="4") == "paid 1"


Write: TypeAlias = Callable[[Sequence[Change]], Awaitable[None]]


async def write_small(write: Write, changes: Sequence[Change]) -> None:
    """Refuse large values, like many databases."""
    if any(isinstance(change, Put) and len(change.record.value) > 10_000 for change in changes):
        raise StoreError("the item is too large")
    await write(changes)


async def test_a_key_whose_outcome_the_store_never_takes_is_stored_without_it(shop: Shop, era: type[Legacy]) -> None:
    done: list[int] = []

    async def write_book() -> str:
        done.append(1)
        return "x" * 20_000

    @asynccontextmanager
    async def small_process() -> AsyncIterator[Process]:
        store = LateStore(shop.disk)
        store.write = partial(write_small, store.write)  # type: ignore[method-assign]
        server = shop.server(store)
        server.tool(write_book)
        async with play(server, era) as player:
            yield Process(player, store)
            store.crash()

    async with small_process() as first:
        await first.call("write_book")
        assert len(await first.text()) == 20_000
        await trio.sleep(SETTLED)
        assert unsettled(first) == 0
    async with small_process() as second:
        assert await second.has_lost("write_book", first.node)
    assert done == [1]


@pytest.mark.parametrize("seconds", LATE)
async def test_a_server_that_ends_while_a_key_is_claimed_leaves_it_to_the_next(
    shop: Shop, era: type[Legacy], seconds: float
) -> None:
    shop.hold.set()
    store = LateStore(shop.disk, late("key", 1, seconds))
    async with play(shop.server(store), era) as player:
        first = Process(player, store)
        await first.call("pay")
        await trio.sleep(0.5)
    await store.aclose()
    store.make_late()
    assert shop.done == []
    async with process(shop, era) as second:
        assert await second.text_of("pay", first.node) == "paid 1"


# tasks


@pytest.mark.parametrize("seconds", LATE)
@pytest.mark.parametrize("pause", [0.0, 2.0, SETTLED])
async def test_a_task_with_a_key_that_is_stored_late_is_taken_back_and_a_repeat_creates_one(
    shop: Shop, seconds: float, pause: float
) -> None:
    async with process(shop, Modern, late("task", 1, seconds), takes_tasks=True) as first:
        assert await first.code_of("report") == SERVER_BUSY
        await trio.sleep(pause)
        await first.call("report")
        created = await first.player.result()
        await trio.sleep(SETTLED)
        assert unsettled(first) == 0
        assert stored_tasks(shop) == 1
    async with process(shop, Modern, takes_tasks=True) as second:
        await second.call("report", first.node)
        assert (await second.player.result())["taskId"] == created["taskId"]


@pytest.mark.parametrize("seconds", LATE)
async def test_a_task_without_a_key_that_is_stored_late_never_runs(shop: Shop, seconds: float) -> None:
    async with process(shop, Modern, late("task", 1, seconds)) as first:
        request = first.player.talk.leg("report", capabilities=DECLARES)
        assert (await first.player.talk.error(request))["code"] == SERVER_BUSY
        await trio.sleep(SETTLED)
        assert unsettled(first) == 0
    async with process(shop, Modern):
        await trio.sleep(SETTLED)
    assert shop.done == []


async def test_a_task_that_the_next_process_goes_on_with_is_not_taken_back(shop: Shop) -> None:
    """Its process died while it took it back, and what it wrote then is made after the next one has read the task."""

    created, removed = late("task", 1, 0.0), late_removal("task")

    def lateness(changes: Sequence[Change]) -> float | None:
        seconds = removed(changes)
        return created(changes) if seconds is None else seconds

    async with process(shop, Modern, lateness, takes_tasks=True) as first:
        await first.call("report")
        await first.player.error()
        await trio.sleep(5)
        first.store.crash()
        async with process(shop, Modern, takes_tasks=True) as second:
            await wait_all_tasks_blocked()
            assert shop.done == ["report"]
            first.store.make_late()
            await second.call("report", first.node)
            await second.player.result()
            await wait_all_tasks_blocked()
            assert stored_tasks(shop) == 1
    assert shop.done == ["report"]


@pytest.mark.parametrize("seconds", LATE)
async def test_a_task_whose_taking_over_is_stored_late_goes_on_once(shop: Shop, seconds: float) -> None:
    async with process(shop, Modern, takes_tasks=True) as first:
        await first.call("report")
        await first.player.result()
    async with process(shop, Modern, late("task", 1, seconds)):
        await trio.sleep(SETTLED)
        assert shop.done == ["report"] * 2
    async with process(shop, Modern):
        await trio.sleep(SETTLED)
    assert shop.done == ["report"] * 3


def stored_tasks(shop: Shop) -> int:
    return sum(kind == "task" for kind, _ in shop.disk.records)


# any program


@pytest.mark.parametrize("tool", ["pay", "report"])
@pytest.mark.parametrize("seed", range(30))
async def test_in_any_program_nothing_runs_twice_and_no_key_is_blocked(seed: int, tool: str) -> None:
    await Program(seed, tool).run()
