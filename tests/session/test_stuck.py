"""Calls that take too long, or do not end at all: what their callers get, and that nothing waits (reliability 63, 69 to 76)."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from naming import naming, unnamed
from talk import Legacy, Talk, accept, offering, play, session_with, talk_to
from trio.testing import wait_all_tasks_blocked
from wire_terms import SERVER_BUSY

from trio_mcp import CancelReason, Context, Disconnected, RequestTimeout, Server, ServiceOptions
from trio_mcp.session import Limits, Service

GRACE = 2.0
FREED = 1000.0
SOON = 10.0


def made(*tools: Callable[..., object], **options: Any) -> Server:
    """A server that gives a cancelled call a grace, and a parked one a minute."""
    return offering(*tools, cancel_grace=GRACE, actors=Limits(park_ttl=60), **options)


async def deafly() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep_until(FREED)


# sessions and replies


async def test_a_closed_session_is_idle_although_a_call_is_stuck(era: type[Legacy]) -> None:
    async def deaf() -> None:
        await deafly()

    async with play(made(deaf), era) as player:
        await player.call("deaf")
        await wait_all_tasks_blocked()
        player.talk.session.close(CancelReason.DISCONNECT)
        with trio.fail_after(GRACE + 0.1):
            await player.talk.session.requests.wait_none_left()


async def test_every_task_that_waits_for_the_end_of_the_calls_is_woken() -> None:
    async def naps() -> str:
        await trio.sleep(1)
        return "rested"

    async with session_with(made(naps)) as talk:
        talk.call("naps")
        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(talk.session.requests.wait_none_left)
                    nursery.start_soon(talk.service.drain, 1000)


async def test_a_stuck_prompt_is_a_busy_error_that_names_its_limit() -> None:
    server = made()

    @server.prompt(timeout=1)
    async def slow() -> str:
        await deafly()
        return ""

    async with talk_to(server) as talk:
        error = await talk.error(talk.ask("prompts/get", name="slow"))
    assert error == {"code": SERVER_BUSY, "message": "slow did not finish within 1 seconds, its timeout."}


async def test_the_same_leg_sent_again_gets_the_answer_of_the_first() -> None:
    """The outcome of a stuck call is kept as any other, and what it returns in the end changes nothing."""
    server = made()

    @server.tool(timeout=10)
    async def asks(ctx: Context) -> str:
        await ctx.elicit("How many?", int)
        await deafly()
        return "too late"

    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("asks"))
        first = asked.retry(1)
        await trio.sleep(10 + GRACE)
        failure = await talk.failure(first)
        assert unnamed(failure, "asks", "10 seconds", "its timeout") == []
        await trio.sleep(30)
        assert await talk.failure(asked.retry(1)) == failure


async def test_a_call_whose_time_was_up_while_it_was_parked_reports_it_when_it_has_cleaned_up() -> None:
    server = made()

    @server.tool(timeout=1)
    async def tidies(ctx: Context) -> str:
        try:
            await ctx.elicit("How many?", int)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(GRACE / 2)
        return "never"

    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("tidies"))
        await trio.sleep(1 + GRACE / 4)
        late, copy = asked.retry(1), asked.retry(1)
        for leg in (late, copy):
            assert unnamed(await talk.failure(leg), "tidies", "1 seconds", "its timeout") == []
        assert trio.current_time() == 1 + GRACE / 2
        assert not talk.session.busy
        assert unnamed(await talk.failure(asked.retry(1)), "tidies", "1 seconds", "its timeout") == []


# what a stuck call can still do


async def test_nothing_that_a_stuck_call_says_or_asks_reaches_anybody(era: type[Legacy]) -> None:
    server = made()
    failures: list[str] = []

    @server.tool(timeout=1)
    async def talks_on(ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(1 + GRACE + 1)
            await ctx.progress(1)
            await ctx.log("error", "still here")
            for ask in (ctx.elicit("How many?", int), ctx.sample("Hi"), ctx.roots()):
                try:
                    await ask
                except Disconnected as error:
                    failures.append(str(error))
        return "too late"

    async with play(server, era) as player:
        await player.call("talks_on", meta={"progressToken": "t"})
        assert "within 1 seconds" in await player.failure()
        await trio.sleep(10)
        await player.talk.silence()
        assert ["over" in failure for failure in failures] == [True] * 3
        assert player.talk.service.statistics().is_idle


async def test_a_call_that_asks_behind_a_shield_is_stuck_until_its_question_is_withdrawn() -> None:
    """The client gets the withdrawal before the answer to the call: no message about a call follows its answer."""
    server = made()

    @server.tool(timeout=1)
    async def asks_behind_a_shield(ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await ctx.elicit("Undo?", bool)
        return "never"

    async with session_with(server) as talk:
        call = talk.call("asks_behind_a_shield")
        question = await talk.question()
        assert (await talk.notification("notifications/cancelled"))["requestId"] == question["id"]
        assert unnamed(await talk.failure(call), "asks_behind_a_shield", "1 seconds", "its timeout") == []
        assert trio.current_time() == 1 + GRACE
        await wait_all_tasks_blocked()
        assert talk.service.statistics().is_idle


# which deadline


async def test_the_servers_maximum_is_for_prompts_and_resources_too() -> None:
    server = made(max_seconds=3)

    @server.resource("slow://one")
    async def slow() -> str:
        await trio.sleep_forever()
        return ""

    async with talk_to(server) as talk:
        error = await talk.error(talk.ask("resources/read", uri="slow://one"))
    assert error["code"] == SERVER_BUSY
    assert unnamed(error["message"], "slow://one", "3 seconds", "this server allows") == []


@pytest.mark.parametrize(
    "wrong",
    [{"max_seconds": 0}, {"max_seconds": math.nan}, {"cancel_grace": -1}, {"cancel_grace": 0}, {"watchdog": 0}],
    ids=str,
)
def test_invalid_times_are_rejected_where_they_are_written(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=naming(*wrong)):
        ServiceOptions(**wrong)  # type: ignore[arg-type]


# threads


@pytest.mark.trio  # in real time
async def test_a_question_of_a_thread_is_withdrawn_with_its_call_and_the_thread_goes_on(era: type[Legacy]) -> None:
    """What `trio.from_thread` runs for a thread that may be abandoned is no part of the call's own task."""
    heard: list[str] = []

    def asks(ctx: Context) -> str:
        try:
            trio.from_thread.run(ctx.elicit, "How many?", int)
        except Disconnected as error:
            heard.append(str(error))
        return "too late"

    async with play(made(asks), era) as player:
        call = await player.call("asks")
        question = await player.question()
        if era is Legacy:
            player.talk.cancel(call)
            assert (await player.talk.notification("notifications/cancelled"))["requestId"] is not None
            assert question["message"] == "How many?"
        else:
            player.talk.service.supervisor.cancel_all(CancelReason.SHUTDOWN)
        with trio.fail_after(SOON):
            while not player.talk.service.statistics().is_idle:
                await trio.lowlevel.checkpoint()
        await player.talk.silence()
    assert ["over" in text for text in heard] == [True]


