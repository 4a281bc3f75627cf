"""The log of a call in a durable store: its journal, entry by entry, so that a crash loses nothing that the call went on from.

A step writes an *intent* before it runs and its result afterwards, and the body goes on when the result is committed. A question
is in the log before it is sent, an answer before it is acknowledged. What is not committed by then is written with the next
thing that is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol, cast

import trio

from ...base.logs import RepeatedRecords
from ...errors import without_traceback
from ...protocol.jsonrpc import RequestId
from ...protocol.strict_json import dumps
from ...runtime import EntryKind, JournalEntry
from ...storage import Append, Change, Fenced, Store, StoreConflict, StoreError, may_be_made
from ...types import JsonValue

# The log of a call that runs a step, asks, and is in its second step when the process ends:
#
#     intent :charge         committed, then the step runs
#     step   :charge         committed, then the body goes on
#     asked  elicit-1        committed, then the request 7 is sent
#     answer elicit-1        committed, then the client's 202
#     intent :ship           committed, then the step runs
#
# Every write names what this process owns (`Holding`), so that it is a conflict once another process has taken the call over,
# because it assumed that this one was dead, or because the client went there. The step whose intent that was does not run, and
# nothing of this run gets into the log of the other one. The call ends here.
#
# The record of a call is written together with the first entries of its log, by the first code that writes any. If it is unknown
# whether the record was made, the next commit makes it: a conflict then shows that it exists. So every step that runs here is in
# the log when another process finds the record.
#
# A replay has the result of `charge` and the answer. `ship` may have run or not. So the call ends with an error for this case, or
# runs it again if its tool may run twice. A step that raised (`failed`), or that its body cancelled, was not done.


LOG_KIND: Final = "call"
"""The kind of the logs, and of the records of calls, in a store."""

JOURNAL_KIND: Final = "journal"
"""The kind of the records of journals that are too large to travel."""

COMMIT_SECONDS: Final = 6.0
"""How long the store may take to keep what a call has done, before the call goes on: longer than it may take for one write, whose
error says more."""

NOT_COMMITTED: Final = (
    "the store did not keep what a call has recorded; the call goes on, and may be lost with the process"
)


TAKEN_OVER: Final = "this goes on in another process, which has taken it over"


class TakenOver(StoreConflict):
    """Another process has taken over the call whose log was to be written; nothing was."""


class Holding(Protocol):
    """Proof that this process runs a call: a record whose version changes when another process takes the call over."""

    __slots__ = ()

    def held(self) -> Sequence[Change]:
        """Return the changes that are a conflict once another process has it."""
        ...

    def kept(self, changes: Sequence[Change]) -> None:  # noqa: ARG002
        """Note that these changes, which `held` returned, were made. Does nothing here: most records stay as they are."""
        return

    async def renew(self) -> bool:
        """Look it up after a conflict; return False if another process has it. Raises `StoreError`."""
        ...

    def lost(self) -> None:
        """End the call, which goes on in another process."""


async def write_held(store: Store, holding: Holding | None, changes: Sequence[Change]) -> None:
    """Write changes to what this process has, if it still has it.

    Args:
        holding: says that it has it; None if no other process can take it over.

    Raises:
        TakenOver: another process has it; `Holding.lost` was called.
        StoreError: whatever the store raises.
    """
    if holding is None:
        await store.write(changes)
        return
    conflict: StoreConflict | None = None
    held: Sequence[Change] = ()
    # Until the conflict is that of another record.
    while conflict is None or holding.held() != held:
        held = holding.held()
        try:
            await store.write([*held, *changes])
        except StoreConflict as error:
            conflict = without_traceback(error)
        else:
            holding.kept(held)
            return
        if not await holding.renew():
            holding.lost()
            raise TakenOver(TAKEN_OVER)
    raise conflict


class CallLog:
    """Writes the log of one call.

    Args:
        key: of the log; the name of the call.
        expires_at: returns when a log that is written now expires, in Unix seconds.
        records: counts how often the store failed.
        count: entries that are in it already.
        holding: says that this process runs the call; None if no other one can take it over.

    Attributes:
        opening: the changes that are made with the first commit: they make the record of the call, under the same key.
        on_opened: called when they are made.
        is_uncertain: a write is running, or its outcome is unknown.
    """

    __slots__ = (
        "_closed",
        "_count",
        "_lock",
        "_pending",
        "_records",
        "_store",
        "expires_at",
        "holding",
        "is_uncertain",
        "key",
        "on_opened",
        "opening",
    )

    def __init__(
        self,
        store: Store,
        key: str,
        expires_at: Callable[[], float],
        records: RepeatedRecords,
        count: int = 0,
        holding: Holding | None = None,
    ) -> None:
        self.key = key
        self._records = records
        self._store = store
        self.expires_at = expires_at
        self._count = count
        self.holding = holding
        self._pending: list[bytes] = []
        self._closed = False
        self._lock = trio.Lock()
        self.opening: Sequence[Change] = ()
        self.on_opened: Callable[[], None] = lambda: None
        self.is_uncertain = False

    def add(self, *entries: JournalEntry) -> None:
        """Add entries, which the next `commit` writes."""
        if not self._closed:
            self._pending += [encoded_entry(entry) for entry in entries]

    def hand_over(self, other: CallLog) -> None:
        """Let another log write what was not written here, and nothing more be written here."""
        if not other._closed:
            other._pending += self._pending
        self.close()

    def close(self) -> None:
        """Write nothing more: the call goes on elsewhere. What is about to be done here raises `StoreError`."""
        self._closed = True
        self._pending.clear()

    async def commit(self, *further: Change) -> None:
        """Return when everything that was added before is in the store.

        A cancel, or a failure, leaves what was not written to the next commit.

        Args:
            further: changes that are made together with it.

        Raises:
            StoreError: whatever the store raises.
        """
        wanted = self._count + len(self._pending)
        async with self._lock:
            # Another lane may have written it while this one waited.
            if wanted <= self._count and not further and not self.opening:
                return
            conflict: StoreConflict | None = None
            try:
                await self._write(further)
            except TakenOver:
                raise
            except StoreConflict as error:
                conflict = without_traceback(error)
            if conflict is not None:
                if not await self._was_opened():
                    raise conflict
                await self._write(further)

    async def _write(self, further: Sequence[Change]) -> None:
        entries = tuple(self._pending)
        appended = [Append(LOG_KIND, self.key, self._count + 1, entries, self.expires_at())] if entries else []
        was_uncertain, self.is_uncertain = self.is_uncertain, True
        try:
            await self._write_held([*self.opening, *appended, *further])
        except BaseException as error:
            self.is_uncertain = was_uncertain or may_be_made(error)
            raise
        self._settle()
        del self._pending[: len(entries)]
        self._count += len(entries)

    async def _was_opened(self) -> bool:
        """Return whether a commit that was given up has made the record; then the next one does not make it again."""
        if not self.opening:
            return False
        if await self._store.read(LOG_KIND, self.key) is None:
            # Nor will it be: the store has refused a later write.
            self.is_uncertain = False
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        """Note that everything that was ever written is in the store."""
        self.is_uncertain = False
        if self.opening:
            self.opening = ()
            self.on_opened()

    def held(self) -> Sequence[Change]:
        """Return the changes that are a conflict once another process runs the call, for a write that is made elsewhere."""
        return () if self.holding is None else self.holding.held()

    async def check_held(self) -> None:
        """Look up after a conflict whether this process still runs the call. Raises `TakenOver`, or what the store raises."""
        if self.holding is not None and not await self.holding.renew():
            self.holding.lost()
            self.close()
            raise TakenOver(TAKEN_OVER)

    async def _write_held(self, changes: Sequence[Change]) -> None:
        """Write changes, if this process still runs the call. Raises `TakenOver`, or whatever the store raises."""
        try:
            await write_held(self._store, self.holding, changes)
        except TakenOver:
            self.close()
            raise

    async def commit_in_time(self) -> None:
        """Commit. Raises `StoreError`, also if it takes longer than `COMMIT_SECONDS`, and once it is closed."""
        if self._closed:
            raise StoreError("this call was handed over to another process or a task")
        with trio.move_on_after(COMMIT_SECONDS) as scope:
            await self.commit()
        if scope.cancelled_caught:
            raise StoreError(f"the store did not keep what a call is about to do within {COMMIT_SECONDS:g} seconds")

    async def commit_or_report(self, *further: Change) -> bool:
        """Commit, also while the caller is cancelled; log a store that fails, or takes longer than `COMMIT_SECONDS`.

        Args:
            further: changes that are made together with it.

        Returns:
            whether it is committed.
        """
        with trio.CancelScope(shield=True):
            try:
                with trio.fail_after(COMMIT_SECONDS):
                    await self.commit(*further)
            except (TakenOver, Fenced):
                # The call ends.
                return False
            except Exception as error:  # noqa: BLE001  whatever a store raises
                self._records.log(NOT_COMMITTED, level=logging.ERROR, exc_info=error)
                return False
        return True

    def __repr__(self) -> str:
        return f"<CallLog {self._count} and {len(self._pending)} to write>"


def intent(step: str) -> JournalEntry:
    """Return the entry for a step that is about to run."""
    return JournalEntry(EntryKind.INTENT, step, None)


def encoded_entry(entry: JournalEntry) -> bytes:
    return dumps([entry.kind.value, entry.name, entry.digest, cast("JsonValue", entry.value)])


def decoded_entry(data: bytes) -> JournalEntry:
    """Read what `encoded_entry` wrote. Raises `ValueError` or `TypeError` for anything else."""
    kind, name, mark, value = cast("tuple[str, str, str, JsonValue]", json.loads(data))
    return JournalEntry(EntryKind(kind), name, value, mark)


def asked_entry(key: str, fingerprint: str, request_id: RequestId, method: str, *, in_turn: bool) -> JournalEntry:
    """Return the entry for a question that is sent as a request."""
    return JournalEntry(EntryKind.ASKED, key, [request_id, method, in_turn], fingerprint)
