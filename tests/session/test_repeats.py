"""Idempotency keys: a repeat of a `tools/call` joins the call or gets its outcome, and runs nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from peer import EVERYTHING, Json
from talk import Legacy, Talk, accept, offering, play, talk_to
from task_talk import DECLARES
from trio.testing import wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY_KEY, INVALID_PARAMS, OUTCOME_UNKNOWN, REPEAT_OF, SERVER_BUSY

from trio_mcp import CancelReason
from trio_mcp.server import Context, Server
from trio_mcp.session import KeyRing, Limits, MemoryBudget, TaskOptions, keyed_calls
from trio_mcp.session.envelope import KEY_SIZE
from trio_mcp.session.recovery.key_store import KEY_LIFE
from trio_mcp.types import ToolAnnotations

KEY = {IDEMPOTENCY_KEY: "k1"}


class Runs:
    """Tools that count how often they ran, and one that waits until it is released."""

    def __init__(self, **annotations: bool) -> None:
        self.count = 0
        self.go_on = trio.Event()
        self.hints = ToolAnnotations(**annotations)

    def server(self, **options: Any) -> Server:
        server = offering(**options)
        server.tool(annotations=self.hints)(self.work)
        server.tool(annotations=self.hints)(self.wait)
        server.tool(self.ask)
        server.tool(self.wait_and_ask)
        return server

    async def work(self, step: int = 1) -> str:
        self.count += step
        return f"run {self.count}"

    async def wait(self, ctx: Context) -> str:
        self.count += 1
        await ctx.progress(1)
        await self.go_on.wait()
        await ctx.progress(2)
        return f"run {self.count}"

    async def wait_and_ask(self, ctx: Context) -> str:
        await self.go_on.wait()
        return await self.ask(ctx)

    async def ask(self, ctx: Context) -> str:
        self.count += 1
        answer = await ctx.elicit("Sure?", bool)
        return f"run {self.count}: {answer.action}"


def is_lost(error: Json) -> bool:
    return error.get("data") == {OUTCOME_UNKNOWN: True}


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
async def player(runs: Runs, era: type[Legacy]) -> AsyncIterator[Legacy]:
    async with play(runs.server(), era) as player:
        yield player


@contextmanager
def another(player: Legacy) -> Iterator[Legacy]:
    """Another connection of the same client."""
    other = type(player)(Talk(player.talk.service), EVERYTHING)
    with other.talk.outbox:
        yield other


async def test_a_repeat_gets_the_outcome_and_nothing_runs_again(player: Legacy) -> None:
    for key, text in (("k1", "run 1"), ("k1", "run 1"), ("k2", "run 2")):
        assert await player.text_of("work", meta={IDEMPOTENCY_KEY: key}) == text


async def test_a_repeat_over_another_connection_joins_the_call_that_runs_and_gets_its_progress(
    runs: Runs, player: Legacy
) -> None:
    await player.call("wait", meta={**KEY, "progressToken": "old"})
    assert (await player.talk.notification("notifications/progress"))["progressToken"] == "old"
    with another(player) as other:
        await other.call("wait", meta={**KEY, "progressToken": "new"})
        runs.go_on.set()
        assert (await other.talk.notification("notifications/progress"))["progressToken"] == "new"
        assert await other.text() == "run 1"
    assert await player.text() == "run 1"


async def test_the_first_connection_may_go_when_a_repeat_has_come(runs: Runs, player: Legacy) -> None:
    first = await player.call("wait", meta=KEY)
    with another(player) as other:
        await other.call("wait", meta=KEY)
        player.talk.session.disconnect(player.talk.listeners[first])
        await wait_all_tasks_blocked()
        runs.go_on.set()
        assert await other.text() == "run 1"


async def test_when_the_repeat_goes_its_call_serves_the_request_before_it_again(runs: Runs, player: Legacy) -> None:
    await player.call("wait", meta={**KEY, "progressToken": "old"})
    await player.talk.notification("notifications/progress")
    with another(player) as other:
        again = await other.call("wait", meta={**KEY, "progressToken": "new"})
        other.talk.session.disconnect(other.talk.listeners[again])
    runs.go_on.set()
    assert (await player.talk.notification("notifications/progress"))["progressToken"] == "old"
    assert await player.text() == "run 1"


@pytest.mark.parametrize("goes", [Talk.cancel, lambda talk, sent: talk.session.disconnect(talk.listeners[sent])])
async def test_a_call_that_was_cancelled_with_its_client_is_lost_and_never_runs_again(
    runs: Runs, player: Legacy, goes: Any
) -> None:
    first = await player.call("wait", meta=KEY)
    await wait_all_tasks_blocked()
    goes(player.talk, first)
    # Also while it is being cancelled.
    for _ in range(2):
        with another(player) as other:
            assert is_lost(await other.error_of("wait", meta=KEY))
        await wait_all_tasks_blocked()
    assert runs.count == 1


@pytest.mark.parametrize("hint", ["read_only_hint", "idempotent_hint"])
async def test_a_lost_call_runs_again_if_its_tool_says_that_this_does_no_harm(era: type[Legacy], hint: str) -> None:
    runs = Runs(**{hint: True})
    async with play(runs.server(), era) as player:
        first = await player.call("wait", meta=KEY)
        await wait_all_tasks_blocked()
        player.talk.session.disconnect(player.talk.listeners[first])
        with another(player) as other:
            # The repeat counts from now on, not the call that was lost.
            for _ in range(2):
                await other.call("wait", meta=KEY)
                await wait_all_tasks_blocked()
                runs.go_on.set()
                assert await other.text() == "run 2"


async def test_the_outcome_is_kept_for_the_grace_and_the_key_for_ten_minutes_more(era: type[Legacy]) -> None:
    runs = Runs()
    async with play(runs.server(outcome_grace=60.0), era) as player:
        assert await player.text_of("work", meta=KEY) == "run 1"
        await trio.sleep(59)
        assert await player.text_of("work", meta=KEY) == "run 1"
        for pause in (2, KEY_LIFE - 3):
            await trio.sleep(pause)
            assert is_lost(await player.error_of("work", meta=KEY))
        await trio.sleep(3)
        assert await player.text_of("work", meta=KEY) == "run 2"


async def test_a_key_is_for_one_request(runs: Runs, player: Legacy) -> None:
    await player.text_of("work", {"step": 1}, meta=KEY)
    for name, arguments in (("work", {"step": 2}), ("wait", {"step": 1}), ("work", {})):
        error = await player.error_of(name, arguments, meta=KEY)
        assert error["code"] == INVALID_PARAMS
        assert IDEMPOTENCY_KEY in error["message"]
    # Also when the outcome is gone.
    await trio.sleep(120)
    assert (await player.error_of("work", {"step": 2}, meta=KEY))["code"] == INVALID_PARAMS
    assert runs.count == 1


async def test_the_order_of_arguments_does_not_count(talk_of_sum: Talk) -> None:
    first = talk_of_sum.leg("add", {"a": 1, "b": 2}, meta=KEY)
    assert await talk_of_sum.text(first) == "3"
    assert await talk_of_sum.text(talk_of_sum.leg("add", {"b": 2, "a": 1}, meta=KEY)) == "3"


@pytest.fixture
async def talk_of_sum() -> Any:
    async def add(a: int, b: int) -> int:
        return a + b

    async with talk_to(offering(add)) as talk:
        yield talk


@pytest.mark.parametrize("key", ["", "x" * 129, 7, None, ["k"], {"k": 1}, True], ids=repr)
async def test_a_key_is_a_string_of_at_most_128_characters(runs: Runs, player: Legacy, key: Any) -> None:
    error = await player.error_of("work", meta={IDEMPOTENCY_KEY: key})
    assert error["code"] == INVALID_PARAMS
    assert IDEMPOTENCY_KEY in error["message"]
    assert runs.count == 0


async def test_the_name_of_the_member_in_another_value_is_no_key(player: Legacy) -> None:
    for run in (1, 2):
        assert await player.text_of("work", meta={"com.example/note": IDEMPOTENCY_KEY}) == f"run {run}"


async def test_a_key_belongs_to_the_principal() -> None:
    runs = Runs()
    async with talk_to(runs.server(), principal="ann") as talk:
        assert await talk.text(talk.leg("work", meta=KEY)) == "run 1"
        for principal, text in (("bob", "run 2"), (None, "run 3"), ("ann", "run 1")):
            other = Talk(talk.service, principal=principal)
            with other.outbox:
                assert await other.text(other.leg("work", meta=KEY)) == text


async def test_no_key_of_one_principal_is_one_of_another_whatever_their_names_are() -> None:
    runs = Runs()
    async with talk_to(runs.server(), principal="ann\0b") as talk:
        assert await talk.text(talk.leg("work", meta={IDEMPOTENCY_KEY: "k"})) == "run 1"
        other = Talk(talk.service, principal="ann")
        with other.outbox:
            assert await other.text(other.leg("work", meta={IDEMPOTENCY_KEY: "b\0k"})) == "run 2"


async def test_the_two_eras_do_not_share_an_outcome() -> None:
    runs = Runs()
    async with talk_to(runs.server()) as talk:
        await talk.initialize()
        assert await talk.text(talk.leg("work", meta=KEY)) == "run 1"
        assert (await talk.error(talk.call("work", meta=KEY)))["code"] == INVALID_PARAMS


async def test_a_refused_call_leaves_its_key_free(era: type[Legacy]) -> None:
    runs = Runs()
    async with play(runs.server(actors=Limits(actors=1)), era) as player:
        busy = await player.call("wait")
        assert (await player.error_of("work", meta=KEY))["code"] == SERVER_BUSY
        player.talk.cancel(busy)
        await wait_all_tasks_blocked()
        assert await player.text_of("work", meta=KEY) == "run 2"


async def test_the_error_of_a_call_is_its_outcome_too(era: type[Legacy]) -> None:
    count = 0

    async def fail() -> None:
        nonlocal count
        count += 1
        raise ValueError("no")

    async with play(offering(fail), era) as player:
        texts = []
        for _ in range(2):
            await player.call("fail", meta=KEY)
            texts.append(await player.failure())
        assert texts[0] == texts[1]
        assert count == 1


# rounds


async def test_a_repeat_of_a_first_leg_that_has_asked_gets_the_round_and_its_state_leads_on() -> None:
    runs = Runs()
    async with talk_to(runs.server()) as talk:
        await talk.round(talk.leg("ask", meta=KEY))
        again = await talk.round(talk.leg("ask", meta=KEY))
        assert await talk.text(again.retry(True, meta=KEY)) == "run 1: accept"
        # Also when the call is over; the answers that the later legs bring are those of a leg that has ended.
        over = await talk.round(talk.leg("ask", meta=KEY))
        assert over.state == again.state
        assert await talk.text(over.retry(False)) == "run 1: accept"


# legacy: the questions move to the connection of the repeat


async def test_an_open_question_is_asked_again_on_the_connection_of_the_repeat() -> None:
    async with play(Runs().server(), Legacy) as player:
        first = await player.call("ask", meta=KEY)
        await player.question()
        with another(player) as other:
            await other.call("ask", meta=KEY)
            await other.question()
            player.talk.session.disconnect(player.talk.listeners[first])
            await other.answer(accept(value=True))
            assert await other.text() == "run 1: accept"
            await other.talk.silence()


@pytest.mark.parametrize("closes", [True, False], ids=["its connection closes", "its response is lost"])
@pytest.mark.parametrize("tool", ["ask", "wait_and_ask"])
async def test_when_the_repeat_goes_the_connection_before_it_is_asked_what_is_open_and_what_comes(
    tool: str, closes: bool
) -> None:
    runs = Runs()
    async with play(runs.server(), Legacy) as player:
        await player.call(tool, meta=KEY)
        if tool == "ask":
            await player.question()
        with another(player) as other:
            again = await other.call(tool, meta=KEY)
            if tool == "ask":
                await other.question()
            if closes:
                other.talk.session.close(CancelReason.DISCONNECT)
            else:
                other.talk.session.disconnect(other.talk.listeners[again])
        runs.go_on.set()
        await player.question()
        await player.answer(accept(value=True))
        assert await player.text() == "run 1: accept"


async def test_on_the_same_connection_the_earlier_question_is_withdrawn() -> None:
    runs = Runs()
    async with play(runs.server(), Legacy) as player:
        await player.call("ask", meta=KEY)
        earlier = await player.talk.question()
        await player.call("ask", meta=KEY)
        assert (await player.talk.notification("notifications/cancelled"))["requestId"] == earlier["id"]
        await player.question()
        # A late answer to the earlier one is dropped.
        player.talk.answer(earlier, {"action": "decline"})
        await player.answer(accept(value=True))
        texts = {(await player.talk.receive())["result"]["content"][0]["text"] for _ in range(2)}
        assert texts == {"run 1: accept"}


# marked repeats


async def test_a_repeat_for_another_process_does_not_run_here(runs: Runs, player: Legacy) -> None:
    assert is_lost(await player.error_of("work", meta={**KEY, REPEAT_OF: "another"}))
    assert runs.count == 0


async def test_a_repeat_whose_first_request_never_came_runs(player: Legacy) -> None:
    await player.text_of("work")
    instance = player.talk.service.calls.node
    assert await player.text_of("work", meta={**KEY, REPEAT_OF: instance}) == "run 2"


@pytest.mark.parametrize("repeat_of", [7, "x" * 129, ["a"]], ids=repr)
async def test_a_malformed_instance_is_rejected(talk_of_sum: Talk, repeat_of: Any) -> None:
    error = await talk_of_sum.error(talk_of_sum.leg("add", {"a": 1, "b": 2}, meta={**KEY, REPEAT_OF: repeat_of}))
    assert error["code"] == INVALID_PARAMS
    assert REPEAT_OF in error["message"]


async def test_processes_that_share_keys_cannot_know_where_the_first_request_of_a_modern_http_client_went() -> None:
    runs = Runs()
    async with talk_to(runs.server(keys=KeyRing.random())) as talk:
        http = Talk(talk.service, shared_channel=False)
        with http.outbox:
            repeated = {**KEY, REPEAT_OF: talk.service.calls.node}
            assert is_lost(await http.error(http.leg("work", meta=repeated)))
            # On a pipe all requests went to this process.
            assert await talk.text(talk.leg("work", meta=repeated)) == "run 1"


# limits


async def test_keys_and_outcomes_draw_from_the_memory_budget_until_they_are_over(era: type[Legacy]) -> None:
    runs, memory = Runs(), MemoryBudget(10_000_000)
    async with play(runs.server(memory=memory), era) as player:
        await player.text_of("work")
        before = memory.drawn
        await player.text_of("work", meta=KEY)
        await wait_all_tasks_blocked()
        assert memory.drawn > before + KEY_SIZE
        await trio.sleep(61)
        assert memory.drawn == before + KEY_SIZE
        await trio.sleep(KEY_LIFE)
        assert memory.drawn == before


async def test_a_key_that_has_no_room_is_refused_and_nothing_runs(era: type[Legacy]) -> None:
    runs, memory = Runs(), MemoryBudget(10_000_000)
    async with play(runs.server(memory=memory), era) as player:
        await player.text_of("work")
        with memory.open() as hog:
            hog.draw(memory.total - memory.drawn - KEY_SIZE + 1)
            assert (await player.error_of("work", meta=KEY))["code"] == SERVER_BUSY
        assert runs.count == 1


async def test_too_many_outcomes_drop_the_oldest_and_its_call_is_lost(
    era: type[Legacy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_calls, "KEYED_OUTCOMES", keyed_calls.KEYED_OUTCOMES._replace(limit=2))
    runs = Runs()
    async with play(runs.server(), era) as player:
        for number in range(3):
            await player.text_of("work", meta={IDEMPOTENCY_KEY: str(number)})
        assert is_lost(await player.error_of("work", meta={IDEMPOTENCY_KEY: "0"}))
        assert await player.text_of("work", meta={IDEMPOTENCY_KEY: "1"}) == "run 2"


async def test_when_keys_were_dropped_early_a_marked_repeat_still_does_not_run(
    era: type[Legacy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_calls, "KEYED_OUTCOMES", keyed_calls.KEYED_OUTCOMES._replace(limit=0))
    monkeypatch.setattr(keyed_calls, "USED_KEYS", keyed_calls.USED_KEYS._replace(limit=1))
    runs = Runs()
    async with play(runs.server(), era) as player:
        for number in range(3):
            await player.text_of("work", meta={IDEMPOTENCY_KEY: str(number)})
        calls = player.talk.service.calls
        repeated = {IDEMPOTENCY_KEY: "0", REPEAT_OF: calls.node}
        assert is_lost(await player.error_of("work", meta=repeated))
        # Every key that was dropped would be over by now.
        await trio.sleep(KEY_LIFE + 61)
        assert await player.text_of("work", meta=repeated) == "run 4"


async def test_keys_that_one_principal_has_dropped_early_cost_another_nothing(
    era: type[Legacy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_calls, "USED_KEYS", keyed_calls.USED_KEYS._replace(limit=4))
    runs = Runs()
    async with runs.server(outcome_grace=0).open_service() as service:
        alice, bob = (era(Talk(service, principal=name), EVERYTHING) for name in ("alice", "bob"))
        for number in range(8):
            await alice.text_of("work", meta={IDEMPOTENCY_KEY: str(number)})
        repeated = {IDEMPOTENCY_KEY: "0", REPEAT_OF: service.calls.node}
        assert is_lost(await alice.error_of("work", meta=repeated))
        assert await bob.text_of("work", meta=repeated) == "run 9"


async def test_nothing_is_left_at_the_end(era: type[Legacy]) -> None:
    runs, memory = Runs(), MemoryBudget(10_000_000)
    async with play(runs.server(memory=memory), era) as player:
        for name in ("work", "wait", "ask"):
            await player.call(name, meta={IDEMPOTENCY_KEY: name})
        await wait_all_tasks_blocked()
        player.talk.outbox.account.close()
    assert memory.drawn == 0


async def test_a_task_that_could_not_be_created_is_created_by_a_repeat() -> None:
    server = offering(tasks=TaskOptions(open=1))
    server.tool(task=True)(wait_for_ever)
    async with talk_to(server) as talk:
        first = await talk.result(talk.leg("wait_for_ever", capabilities=DECLARES))
        assert (await talk.error(talk.leg("wait_for_ever", meta=KEY, capabilities=DECLARES)))["code"] == SERVER_BUSY
        await talk.result(talk.ask("tasks/cancel", capabilities=DECLARES, taskId=first["taskId"]))
        assert "taskId" in await talk.result(talk.leg("wait_for_ever", meta=KEY, capabilities=DECLARES))


async def wait_for_ever() -> str:
    await trio.sleep_forever()
    return ""
