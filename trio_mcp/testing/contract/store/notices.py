"""Rules about what processes say about themselves, and about the notices that they send each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import trio

from ....storage import MISSED, MOST_NOTICE, Missed, Notice
from ..expecting import failure
from .cases import Opened, StoreTrait, store_rule
from .child import NODE, shown
from .processes import other_process

MANY: Final = 3000
"""Notices that no store keeps for one that does not read them."""


async def until_shown(notices: AsyncIterator[Notice | Missed], wanted: Notice) -> list[Notice | Missed]:
    """Read until a notice comes; return what came before."""
    before: list[Notice | Missed] = []
    async for notice in notices:
        if notice == wanted:
            return before
        before.append(notice)
    raise AssertionError("the notices have ended")


@store_rule(StoreTrait.NOTIFYING)
async def living_processes_are_listed_with_what_they_say_about_themselves(opened: Opened) -> None:
    store = opened.shared
    assert not await store.nodes()
    await store.join("here")
    async with other_process(opened, "write") as lines:
        assert await store.nodes() == {"here": b"", NODE: b""}
        await lines.kill()
        await opened.check_dead(NODE)
        assert set(await store.nodes()) == {"here"}
    await store.join("a/b", bytes(range(256)))
    assert (await store.nodes())["a/b"] == bytes(range(256))


@store_rule(StoreTrait.NOTIFYING)
async def a_notice_reaches_every_process_that_listens(opened: Opened) -> None:
    notice = Notice("changes", bytes(range(256)))
    async with opened.shared.listen() as notices, other_process(opened, "listen") as lines:
        await opened.shared.announce(*notice)
        await opened.shared.announce("end", b"")
        assert not await until_shown(notices, notice)
        assert await lines.next() == shown(notice)
        assert await lines.next() == shown(Notice("end", b""))


@store_rule(StoreTrait.NOTIFYING)
async def a_notice_without_a_listener_is_lost(opened: Opened) -> None:
    await opened.shared.announce("early", b"")
    async with opened.shared.listen() as notices:
        await opened.shared.announce("late", b"")
        assert not await until_shown(notices, Notice("late", b""))


@store_rule(StoreTrait.NOTIFYING)
async def a_listener_that_is_too_slow_learns_that_it_has_missed_some(opened: Opened) -> None:
    async with opened.shared.listen() as notices:
        async with trio.open_nursery() as nursery:
            for number in range(MANY):
                nursery.start_soon(opened.shared.announce, "many", b"%d" % number)
        # A store may also keep them all.
        for _ in range(MANY):
            if await anext(notices) is MISSED:
                return


@store_rule(StoreTrait.NOTIFYING)
async def a_notice_has_a_largest_size(opened: Opened) -> None:
    await failure(ValueError, opened.shared.announce("large", bytes(MOST_NOTICE)))
