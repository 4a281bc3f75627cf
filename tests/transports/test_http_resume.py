"""Resuming a legacy stream: exactly what was missed, in order, once; whatever happens meanwhile."""

from __future__ import annotations

import random

import pytest
import trio
from asgi_peer import LEGACY, Reply, legacy_call
from log_limits import SHOWN
from talking import GRACE, Session, Stage, Talk, WatchedStore, said, talking
from trio.testing import wait_all_tasks_blocked

from trio_mcp import CancelReason, Context, Server


async def test_after_the_grace_there_is_nothing_to_come_back_for(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    reply = await session.call()
    await talk.say(1)
    await session.drop(reply)
    await trio.sleep(GRACE + 1)
    refused = await session.get("1-0")
    assert (refused.status, len(store)) == (400, 0)
    assert "no longer kept" in refused.json["error"]["message"]


async def test_a_call_that_is_cancelled_without_a_reader_ends_without_an_answer(talk: Talk, session: Session) -> None:
    reply = await session.call(id="x")
    await talk.say(1)
    await session.drop(reply)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}}
    await session.peer.post(cancel, session.headers)
    assert said(await (await session.get("1-0")).end()) == [1]


async def test_the_answers_of_a_batch_are_resumed_as_they_would_have_come(stage: Stage) -> None:
    talks = [stage.expect("a"), stage.expect("b")]
    async with talking(stage, version="2025-03-26") as session:
        batch = [legacy_call("talk", {"name": name}, id=name, _meta={"progressToken": name}) for name in "ab"]
        reply = session.peer.start(batch, session.headers)
        await wait_all_tasks_blocked()
        for talk in talks:
            await talk.say(1)
        await session.drop(reply)
        for name, talk in zip("ab", talks, strict=True):
            await talk.answer(f"done {name}")
        rest = await (await session.get("1-1")).end()
        assert (rest.ids, said(rest)) == (["1-2", "1-3"], [1, ["done a", "done b"]])


