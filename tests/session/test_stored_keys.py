"""Idempotency keys in a durable store: a repeat that comes to the next process runs nothing twice, and finishes what it can."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from crashing_store import Change, sealed
from keyed_shop import SHOP_KEYS, Process, Shop, process
from peer import EVERYTHING, Json
from talk import Legacy, Modern, Talk, accept
from task_talk import DECLARES, LegacyTask
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY_KEY, INVALID_PARAMS, OUTCOME_UNKNOWN, REPEAT_OF, SERVER_BUSY

from trio_mcp.protocol.jsonrpc import Encoded
from trio_mcp.session import KeyRing, MemoryBudget
from trio_mcp.session.keyed_calls import KeyTable
from trio_mcp.session.recovery.key_store import KEY_KIND, CallKey
from trio_mcp.session.recovery.stored_journal import LOG_KIND


async def test_nothing_is_answered_before_its_outcome_is_stored(shop: Shop, era: type[Legacy]) -> None:
    shop.hold.set()
    async with process(shop, era) as first:
        answered_at: list[int] = []
        first.store.on_write = lambda _changes: answered_at.append(first.player.talk.session.requests.count)
        assert await first.text_of("pay") == "paid 1"
    # The claim, and the outcome.
    assert answered_at == [1, 1]


async def test_a_call_that_died_with_its_process_is_not_run_again(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as first:
        await first.call("pay")
        await wait_all_tasks_blocked()
    for _ in range(2):
        async with process(shop, era) as second:
            assert await second.has_lost("pay", first.node)
    assert shop.done == ["pay"]


async def test_a_tool_that_may_be_replayed_goes_on_and_repeats_no_step(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as first:
        await first.call("order")
        await wait_all_tasks_blocked()
        assert shop.done == ["charge"]
    shop.hold.set()
    async with process(shop, era) as second:
        assert await second.text_of("order", first.node) == "ordered"
    async with process(shop, era) as third:
        assert await third.text_of("order", first.node) == "ordered"
    assert shop.done == ["charge", "ship"]


async def test_a_step_that_was_running_ends_the_call_with_its_name(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as first:
        # The result of the step is never stored.
        first.store.on_write = lambda _changes: first.store.crash() if shop.done else None
        await first.call("order")
        await wait_all_tasks_blocked()
    shop.hold.set()
    async with process(shop, era) as second:
        await second.call("order", first.node)
        assert "charge" in await second.player.failure()
    assert shop.done == ["charge"]


NEWER_ENTRY = b'["kind of a newer version","name","",null]'


@pytest.mark.parametrize("keys", [SHOP_KEYS, KeyRing.random()], ids=["of a newer version", "sealed with another key"])
async def test_a_call_whose_log_cannot_be_read_is_lost_and_the_server_goes_on(
    shop: Shop, era: type[Legacy], keys: KeyRing
) -> None:
    async with process(shop, era) as first:
        await first.call("order")
        await wait_all_tasks_blocked()
    ((place, log),) = ((place, log) for place, log in shop.disk.logs.items() if place[0] == LOG_KIND)
    log.append(sealed(NEWER_ENTRY, keys, *place, len(log) + 1))
    shop.hold.set()
    async with process(shop, era) as second:
        await second.call("order", first.node)
        assert "cannot be read" in await second.player.failure()
        assert await second.text_of("pay", key="another") == "paid 2"
    assert shop.done == ["charge", "pay"]


async def test_a_question_that_died_with_its_connection_is_asked_again(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as first:
        await first.call("asking_order")
        await first.player.question()
    async with process(shop, era) as second:
        await second.call("asking_order", first.node)
        await second.player.question()
        await second.player.answer(accept(value=True))
        assert await second.text() == "accept"
    assert shop.done == ["charge", "ship"]


async def test_a_request_that_never_arrived_runs(shop: Shop, era: type[Legacy]) -> None:
    shop.hold.set()
    async with process(shop, era) as first:
        pass
    async with process(shop, era) as second:
        assert await second.text_of("pay", first.node) == "paid 1"


async def test_a_request_that_another_store_may_know_is_not_run(shop: Shop, era: type[Legacy]) -> None:
    for _ in range(2):
        async with process(shop, era) as only:
            assert await only.has_lost("pay", "a process of another machine")
    assert shop.done == []


async def test_a_tool_that_does_no_harm_runs_again_and_writes_nothing(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as first:
        await first.call("set_price")
        await wait_all_tasks_blocked()
    shop.hold.set()
    async with process(shop, era) as second:
        assert await second.text_of("set_price", first.node) == "set"
    assert (shop.done, shop.disk.writes) == (["price", "price"], [])


async def test_a_call_that_runs_too_long_in_another_process_is_waited_for_in_the_next_request(
    shop: Shop, era: type[Legacy]
) -> None:
    async with process(shop, era) as first, process(shop, era) as second:
        await first.call("pay")
        await wait_all_tasks_blocked()
        began = trio.current_time()
        assert await second.code_of("pay", first.node) == SERVER_BUSY
        # Before a response over HTTP would have begun.
        assert 10 < trio.current_time() - began < 15
        await second.call("pay", first.node)
        shop.hold.set()
        assert [await first.text(), await second.text()] == ["paid 1"] * 2
    assert shop.done == ["pay"]


async def test_a_repeat_that_waits_goes_on_with_the_call_when_its_process_ends(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as second:
        async with process(shop, era) as first:
            await first.call("order")
            await wait_all_tasks_blocked()
            await second.call("order", first.node)
            await wait_all_tasks_blocked()
        shop.hold.set()
        assert await second.text() == "ordered"
    assert shop.done == ["charge", "ship"]


async def test_a_repeat_that_has_waited_until_the_key_is_forgotten_runs_nothing(
    shop: Shop, era: type[Legacy], mock_clock: MockClock
) -> None:
    """Its process stood still meanwhile."""
    async with process(shop, era) as first, process(shop, era) as second:
        await first.call("pay")
        await wait_all_tasks_blocked()
        await second.call("pay", first.node)
        await wait_all_tasks_blocked()
        shop.hold.set()
        assert await first.text() == "paid 1"
        (place,) = [place for place in shop.disk.records if place[0] == KEY_KIND]
        del shop.disk.records[place]
        mock_clock.jump(1000)
        assert (await second.player.error())["code"] == SERVER_BUSY
    assert shop.done == ["pay"]


async def test_no_repeat_is_waited_for_whose_client_has_gone(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as first, process(shop, era) as second:
        await first.call("pay")
        await wait_all_tasks_blocked()
        await second.call("pay", first.node)
        await wait_all_tasks_blocked()
        second.hang_up()
        await trio.sleep(1)
        assert not second.player.talk.service.idempotency_keys
        shop.hold.set()
        assert await first.text() == "paid 1"


async def test_a_call_that_a_shutdown_interrupts_and_that_must_not_run_again_has_an_unknown_outcome(
    shop: Shop, era: type[Legacy]
) -> None:
    """The error of the shutdown is not the outcome of its key."""
    async with process(shop, era) as first:
        await first.call("pay")
        await wait_all_tasks_blocked()
        await first.player.talk.service.drain(0)
        assert (await first.player.error())["data"] == {OUTCOME_UNKNOWN: True}
    async with process(shop, era) as second:
        assert await second.has_lost("pay", first.node)
    assert shop.done == ["pay"]


async def test_a_task_is_created_once(shop: Shop) -> None:
    made: list[str] = []
    first = None
    for _ in range(2):
        async with process(shop, Modern, takes_tasks=True) as each:
            await each.call("report", None if first is None else first.node)
            made.append((await each.player.talk.result(each.player._id))["taskId"])  # noqa: SLF001
            first = first or each
    assert made[0] == made[1]


async def test_a_task_of_a_session_is_not_given_to_another_session(shop: Shop) -> None:
    """It could not ask for it: what became of the call is unknown to it."""
    params = {"name": "report", "arguments": {}, "task": {}}
    async with process(shop, Legacy) as first:
        tasks = [LegacyTask(first.player.talk), LegacyTask(Talk(first.player.talk.service))]
        replies = []
        for task, repeat in zip(tasks, ({}, {REPEAT_OF: first.node}), strict=True):
            await task.open()
            replies.append(
                await task.reply(task.request("tools/call", **params, _meta={IDEMPOTENCY_KEY: "k", **repeat}))
            )
    async with process(shop, Legacy) as second:
        task = LegacyTask(second.player.talk)
        await task.open()
        meta = {IDEMPOTENCY_KEY: "k", REPEAT_OF: first.node}
        replies.append(await task.reply(task.request("tools/call", **params, _meta=meta)))
    assert "result" in replies[0]
    assert [reply["error"]["data"] for reply in replies[1:]] == [{OUTCOME_UNKNOWN: True}] * 2


async def test_another_request_under_a_key_is_an_error(shop: Shop, era: type[Legacy]) -> None:
    shop.hold.set()
    async with process(shop, era) as first:
        await first.call("pay")
        await first.text()
    async with process(shop, era) as second:
        assert await second.code_of("order") == INVALID_PARAMS
    assert shop.done == ["pay"]


async def test_a_store_that_fails_lets_nothing_run(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as only:
        await only.player.talk.initialize() if era is Legacy else None
        only.store.failing = True
        assert await only.code_of("pay") == SERVER_BUSY
    assert shop.done == []


async def test_a_store_that_fails_at_the_end_costs_the_repeat_its_outcome(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as first:
        await first.call("pay")
        await wait_all_tasks_blocked()
        first.store.failing = True
        shop.hold.set()
        assert await first.text() == "paid 1"
    async with process(shop, era) as second:
        assert await second.has_lost("pay", first.node)
    assert shop.done == ["pay"]


async def test_nothing_of_a_refused_call_is_stored(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as only:
        assert await only.code_of("pay", key="k" * 129) == INVALID_PARAMS
        await only.call("no such tool")
        await only.player.error()
    assert not any(kind == KEY_KIND for kind, _ in shop.disk.records)


# while a key, a task or an outcome is being stored


async def repeated(only: Process, name: str, era: type[Legacy], *, declares: Json = EVERYTHING, **meta: Any) -> Legacy:
    """Send a repeat of a request over a new connection."""
    other = era(Talk(only.player.talk.service), declares)
    if era is Legacy:
        hang, only.store.hang = only.store.hang, None
        await other.talk.initialize()
        other._opened = True  # noqa: SLF001
        only.store.hang = hang
    await other.call(name, meta={IDEMPOTENCY_KEY: "k", **meta})
    return other


async def held(only: Process, name: str) -> trio.Event:
    """Send a request whose key is being recorded until the event that is returned is set."""
    if isinstance(only.player, Legacy) and not isinstance(only.player, Modern):
        await only.player.talk.initialize()
        only.player._opened = True  # noqa: SLF001
    only.store.hang = go_on = trio.Event()
    await only.call(name)
    await wait_all_tasks_blocked()
    return go_on


async def test_a_repeat_waits_while_its_key_is_recorded_and_joins_the_call(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as only:
        go_on = await held(only, "pay_slowly")
        others = [await repeated(only, "pay_slowly", era, progressToken="new") for _ in range(2)]
        await wait_all_tasks_blocked()
        assert shop.done == []
        go_on.set()
        # As with a call that runs: what it reports goes to the last that has come.
        assert (await others[1].talk.notification("notifications/progress"))["progressToken"] == "new"
        shop.hold.set()
        for player in (only.player, *others):
            assert await player.text() == "paid 1"
            player.talk.outbox.close()
    assert shop.done == ["pay"]


async def test_the_call_runs_for_the_repeat_if_the_first_client_goes_while_its_key_is_recorded(
    shop: Shop, era: type[Legacy]
) -> None:
    shop.hold.set()
    async with process(shop, era) as only:
        go_on = await held(only, "asking_order")
        other = await repeated(only, "asking_order", era)
        only.hang_up()
        go_on.set()
        await other.question()
        await other.answer(accept(value=True))
        assert await other.text() == "accept"
        other.talk.outbox.close()
    assert shop.done == ["charge", "ship"]


async def test_a_repeat_that_goes_leaves_the_others_waiting(shop: Shop, era: type[Legacy]) -> None:
    shop.hold.set()
    async with process(shop, era) as only:
        go_on = await held(only, "pay")
        other = await repeated(only, "pay", era)
        for target in list(other.talk.session.requests):
            other.talk.session.disconnect(target)
        go_on.set()
        assert await only.text() == "paid 1"
        other.talk.outbox.close()


async def test_nothing_runs_if_all_go_while_the_key_is_recorded_and_a_repeat_runs_it(
    shop: Shop, era: type[Legacy]
) -> None:
    shop.hold.set()
    async with process(shop, era) as only:
        go_on = await held(only, "pay")
        only.hang_up()
        go_on.set()
        await wait_all_tasks_blocked()
        assert shop.done == []
        assert not only.player.talk.service.idempotency_keys
        assert await only.text_of("pay") == "paid 1"


async def test_all_that_wait_hear_that_the_key_cannot_be_recorded(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as only:
        await held(only, "pay")
        other = await repeated(only, "pay", era)
        errors = [await player.error() for player in (only.player, other)]
        assert [error["code"] for error in errors] == [SERVER_BUSY] * 2
        other.talk.outbox.close()
    assert shop.done == []


async def test_a_repeat_waits_while_the_outcome_is_being_stored(shop: Shop, era: type[Legacy]) -> None:
    async with process(shop, era) as only:
        await only.call("pay")
        await wait_all_tasks_blocked()
        only.store.hang = trio.Event()
        shop.hold.set()
        await wait_all_tasks_blocked()
        other = await repeated(only, "pay", era)
        await wait_all_tasks_blocked()
        assert other.talk.session.requests.count == 1
        only.store.hang.set()
        assert [await only.text(), await other.text()] == ["paid 1"] * 2
        other.talk.outbox.close()
    assert shop.done == ["pay"]


async def test_a_repeat_waits_while_its_task_is_created(shop: Shop) -> None:
    async with process(shop, Modern, takes_tasks=True) as only:
        go_on = hold_after_claim(only)
        await only.call("report")
        await wait_all_tasks_blocked()
        other = await repeated(only, "report", Modern, declares=DECLARES)
        # The task is created for the one that stays.
        only.hang_up()
        await wait_all_tasks_blocked()
        go_on.set()
        third = await repeated(only, "report", Modern, declares=DECLARES)
        made = [(await player.result())["taskId"] for player in (other, third)]
        assert made[0] == made[1]
        for player in (other, third):
            player.talk.outbox.close()
    assert shop.done == ["report"]


async def test_a_task_that_all_have_left_while_it_was_created_is_that_of_the_next_request(shop: Shop) -> None:
    async with process(shop, Modern, takes_tasks=True) as only:
        go_on = hold_after_claim(only)
        await only.call("report")
        await wait_all_tasks_blocked()
        only.hang_up()
        # The key is being left.
        await wait_all_tasks_blocked()
        other = await repeated(only, "report", Modern, declares=DECLARES)
        go_on.set()
        assert (await other.error())["code"] == SERVER_BUSY
        await only.call("report")
        assert "taskId" in await only.player.result()
        other.talk.outbox.close()
    assert shop.done == ["report"]


def hold_after_claim(only: Process) -> trio.Event:
    """Hold the store after the next write, until the event that is returned is set."""
    go_on = trio.Event()

    def on_write(_changes: Sequence[Change]) -> None:
        only.store.on_write = lambda _changes: None
        only.store.hang = go_on

    only.store.on_write = on_write
    return go_on


async def test_an_outcome_that_is_stored_when_another_process_has_taken_the_call_over_leaves_nothing_counted() -> None:
    budget, stored = MemoryBudget(), list[Any]()
    claim: Any = SimpleNamespace(end_soon=lambda outcome, then: stored.append(partial(then, outcome)))
    call: Any = SimpleNamespace(is_answering=False, actor=SimpleNamespace(cancel=lambda _reason: None))
    before = budget.statistics().drawn
    with closing(KeyTable(60, budget)) as keys:
        keyed = keys.begin(CallKey(b"digest", b"request", None))
        keyed.claim, keyed.call = claim, call
        assert keyed.end_leg(Encoded(b"{}"))
        keyed.runs_elsewhere()
        (write_has_ended,) = stored
        write_has_ended()
        assert (len(keys), budget.statistics().drawn) == (0, before)
