"""The mailbox of an actor: one answer for each key, and no answer for anybody who did not ask."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_mcp.errors import Disconnected, LimitExceeded
from trio_mcp.runtime import Mailbox, Slot


async def take_into(taken: list[object], slot: Slot[str]) -> None:
    taken.append(await slot.take())


async def test_an_answer_reaches_the_one_who_waits_under_its_key() -> None:
    mailbox = Mailbox()
    first, second = mailbox.open("a", str), mailbox.open("b", str)
    taken: list[object] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_into, taken, first)
        await wait_all_tasks_blocked()
        assert mailbox.post("b", "for b")
        await wait_all_tasks_blocked()
        assert taken == []
        assert mailbox.post("a", "for a")
    assert taken == ["for a"]
    assert await second.take() == "for b"


async def test_an_answer_to_an_unknown_question_is_dropped_and_counted() -> None:
    mailbox = Mailbox()
    assert not mailbox.post("a", "unsolicited")
    assert not mailbox.post("a", Disconnected("unsolicited"))
    assert len(mailbox) == 0


async def test_the_first_answer_wins_and_the_second_is_dropped() -> None:
    mailbox = Mailbox()
    slot = mailbox.open("a", str)
    assert mailbox.post("a", "first")
    assert not mailbox.post("a", "second")
    assert await slot.take() == "first"


async def test_giving_up_wakes_the_waiting_task() -> None:
    slot = Mailbox().open("a", str)

    async def waits() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await slot.take()

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits)
            await wait_all_tasks_blocked()
            slot.give_up()


async def test_a_slot_has_one_owner_and_a_second_taker_is_refused() -> None:
    mailbox = Mailbox()
    slot = mailbox.open("a", str)
    taken: list[object] = []
    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(take_into, taken, slot)
            await wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await slot.take()
            mailbox.post("a", "answer")
    assert taken == ["answer"]


async def test_a_cancelled_wait_gives_the_slot_up() -> None:
    mailbox, settled = Mailbox(), list[str]()
    slot = mailbox.open("a", str, lambda: settled.append("a"))
    with trio.move_on_after(1) as scope:
        await slot.take()
    assert scope.cancelled_caught
    assert settled == ["a"]
    assert len(mailbox) == 0
    assert not mailbox.post("a", "late")
    with pytest.raises(trio.ClosedResourceError):
        await slot.take()
    slot.give_up()
    assert settled == ["a"]


async def test_a_key_is_open_once_at_a_time() -> None:
    mailbox = Mailbox()
    mailbox.open("a", str)
    with pytest.raises(ValueError, match="'a' is already open"):
        mailbox.open("a", str)


async def test_a_key_may_be_used_again_and_the_old_slot_cannot_close_the_new_one() -> None:
    mailbox = Mailbox()
    old = mailbox.open("a", str)
    mailbox.post("a", "old")
    new = mailbox.open("a", str)
    old.give_up()
    assert mailbox.post("a", "new")
    assert await new.take() == "new"
    assert await old.take() == "old"


@pytest.mark.parametrize(
    ("answer", "raised", "text"),
    [(7, TypeError, "'a' is int, expected str"), (Disconnected("gone"), Disconnected, "gone")],
    ids=["an answer of the wrong type", "a failure"],
)
async def test_what_is_no_answer_raises_in_the_waiter(answer: object, raised: type[Exception], text: str) -> None:
    mailbox = Mailbox()
    slot = mailbox.open("a", str)
    assert mailbox.post("a", answer)
    with pytest.raises(raised, match=text):
        await slot.take()


async def test_a_full_mailbox_refuses_the_next_question_and_names_its_limit() -> None:
    mailbox = Mailbox(limit=2)
    mailbox.open("a", str)
    slot = mailbox.open("b", str)
    with pytest.raises(LimitExceeded, match="2 open questions"):
        mailbox.open("c", str)
    slot.give_up()
    mailbox.open("c", str)
    assert len(mailbox) == 2


async def test_closing_raises_in_every_waiter_and_in_every_later_question() -> None:
    mailbox = Mailbox()
    why = Disconnected("the end")
    raised: list[Disconnected] = []

    async def waits(slot: Slot[str]) -> None:
        with pytest.raises(Disconnected, match="the end") as caught:
            await slot.take()
        raised.append(caught.value)

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            for key in ("a", "b"):
                nursery.start_soon(waits, mailbox.open(key, str))
            await wait_all_tasks_blocked()
            mailbox.close(why)
    assert len({id(error) for error in (*raised, why)}) == 3, "each waiter raises an error that no other raises"
    assert why.__traceback__ is None, "it would hold the frames of all who waited"
    with pytest.raises(Disconnected, match="the end"):
        mailbox.open("c", str)


async def test_settling_is_announced_once_and_in_the_same_step() -> None:
    mailbox = Mailbox()
    settled: list[str] = []
    slots = {key: mailbox.open(key, str, lambda key=key: settled.append(key)) for key in ("post", "fail", "give up")}
    mailbox.post("post", "answer")
    assert settled == ["post"]
    mailbox.post("fail", Disconnected("gone"))
    assert settled == ["post", "fail"]
    slots["give up"].give_up()
    assert settled == ["post", "fail", "give up"]
    for slot in slots.values():
        slot.give_up()
    assert settled == ["post", "fail", "give up"]


async def test_taking_what_is_there_already_is_a_checkpoint() -> None:
    mailbox = Mailbox()
    slot = mailbox.open("a", str)
    mailbox.post("a", "answer")
    with trio.testing.assert_checkpoints():
        await slot.take()


async def test_the_repr_shows_what_is_open() -> None:
    mailbox = Mailbox()
    mailbox.open("a", str)
    assert repr(mailbox) == "<Mailbox open=['a']>"