# the loop


@pytest.mark.trio  # in real time
async def test_a_tool_that_blocks_the_loop_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    logged = threading.Event()

    class Signal(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            logged.set()

    async def computes() -> bool:
        return logged.wait(SOON)  # on the loop

    handler = Signal(logging.WARNING)
    logging.getLogger("trio_mcp.watchdog").addHandler(handler)
    try:
        async with talk_to(made(computes, watchdog=0.02)) as talk:
            assert "true" in (await talk.text(talk.leg("computes"))).lower()
            assert talk.service.statistics().blocked == 1
    finally:
        logging.getLogger("trio_mcp.watchdog").removeHandler(handler)
    assert "computes-1 has blocked the event loop" in caplog.text


# a server that calls itself


async def test_a_tool_that_calls_its_own_service_without_end_meets_the_cap_and_all_come_back() -> None:
    """On one service, whose actors are capped; no call waits for another's place (reliability 82)."""
    deepest: list[int] = []
    services: list[Service] = []

    async def down(depth: int) -> str:
        deepest.append(depth)
        talk = Talk(services[0])
        await talk.initialize()
        reply = await talk.reply_to(talk.call("down", {"depth": depth + 1}))
        return str(reply.get("error", reply.get("result")))

    async with offering(down, actors=Limits(actors=20)).open_service() as service:
        services.append(service)
        talk = Talk(service)
        await talk.initialize()
        assert "Limits.actors" in await talk.text(talk.call("down", {"depth": 1}))
        assert max(deepest) == 20
        assert service.statistics().is_idle


# statistics


async def test_statistics_count_what_there_is_now_and_are_zero_afterwards(era: type[Legacy]) -> None:
    async def asks(ctx: Context) -> str:
        await ctx.branch_all(*[lambda child: child.elicit("How many?", int)] * 3)
        return "done"

    async with play(made(asks), era) as player:
        service = player.talk.service
        assert service.statistics().is_idle
        call = await player.call("asks")
        await wait_all_tasks_blocked()
        now = service.statistics()
        at_once = 1 if era is Legacy else 3  # prompts of a live session go out one at a time
        assert (now.open_questions, now.is_idle) == (at_once, False)
        assert (now.actors.running, now.actors.parked) == ((1, 0) if era is Legacy else (0, 1))
        if era is Legacy:
            player.talk.cancel(call)
        else:
            await trio.sleep(61)
        await trio.sleep(1)
        assert service.statistics().is_idle


async def test_undelivered_replies_are_counted_by_kind() -> None:
    async def asks(ctx: Context) -> str:
        with suppress(RequestTimeout):
            await ctx.elicit("How many?", int, timeout=1)
        return "done"

    async with made(asks).open_service() as service:
        ana, ben = Talk(service), Talk(service)
        for talk in (ana, ben):
            await talk.initialize()
        call = ana.call("asks")
        question = await ana.question()
        ben.answer(question, accept(value=1))  # meant for ana, perhaps
        ana.answer(question, accept(value=2))
        ana.answer(question, accept(value=3))  # twice
        assert await ana.text(call) == "done"
        call = ana.call("asks")
        question = await ana.question()
        await ana.notification("notifications/cancelled")
        ana.answer(question, accept(value=4))  # late
        ana.send({"id": "no such", "result": {}})
        ana.send({"id": 999, "result": {}})
        assert await ana.text(call) == "done"
        dropped = service.statistics().dropped
        assert (dropped.late, dropped.duplicate, dropped.unknown) == (1, 1, 3)


async def test_an_answer_of_a_round_that_was_not_asked_for_is_counted_and_dropped() -> None:
    async def asks(ctx: Context) -> str:
        return (await ctx.elicit("How many?", int)).action

    async with talk_to(made(asks)) as talk:
        asked = await talk.round(talk.leg("asks"))
        last = asked.leg({asked.key: accept(value=1), "elicit-9": accept(value=2)})
        assert await talk.text(last) == "accept"
        assert talk.service.statistics().dropped.unknown == 1
