"""Legacy streams: what they look like, who reads them, and how they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from asgi_peer import legacy_call, modern_call
from log_limits import new_records
from talking import GRACE, Session, Stage, Talk, WatchedStore, said, talking
from trio.testing import wait_all_tasks_blocked

from trio_mcp import CancelReason, Context, Server
from trio_mcp.client import Change
from trio_mcp.stores import LogKey, MemoryEventStore
from trio_mcp_transports.http.sessions.breaker import Breaker
from trio_mcp_transports.http.sessions.event_log import EventLog

TOOLS, PROMPTS, RESOURCES = map(Change, ("tools", "prompts", "resources"))

# what a stream looks like


async def test_a_stream_begins_with_an_empty_event_whose_id_can_be_resumed_from(talk: Talk, session: Session) -> None:
    reply = await session.call()
    await talk.say(1)
    assert reply.body.startswith(b"id: 1-0\ndata: \n\nevent: message\nid: 1-1\ndata: {")
    assert (reply.headers["content-type"], reply.headers["x-accel-buffering"]) == ("text/event-stream", "no")


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26"])
async def test_older_revisions_get_ids_without_the_empty_event(stage: Stage, version: str) -> None:
    talk = stage.expect()
    async with talking(stage, version=version) as session:
        reply = await session.call()
        await talk.say(1)
        assert reply.body.startswith(b"event: message\nid: 1-1\ndata: {")
        for last in (None, "1-1"):  # a head is sent although there is nothing to say yet
            stream = await session.get(last)
            assert (stream.status, stream.body) == (200, b"")


async def test_an_answer_that_is_all_there_is_to_say_stays_plain_json_and_out_of_the_log(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    reply = await session.call()
    await talk.answer()
    assert reply.headers["content-type"] == "application/json"
    assert store.writes == 0


@pytest.mark.parametrize(("seconds", "filler"), [(1, b""), (16, b": still here\n\n")], ids=["primed", "kept alive"])
async def test_a_silent_call_is_primed_so_that_its_client_may_come_back_and_then_kept_alive(
    talk: Talk, session: Session, seconds: float, filler: bytes
) -> None:
    reply = await session.call()
    await trio.sleep(seconds)
    assert reply.body == b"id: 1-0\ndata: \n\n" + filler
    await session.drop(reply)
    await talk.answer()
    assert said(await session.get("1-0")) == ["done"]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-03-26"])
async def test_a_silent_call_of_an_older_revision_gets_no_event_that_its_client_could_not_read(
    stage: Stage, version: str
) -> None:
    talk = stage.expect()
    async with talking(stage, version=version) as session:
        reply = await session.call()
        await trio.sleep(14)
        await talk.answer()
        assert (await reply.end()).headers["content-type"] == "application/json"


async def test_ids_are_unique_in_the_session_and_name_their_stream(stage: Stage, session: Session) -> None:
    first, second = stage.expect("a"), stage.expect("b")
    standalone = await session.get()
    replies = [await session.call("a", 1), await session.call("b", 2)]
    await first.say(1)
    await second.say(1)
    await first.say(2)
    assert [reply.ids for reply in [standalone, *replies]] == [["1-0"], ["2-0", "2-1", "2-2"], ["3-0", "3-1"]]


# the standalone stream


def tell(session: Session, *changes: Change) -> None:
    for change in changes:
        session.peer.app.service.subscriptions.announce(change)


async def test_what_belongs_to_no_request_goes_to_the_standalone_stream_alone(talk: Talk, session: Session) -> None:
    stream, reply = await session.get(), await session.call()
    await talk.say(1)
    tell(session, TOOLS)
    await wait_all_tasks_blocked()
    assert [event["method"] for event in stream.events] == ["notifications/tools/list_changed"]
    assert [event["method"] for event in reply.events] == ["notifications/progress"]


async def test_a_second_stream_is_refused_while_the_first_is_read(session: Session) -> None:
    first = await session.get()
    refused = await session.get()
    assert (refused.status, "Last-Event-ID" in refused.json["error"]["message"]) == (409, True)
    await session.drop(first)
    assert (await session.get()).status == 200


async def test_changes_without_a_reader_are_sent_once_to_the_next_reader(session: Session) -> None:
    await session.drop(await session.get())
    for change in (TOOLS, PROMPTS, TOOLS):
        tell(session, change)
        await wait_all_tasks_blocked()
    stream = await session.get()
    assert [event["method"] for event in stream.events] == [TOOLS.method, PROMPTS.method]


async def test_the_standalone_stream_is_resumed_and_goes_on(session: Session) -> None:
    stream = await session.get()
    tell(session, TOOLS)
    await wait_all_tasks_blocked()
    await session.drop(stream)
    tell(session, PROMPTS)
    await wait_all_tasks_blocked()
    again = await session.get("1-0")
    tell(session, RESOURCES)
    await wait_all_tasks_blocked()
    assert again.ids == ["1-1", "1-2", "1-3"]
    assert [event["method"] for event in again.events] == [TOOLS.method, PROMPTS.method, RESOURCES.method]
    assert not again.ended.is_set()


async def test_a_new_standalone_stream_leaves_the_log_of_the_old_one_to_be_read(session: Session) -> None:
    stream = await session.get()
    tell(session, TOOLS)
    await wait_all_tasks_blocked()
    await session.drop(stream)
    fresh = await session.get()
    rest = await (await session.get("1-0")).end()
    assert (fresh.ids, rest.ids) == (["2-0"], ["1-1"])
    assert not fresh.ended.is_set()


async def test_a_drain_ends_the_standalone_stream_and_opens_no_other(session: Session) -> None:
    stream = await session.get()
    await session.peer.app.drain(0)
    await stream.end()
    refused = await session.get()
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")


async def test_a_session_whose_stream_is_read_is_not_idle(session: Session) -> None:
    stream = await session.get()
    await trio.sleep(10_000)
    assert not stream.ended.is_set()
    await session.drop(stream)
    await trio.sleep(90)
    assert (await session.get()).status == 200


# polling


async def test_a_stream_that_ends_before_anything_was_said_gives_an_id_to_come_back_with(
    talk: Talk, session: Session
) -> None:
    reply = await session.call()
    await talk.end_stream(2)
    await talk.answer()
    assert (await reply.end()).body == b"id: 1-0\ndata: \n\nretry: 2000\n\n"
    assert said(await (await session.get("1-0")).end()) == ["done"]


async def test_the_stream_has_ended_when_end_stream_returns() -> None:
    server = Server("stage")

    @server.tool
    async def hang_up(ctx: Context) -> str:
        await ctx.end_stream()
        return "at once"

    async with talking(server) as session:
        reply = await session.peer.post(legacy_call("hang_up"), session.headers)
        assert (reply.ids, reply.events, b"retry" in reply.body) == (["1-0"], [], False)
        assert said(await (await session.get("1-0")).end()) == ["at once"]


async def test_the_grace_period_includes_the_time_that_a_client_was_asked_to_wait(talk: Talk, session: Session) -> None:
    await session.call()
    await talk.end_stream(100)
    await trio.sleep(100 + GRACE - 1)
    assert not talk.over.is_set()
    await trio.sleep(2)
    assert talk.reason is CancelReason.DISCONNECT


async def test_an_order_to_stay_away_counts_once(talk: Talk, session: Session) -> None:
    await session.call()
    await talk.end_stream(100)
    resumed = await session.get("1-0")
    assert (resumed.status, resumed.body) == (200, b"")
    await session.drop(resumed)
    await trio.sleep(GRACE + 1)
    assert talk.reason is CancelReason.DISCONNECT


@pytest.mark.parametrize(
    "options",
    [{"version": "2025-06-18"}, {"version": "2025-03-26"}, {"grace": 0}],
    ids=["2025-06-18 has no polling", "2025-03-26 has no polling", "without a grace it would cancel the call"],
)
async def test_a_stream_that_could_not_be_resumed_is_not_ended(
    stage: Stage, talk: Talk, options: dict[str, Any]
) -> None:
    async with talking(stage, **options) as session:
        reply = await session.call()
        await talk.end_stream(0.5)
        await talk.answer()
        assert reply.headers["content-type"] == "application/json"
        assert reply.json["result"]["content"][0]["text"] == "done"


async def test_a_modern_call_has_no_stream_to_end(talk: Talk, session: Session) -> None:
    reply = session.peer.start(*modern_call("talk", {"name": "a"}))
    await talk.end_stream(0.5)
    await talk.answer()
    assert (await reply.end()).json["result"]["content"][0]["text"] == "done"


@pytest.mark.parametrize("retry", [-1.0, float("inf"), float("nan")])
async def test_a_time_that_cannot_be_waited_for_is_refused(talk: Talk, session: Session, retry: float) -> None:
    reply = await session.call()
    await talk.end_stream(retry)
    assert (await reply.end()).json["result"]["isError"] is True


async def test_end_stream_returns_when_another_reader_takes_the_stream_over(talk: Talk, session: Session) -> None:
    reply = await session.call()
    await talk.say(1)
    reply.stuck = trio.Event()
    await talk.say(2)
    await talk.end_stream()
    assert talk.done == 2
    rest = await session.get("1-1")
    assert talk.done == 3
    await talk.answer()
    assert said(await rest.end()) == [2, "done"]
    reply.stuck.set()


# ends


async def test_delete_ends_every_stream_and_forgets_what_they_said(
    talk: Talk, session: Session, store: WatchedStore
) -> None:
    standalone, reply = await session.get(), await session.call()
    await talk.say(1)
    await session.drop(reply)
    resumed = await session.get("2-0")
    assert (await session.delete()).status == 204
    await standalone.end()
    await resumed.end()
    await wait_all_tasks_blocked()
    assert len(store) == 0
    assert talk.reason is CancelReason.DISCONNECT
    assert (await session.get("2-0")).status == 404


async def test_what_is_said_after_the_end_of_a_session_is_not_logged() -> None:
    server, store = Server("stage"), WatchedStore()

    @server.tool
    async def closing_bytes(ctx: Context) -> str:
        try:
            await ctx.progress(1)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await ctx.progress(2)
                await wait_all_tasks_blocked()
        return "never"

    async with talking(server, store=store) as session:
        reply = session.peer.start(legacy_call("closing_bytes", _meta={"progressToken": "t"}), session.headers)
        await reply.until('"progress":1')
        await session.delete()
        await reply.end()
        assert [event["params"]["progress"] for event in reply.events[:-1]] == [1, 2]
        assert "error" in reply.events[-1]
        assert store.writes == 1


async def test_an_application_that_ends_forgets_what_its_sessions_said(
    talk: Talk, stage: Stage, store: WatchedStore
) -> None:
    async with talking(stage, store=store) as session:
        await session.call()
        await talk.say(1)
        assert len(store) == 1
    assert len(store) == 0


async def test_a_cancelled_write_that_came_after_the_end_of_its_session_is_forgotten() -> None:
    class SessionEndsFirst(MemoryEventStore):
        async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
            log.sealed = True
            await super().append(key, first, events)

    store = SessionEndsFirst()
    records = new_records("trio_mcp.http")
    services: Any = None  # nothing is written later
    log = EventLog(store, None, "session", records, Breaker("the store failed", records), services)
    log.opened = 1
    with trio.CancelScope() as scope:
        scope.cancel()
        await log.append(1, 1, [b"event"])
    assert scope.cancelled_caught
    assert len(store) == 0
