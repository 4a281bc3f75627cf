"""Cancellations of one connection: which request each one finds, and what it costs to find it."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from peer import message_of
from talk import Talk, offering, session_with
from trio.testing import wait_all_tasks_blocked

from trio_mcp import CancelReason, Context, Server
from trio_mcp.session import Envelope


class CountedId(str):
    """A request id that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedId.compared += 1
        return str.__eq__(self, other)


@pytest.fixture
def server() -> Server:
    async def forever() -> None:
        await trio.sleep_forever()

    async def lingering() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    return offering(forever, lingering)


async def comparisons(talk: Talk, count: int) -> int:
    """How often ids are compared when open requests are cancelled, the last one first."""
    ids = [f"id-{count}-{number}" for number in range(count)]
    for each in ids:
        call = message_of({"id": each, "method": "tools/call", "params": {"name": "forever"}})
        talk.session.receive(Envelope(call._replace(id=CountedId(each))), talk.outbox)
    await wait_all_tasks_blocked()
    CountedId.compared = 0
    for each in reversed(ids):
        talk.cancel(each)
    found = CountedId.compared
    await talk.silence()
    return found


async def test_cancels_cost_the_same_however_many_requests_are_open(talk: Talk) -> None:
    few, many = [await comparisons(talk, count) for count in (10, 200)]
    assert few > 0
    assert many <= 20 * few, f"{few} comparisons for 10 cancels, {many} for 200"


async def test_an_id_whose_old_request_still_cleans_up_belongs_to_the_new_one(talk: Talk) -> None:
    talk.call("lingering", id="x")
    await wait_all_tasks_blocked()
    talk.cancel("x")
    talk.call("forever", id="x")
    await trio.sleep(2)
    assert len(talk.service.supervisor.actors) == 1  # the old one has ended
    assert "in use" in (await talk.error(talk.call("forever", id="x")))["message"]
    talk.cancel("x")
    await wait_all_tasks_blocked()
    assert talk.service.supervisor.actors == ()
    assert "open=0" in repr(talk.session.connection)


async def test_a_cancel_finds_the_new_request_while_the_old_one_cleans_up(talk: Talk) -> None:
    talk.call("lingering", id="x")
    await wait_all_tasks_blocked()
    talk.cancel("x")
    talk.call("forever", id="x")
    await wait_all_tasks_blocked()
    talk.cancel("x")
    await wait_all_tasks_blocked()
    assert [actor.name for actor in talk.service.supervisor.actors] == ["lingering-1"]


async def test_requests_under_one_id_are_cancelled_one_after_the_other(server: Server) -> None:
    async with server.open_service() as service:
        talk = Talk(service, shared_channel=False)
        await talk.initialize()
        for _ in range(3):
            talk.call("forever", id=1)
        await wait_all_tasks_blocked()
        for left in (2, 1, 0):
            talk.cancel(1)
            await wait_all_tasks_blocked()
            assert len(service.supervisor.actors) == left


async def test_a_cancelled_request_stays_silent_when_its_session_ends_while_it_cleans_up() -> None:
    session_ended, reported = trio.Event(), trio.Event()

    async def reporting(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(5, shield=True):
                await session_ended.wait()
                await ctx.progress(1)
                reported.set()

    async with session_with(offering(reporting)) as talk:
        talk.call("reporting", id="x", meta={"progressToken": "t"})
        await wait_all_tasks_blocked()
        talk.cancel("x")
        await wait_all_tasks_blocked()
        talk.session.close(CancelReason.DISCONNECT)
        session_ended.set()
        await reported.wait()
        assert list(talk.outbox.items) == []