async def test_a_call_that_was_dropped_before_it_said_anything_leaves_nothing_to_come_back_for(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    await session.drop(await session.call())
    await talk.say(1)
    await talk.answer()
    assert (talk.reason, len(store)) == (None, 0)
    assert (await session.get("1-0")).status == 400


# ids that cannot be resumed


@pytest.mark.parametrize(
    "last",
    [
        "x",
        "1",
        "1-",
        "-1",
        "1-1-1",
        "1-1.0",
        "1-1.",
        "01-0",
        "1-00",
        "1--1",
        " 1-0 x",
        "٣-1",
        "9" * 40 + "-1",
        "1-" + "9" * 40,
    ],
)
async def test_an_invalid_event_id_is_rejected(talk: Talk, session: Session, last: str) -> None:
    reply = await session.call()
    await talk.say(1)
    headers = [(name.encode(), value.encode()) for name, value in session.headers.items()]
    raw = [*headers, (b"last-event-id", last.encode())]
    refused = await session.peer.start_raw(b"", raw, "GET", "/mcp").end()
    assert refused.status == 400
    assert "no event id" in refused.json["error"]["message"]
    assert not reply.ended.is_set()


@pytest.mark.parametrize("last", ["0-0", "1-2", "2-0", "999-1", "1-1.1"])
async def test_an_event_that_was_never_sent_is_refused_and_takes_nothing_from_the_reader(
    talk: Talk, session: Session, last: str
) -> None:
    reply = await session.call()
    await talk.say(1)
    refused = await session.get(last)
    assert refused.status == 400
    assert "was never sent" in refused.json["error"]["message"]
    await talk.answer()
    assert said(await reply.end()) == [1, "done"]


async def test_a_session_reads_its_own_streams_only(stage: Stage, session: Session) -> None:
    ours, theirs = stage.expect("ours"), stage.expect("theirs")
    other = Session(session.peer, await session.peer.open_session(version=LEGACY))
    await session.call("ours")
    await ours.say(1, 2)
    assert (await other.get("1-1")).status == 400
    await other.call("theirs")
    await theirs.say(7, 8)
    assert said(await other.get("1-1")) == [8]
    stranger = await session.get("1-0", **{"mcp-session-id": "made-up"})
    assert stranger.status == 404


# two readers


async def test_a_reader_that_is_stuck_in_a_write_does_not_block_a_client_that_resumes(
    talk: Talk, session: Session
) -> None:
    dead = await session.call()
    await talk.say(1)
    dead.stuck = trio.Event()
    await talk.say(2, 3)
    resumed = await session.get("1-1")
    await talk.say(4)
    await talk.answer()
    assert said(await resumed.end()) == [2, 3, 4, "done"]
    dead.stuck.set()
    await dead.end()
    assert 4 not in said(dead)


async def test_many_resumes_at_once_leave_one_reader_that_gets_everything(talk: Talk, session: Session) -> None:
    first = await session.call()
    await talk.say(1, 2)
    headers = {**session.headers, "last-event-id": "1-1"}
    readers = [session.peer.start(b"", headers, method="GET") for _ in range(20)]
    await wait_all_tasks_blocked()
    await talk.answer()
    assert said(await first.end()) == [1, 2]
    heard = [said(await reader.end()) for reader in readers]
    assert heard.count([2, "done"]) == 1
    assert all(each in ([], [2], [2, "done"]) for each in heard)


# races


@pytest.mark.parametrize("seed", range(60))
async def test_nothing_is_missing_and_nothing_comes_twice_while_events_are_produced(seed: int) -> None:
    dice, server = random.Random(seed), Server("stage")

    @server.tool
    async def count(ctx: Context) -> str:
        for number in range(1, 41):
            await ctx.progress(number)
            for _ in range(dice.randrange(4)):
                await trio.lowlevel.checkpoint()
            if number % 13 == 0:
                await ctx.end_stream(0)
        return "done"

    async with talking(server) as session:
        call = legacy_call("count", _meta={"progressToken": "t"})
        reply, heard, last = session.peer.start(call, session.headers), list[object](), "1-0"
        await reply.until("id: 1-0")  # before it there is nothing to come back with
        while "done" not in heard:
            for _ in range(dice.randrange(20)):
                await trio.lowlevel.checkpoint()
            last = reply.ids[-1] if reply.ids else last
            heard += said(reply)
            if dice.random() < 0.5:  # else the server learns of it by the resume
                reply.gone.set()
            reply = resume(session, last)
        assert heard == [*range(1, 41), "done"]


def resume(session: Session, last: str) -> Reply:
    return session.peer.start(b"", {**session.headers, "last-event-id": last}, method="GET")


async def test_a_resume_in_the_middle_of_a_write_to_the_log_loses_and_repeats_nothing(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    reply = await session.call()
    await talk.say(1)
    await session.drop(reply)
    store.hold()
    await talk.say(2)  # the task that writes the log while there is no reader is in the store now
    resumed = await session.get("1-1")
    store.go_on.set()
    await talk.answer()
    assert said(await resumed.end()) == [2, "done"]
    assert said(await (await session.get("1-0")).end()) == [1, 2, "done"]


async def test_a_reader_that_is_writing_the_log_finishes_it_for_the_one_that_takes_over(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    first = await session.call()
    await talk.say(1)
    store.hold()
    await talk.say(2)
    second = await session.get("1-1")
    store.go_on.set()
    await talk.answer()
    assert (said(await first.end()), said(await second.end())) == ([1], [2, "done"])


async def test_a_session_that_ends_while_a_resume_waits_for_the_log_ends_the_resume(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    await session.call()
    await talk.say(1)
    store.hold()
    await talk.say(2)
    resumed = await session.get("1-1")
    await session.delete()
    store.go_on.set()
    await resumed.end()
    await wait_all_tasks_blocked()
    assert (len(store), talk.reason) == (0, CancelReason.DISCONNECT)


async def test_a_session_that_ends_while_a_resume_reads_the_log_is_gone(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    await session.call()
    await talk.say(1)
    store.hold()
    resumed = await session.get("1-0")
    await session.delete()
    store.go_on.set()
    assert (await resumed.end()).status == 404


async def test_an_earlier_reader_that_is_slow_to_leave_does_not_affect_the_next_one(
    talk: Talk, session: Session
) -> None:
    first = await session.call()
    await talk.say(1)
    first.lingers = trio.Event()
    second = await session.get("1-1")
    first.lingers.set()
    await wait_all_tasks_blocked()
    await talk.say(2)
    assert (said(await first.end()), said(second)) == ([1], [2])


# a store that fails


async def test_what_the_store_does_not_keep_reaches_the_reader_all_the_same(
    talk: Talk, session: Session, store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    reply = await session.call()
    store.broken = True
    await talk.say(1)
    store.broken = False
    await talk.say(2)
    assert said(reply) == [1, 2]
    assert "did not keep" in caplog.text
    assert (await session.get("1-0")).status == 400
    assert said(await session.get("1-1")) == [2]


async def test_a_store_that_fails_again_and_again_shows_a_bounded_number_of_tracebacks(
    talk: Talk, session: Session, store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    await session.call()
    store.broken = True
    for number in range(2 * SHOWN):
        await talk.say(number)
    assert store.writes >= 2 * SHOWN
    assert [record.exc_info is not None for record in caplog.records] == [True] * SHOWN


async def test_a_resume_is_rejected_when_the_newest_events_were_not_kept(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    await session.call()
    await talk.say(1)
    store.broken = True
    await talk.say(2)
    refused = await session.get("1-1")
    assert (refused.status, "not kept" in refused.json["error"]["message"]) == (400, True)


# slow readers


async def test_a_call_without_a_reader_waits_once_its_log_is_full_and_then_goes_on(
    talk: Talk, session: Session
) -> None:
    reply = await session.call()
    await talk.say(1)
    await session.drop(reply)
    await talk.say(*range(2, 2001))
    assert 256 < talk.done < 1024  # the log, the outbox, and no more
    resumed = await session.get("1-1")
    await talk.answer()
    assert said(await resumed.end()) == [*range(2, 2001), "done"]


@pytest.mark.parametrize("works_again", [True, False])
async def test_a_call_without_a_reader_waits_after_as_many_events_while_the_store_fails_and_none_is_lost(
    talk: Talk, session: Session, store: WatchedStore, works_again: bool
) -> None:
    reply = await session.call()
    await talk.say(1)
    await session.drop(reply)
    store.broken = True
    await talk.say(*range(2, 2001))
    assert 256 < talk.done < 1024  # what waits for the store, the outbox, and no more
    store.broken = not works_again
    resumed = await session.get("1-1")
    await talk.answer()
    assert said(await resumed.end()) == [*range(2, 2001), "done"]


async def test_an_answer_that_found_no_room_in_the_log_waits_for_the_end_of_the_grace(
    talk: Talk, session: Session
) -> None:
    reply = await session.call()
    await talk.say(1)
    await session.drop(reply)
    await talk.say(*range(2, 400))
    await talk.answer()
    await trio.sleep(2 * GRACE)
    assert said(await (await session.get("1-1")).end()) == [*range(2, 400), "done"]


async def test_a_slow_reader_slows_down_the_call_and_not_its_neighbour(stage: Stage, session: Session) -> None:
    slow, quick = stage.expect("slow"), stage.expect("quick")
    reply = await session.call("slow", 1)
    await slow.say(1)
    reply.stuck = trio.Event()
    await slow.say(*range(2, 1000))
    assert slow.done < 300
    other = await session.call("quick", 2)
    await quick.say(1, 2)
    await quick.answer()
    assert said(await other.end()) == [1, 2, "done"]
    reply.stuck.set()
    await slow.answer()
    assert said(await reply.end()) == [*range(1, 1000), "done"]
