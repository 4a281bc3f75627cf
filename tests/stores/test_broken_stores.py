"""The contract of stores is strict: a store that is broken in one way fails the rule that it breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from crashing_store import Change

from trio_mcp.stores import Append, Expect, Forget, MemoryStore, Put, Record, Remove, Store, StoreConflict
from trio_mcp.testing.contract import StoreCase, StoreTrait, all_store_rules


class ChangesOneByOne(MemoryStore):
    """Makes the changes of a write before the one that fails."""

    async def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            await super().write([change])


class IgnoresVersions(MemoryStore):
    async def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            made: Change = change
            if isinstance(change, Put):
                found = await self.read(change.record.kind, change.record.key)
                made = Put(change.record._replace(version=0 if found is None else found.version))
            await super().write([made])


class ReadsWhatHasExpired(MemoryStore):
    async def write(self, changes: Sequence[Change]) -> None:
        kept = [Put(each.record._replace(expires_at=1e12)) if isinstance(each, Put) else each for each in changes]
        await super().write(kept)


class ListsInAnyOrder(MemoryStore):
    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        return (await super().list(kind, owner=owner, after=after, limit=limit))[::-1]


class ListsAllOwners(MemoryStore):
    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        return await super().list(kind, after=after, limit=limit)


class ListsAfterARecordOnly(MemoryStore):
    """Finds nothing after a key that no record has."""

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        if after and await self.read(kind, after) is None:
            return []
        return await super().list(kind, owner=owner, after=after, limit=limit)


class KeepsGaps(MemoryStore):
    """Fills a gap of a log with empty entries."""

    async def write(self, changes: Sequence[Change]) -> None:
        for change in changes:
            made: Change = change
            if isinstance(change, Append) and change.first > 1:
                made = change._replace(first=1, entries=[b""] * (change.first - 1) + list(change.entries))
            await super().write([made])


class ForgetsNothing(MemoryStore):
    async def write(self, changes: Sequence[Change]) -> None:
        await super().write([each for each in changes if not isinstance(each, Forget)])


class RemovesAnyVersion(MemoryStore):
    async def write(self, changes: Sequence[Change]) -> None:
        await super().write([each._replace(version=None) if isinstance(each, Remove) else each for each in changes])


class ExpectsNothing(MemoryStore):
    async def write(self, changes: Sequence[Change]) -> None:
        await super().write([each for each in changes if not isinstance(each, Expect)])


class FailsTogether(MemoryStore):
    """A conflict fails what was to be written in the same moment."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0
        self._failed = False

    async def write(self, changes: Sequence[Change]) -> None:
        self._waiting += 1
        try:
            await trio.testing.wait_all_tasks_blocked()
            await super().write(changes)
            if self._failed:
                raise StoreConflict
        except StoreConflict:
            self._failed = self._waiting > 1
            raise
        finally:
            self._waiting -= 1


class BelievesThatAllLive(MemoryStore):
    async def is_alive(self, node: str) -> bool:
        await trio.lowlevel.checkpoint()
        return True


BROKEN: dict[type[MemoryStore], str] = {
    ChangesOneByOne: "a_write_makes_all_its_changes_or_none",
    IgnoresVersions: "a_record_that_is_there_is_not_made_again",
    ReadsWhatHasExpired: "a_record_that_has_expired_is_as_none",
    ListsInAnyOrder: "records_are_listed_in_the_order_of_their_keys",
    ListsAllOwners: "a_list_may_be_that_of_one_owner",
    ListsAfterARecordOnly: "a_list_goes_on_after_a_key_that_is_gone",
    KeepsGaps: "a_gap_makes_what_came_before_unreadable",
    ForgetsNothing: "a_forgotten_log_is_gone",
    RemovesAnyVersion: "a_removal_of_another_version_removes_nothing",
    ExpectsNothing: "a_write_that_expects_another_version_makes_no_change",
    FailsTogether: "a_conflict_fails_no_other_write",
    BelievesThatAllLive: "a_process_lives_from_when_it_has_joined",
}


class BrokenMaker:
    name = "broken"
    traits: frozenset[StoreTrait] = frozenset()

    def __init__(self, kind: type[MemoryStore]) -> None:
        self._kind = kind

    @asynccontextmanager
    async def open(self, place: Path) -> AsyncIterator[Store]:
        yield self._kind()


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_store_fails_the_rule_that_it_breaks(kind: type[MemoryStore], tmp_path: Path) -> None:
    rule = next(rule for rule in all_store_rules() if rule.name == BROKEN[kind])
    with pytest.raises((AssertionError, StoreConflict, ExceptionGroup)):
        StoreCase(rule, BrokenMaker(kind)).run(tmp_path)
