"""Rules about processes whose leases lapse although they have not ended."""

from __future__ import annotations

import signal

import trio

from ....storage import Fenced, Put, Record
from ..expecting import failure
from .cases import Opened, StoreTrait, store_rule
from .child import BLOCKED_SECONDS, NODE, SECOND_NODE
from .processes import other_process


@store_rule(StoreTrait.LEASED)
async def a_frozen_process_is_buried_and_writes_nothing_afterwards(opened: Opened) -> None:
    async with other_process(opened, "write") as lines:
        await lines.next()
        lines.process.send_signal(signal.Signals["SIGSTOP"])
        await opened.check_dead(NODE)
        assert await opened.shared.bury(NODE)
        written = [record.key for record in await opened.store.list("left", limit=1_000_000)]
        lines.process.send_signal(signal.Signals["SIGCONT"])
        while (line := await lines.next()) != "fenced":
            assert f"{int(line):09d}" in written
        # Under another name it goes on.
        assert f"{int(await lines.next()):09d}" not in written
        assert await opened.shared.bury(NODE)
        assert not await opened.shared.bury(SECOND_NODE)


@store_rule(StoreTrait.LEASED)
async def a_buried_process_joins_under_another_name_only(opened: Opened) -> None:
    await opened.check_dead("here")
    await failure(Fenced, opened.store.join("here"))
    await opened.store.join("there")
    await opened.store.write([Put(Record("thing", "a", b""))])


@store_rule(StoreTrait.LEASED)
async def a_process_lives_while_its_event_loop_is_blocked_for_longer_than_a_lease(opened: Opened) -> None:
    async with other_process(opened, "block"):
        for _ in range(20):
            assert not await opened.shared.bury(NODE)
            await trio.sleep(2 * BLOCKED_SECONDS / 20)
