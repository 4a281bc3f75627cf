"""Progress over a whole call, log messages by level, and the heartbeat."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import trio
from talk import ERAS, Legacy, accept, log_level, offering, play, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server

TOKEN = {"progressToken": "p"}
PROGRESS = "notifications/progress"
BEAT = {"io.trio-mcp/heartbeat": True}


async def around_a_question(ctx: Context) -> str:
    await ctx.progress(5, 10)
    await ctx.elicit("Go on?", bool)
    await ctx.progress(5, 10)
    await ctx.progress(6, 10)
    return "done"


async def reports_of(player: Legacy) -> list[float]:
    """Return the values that were reported until the result, which is no error."""
    return [message["params"]["progress"] for message in await messages_of(player) if message.get("method") == PROGRESS]


async def messages_of(player: Legacy) -> list[Any]:
    messages = [await player.talk.receive()]
    while "result" not in messages[-1]:
        messages.append(await player.talk.receive())
    assert not messages[-1]["result"].get("isError"), messages[-1]
    return messages


@pytest.mark.parametrize("meta", [TOKEN, None], ids=["asked for", "not asked for"])
async def test_progress_rises_over_a_question_too(
    era: type[Legacy], meta: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with play(offering(around_a_question), era) as player:
        await player.call("around_a_question", meta=meta)
        if meta is not None:
            assert (await player.talk.notification(PROGRESS))["progress"] == 5
        await player.question()
        await player.answer(accept(value=True))
        assert await reports_of(player) == ([6] if meta else [])
    assert [record.levelno for record in caplog.records if "5 came after 5" in record.getMessage()] == [logging.WARNING]


async def test_dropped_progress_is_logged_once_for_a_call_and_then_counted(
    era: type[Legacy], caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(ctx: Context) -> str:
        for _ in range(50):
            await ctx.progress(1)
        return "done"

    async with play(offering(steps), era) as player:
        await player.call("steps", meta=TOKEN)
        assert await reports_of(player) == [1]
        await wait_all_tasks_blocked()
    first, summary = (record.getMessage() for record in caplog.records if "progress must rise" in record.getMessage())
    assert "steps" in first
    assert summary.startswith("48 more")


@pytest.mark.trio  # a plain function runs in a thread
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
async def test_each_level_has_a_method(era: type[Legacy], level: str) -> None:
    async def speak(ctx: Context) -> str:
        await getattr(ctx, level)({"n": 1})
        await getattr(ctx, level)("named", "stock")
        return "done"

    def nothing() -> None: ...

    async with play(offering(speak, nothing), era) as player:
        await player.call("nothing", meta=log_level("debug"))
        await player.result()
        if era is Legacy:
            await player.talk.result(player.talk.request("logging/setLevel", {"level": "debug"}))
        await player.call("speak", meta=log_level("debug"))
        first = await player.talk.notification("notifications/message")
        assert (first["level"], first["data"], first.get("logger")) == (level, {"n": 1}, None)
        second = await player.talk.notification("notifications/message")
        assert (second["data"], second["logger"]) == ("named", "stock")
        assert await player.text() == "done"


# heartbeats


def beating(function: Any, **options: Any) -> Server:
    server = Server("tester", version="1")
    server.add_tool(function, name="tool", heartbeat=3, **options)
    return server


def next_after(value: float) -> float:
    return math.nextafter(value, math.inf)


async def test_a_silent_tool_reports_by_itself_and_the_next_report_still_rises(era: type[Legacy]) -> None:
    async def slow(ctx: Context) -> str:
        await trio.sleep(4)
        await ctx.progress(0, 10, "begun")
        await trio.sleep(8)
        await ctx.progress(1, 10)
        return "done"

    async with play(beating(slow), era) as player:
        await player.call("tool", meta=TOKEN)
        messages = [message["params"] for message in (await messages_of(player))[:-1]]
    beats = next_after(next_after(0.0)), next_after(next_after(next_after(0.0)))
    assert [message["progress"] for message in messages] == [0.0, next_after(0.0), *beats, 1]
    assert [message.get("message") for message in messages[1:4]] == ["begun"] * 3
    assert [message.get("_meta") for message in messages] == [BEAT, None, BEAT, BEAT, None]
    assert trio.current_time() == 12


async def test_a_report_puts_the_heartbeat_off(era: type[Legacy]) -> None:
    async def busy(ctx: Context) -> str:
        for number in range(6):
            await ctx.progress(number)
            await trio.sleep(2)
        return "done"

    async with play(beating(busy), era) as player:
        await player.call("tool", meta=TOKEN)
        assert await reports_of(player) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("heartbeat", [None, 3], ids=["no heartbeat", "no token"])
async def test_a_heartbeat_has_a_task_only_if_it_can_be_sent(era: type[Legacy], heartbeat: float | None) -> None:
    async def slow() -> int:
        await trio.sleep(9.5)
        return len(trio.lowlevel.current_task().parent_nursery.child_tasks)

    server = Server("tester", version="1")
    server.add_tool(slow, **({"heartbeat": heartbeat} if heartbeat else {}))
    async with play(server, era) as player:
        await player.call("slow", meta=None if heartbeat else TOKEN)
        alone = int((await player.result())["structuredContent"]["result"])
    server.remove_tool("slow")
    server.add_tool(slow, heartbeat=3)
    async with play(server, era) as player:
        await player.call("slow", meta=TOKEN)
        messages = await messages_of(player)
        assert int(messages[-1]["result"]["structuredContent"]["result"]) == alone + 1
        assert len(messages) == 4
        await player.talk.silence()


async def test_heartbeats_are_sent_during_a_question_of_a_legacy_call() -> None:
    async with play(beating(around_a_question), ERAS[0]) as player:
        await player.call("tool", meta=TOKEN)
        assert (await player.talk.notification(PROGRESS))["progress"] == 5
        await player.question()
        await trio.sleep(7)
        assert (await player.talk.notification(PROGRESS))["progress"] == next_after(5)
        assert (await player.talk.notification(PROGRESS))["progress"] == next_after(next_after(5))
        await player.answer(accept(value=True))
        assert await reports_of(player) == [6]


async def test_no_heartbeat_is_sent_between_the_legs_of_a_modern_call() -> None:
    async with play(beating(around_a_question), ERAS[1]) as player:
        await player.call("tool", meta=TOKEN)
        assert (await player.talk.notification(PROGRESS))["progress"] == 5
        await player.question()
        await trio.sleep(100)
        assert player.talk.waiting() == []
        await player.answer(accept(value=True))
        assert await reports_of(player) == [6]


async def test_a_later_leg_that_asks_for_progress_has_heartbeats_under_its_own_token() -> None:
    async def ask_then_work(ctx: Context) -> str:
        await ctx.elicit("Go on?", bool)
        await trio.sleep(4)
        return "done"

    async with talk_to(beating(ask_then_work)) as talk:
        asked = await talk.round(talk.leg("tool"))
        answered = asked.retry(True, meta={"progressToken": "second"})
        assert await talk.notification(PROGRESS) == {"progressToken": "second", "progress": 0.0, "_meta": BEAT}
        assert await talk.text(answered) == "done"


async def test_heartbeats_are_sent_during_branches(era: type[Legacy]) -> None:
    async def branch(_child: Context) -> str:
        await trio.sleep(4)
        return "x"

    async def both(ctx: Context) -> str:
        return "".join(await ctx.branch_all(branch, branch))

    async with play(beating(both), era) as player:
        await player.call("tool", meta=TOKEN)
        assert await reports_of(player) == [0.0]


async def test_a_slow_reader_gets_no_heartbeats(era: type[Legacy]) -> None:
    async def slow() -> str:
        await trio.sleep(29.5)
        return "done"

    async with play(beating(slow), era) as player:
        player.talk.outbox.limit = 2
        await player.call("tool", meta=TOKEN)
        await trio.sleep(29)
        assert len(player.talk.waiting()) == 2
        assert await player.text() == "done"


async def test_a_call_that_its_client_cancelled_sends_no_heartbeats(era: type[Legacy]) -> None:
    async def slow() -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(4)

    async with play(beating(slow), era) as player:
        call = await player.call("tool", meta=TOKEN)
        await trio.sleep(1)
        player.talk.cancel(call)
        await trio.sleep(20)
        assert player.talk.waiting() == []


@pytest.mark.parametrize("heartbeat", [0, -1, math.inf, math.nan, "15"], ids=repr)
def test_a_heartbeat_is_a_number_of_seconds(heartbeat: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="heartbeat"):
        Server("tester").add_tool(around_a_question, heartbeat=heartbeat)
