"""Keeping the calls of a legacy session in a durable store while their answers are owed, in one write with their events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from trio_mcp.session import OpenBatch, ReplyTarget, Service
from trio_mcp.session.kept_requests import KeptRequest, keep, note_requests, removal
from trio_mcp.session.recovery.stored_journal import TakenOver, write_held
from trio_mcp.storage import Change, Store

from .breaker import Breaker
from .stored import HeldSession

if TYPE_CHECKING:
    from .event_log import EventLog


class StreamKeeper:
    """Keeps the requests of one session in the store while their answers are owed on a stream."""

    __slots__ = ("_breaker", "_holding", "_key", "_service", "_store")

    def __init__(self, service: Service, store: Store, key: str, breaker: Breaker, holding: HeldSession) -> None:
        self._holding = holding
        self._service = service
        self._store = store
        self._key = key
        self._breaker = breaker

    def note_requests(self, kept: list[KeptRequest], listener: ReplyTarget | OpenBatch | None, stream: int) -> None:
        """Add the requests of a stream whose calls run, which `append` puts into the store."""
        note_requests(kept, listener, stream, self._key, self._holding)

    async def append(
        self,
        kept: list[KeptRequest],
        log: EventLog,
        stream: int,
        first: int,
        events: Sequence[bytes],
        *,
        is_last: bool,
    ) -> bool:
        """Log events of a stream, and keep its requests with all that their calls have recorded until now.

        Return whether the events are logged, or need not be.

        With the last events the requests are removed, except for those that the next process answers: where the log is in the
        same store, a request is there exactly as long as its answer is not.

        Args:
            first: the number of the first of these events.
        """
        if log.sealed:
            return True
        # With the session another process has what would be written.
        with suppress(TakenOver):
            if log.is_in(self._store):
                return await self._append(kept, log, stream, first, events, is_last=is_last)
            await self._breaker.run(lambda: keep(self._service.calls, kept))
            return await log.append(stream, first, events, is_last=is_last)
        return True

    async def _append(
        self, kept: list[KeptRequest], log: EventLog, stream: int, first: int, events: Sequence[bytes], *, is_last: bool
    ) -> bool:
        over = [request for request in kept if not request.continues_elsewhere] if is_last else []
        going_on = [request for request in kept if request not in over]
        removed = removal([request.key for request in over if request.may_be_stored])
        changes = [*log.appending(stream, first, events), *removed]
        write = partial(self._write, going_on, changes)
        # Also later, what is to be removed is removed with the answer.
        is_done = await log.written(write, stream, events, self._breaker, is_last=is_last and not going_on)
        if is_done:
            kept[:] = going_on
        return is_done

    async def _write(self, going_on: list[KeptRequest], changes: Sequence[Change]) -> None:
        if going_on:
            await keep(self._service.calls, going_on, *changes)
        elif changes:
            await write_held(self._store, self._holding, changes)

    async def release(self, kept: list[KeptRequest]) -> None:
        """Remove the requests of a stream whose answers are in its log, except for those that the next process answers."""
        over = [request.key for request in kept if request.may_be_stored and not request.continues_elsewhere]
        kept.clear()
        await self._holding.remove_calls(over)
