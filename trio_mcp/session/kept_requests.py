"""Requests of a legacy session that a durable store keeps until their answers are in the log of their stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..protocol.jsonrpc import Request
from ..runtime import Outbox
from ..storage import Change, Forget, Put, Record, Remove, StoreConflict
from .batch import BatchReplyTarget, OpenBatch
from .calls.asks_requests import CallByRequests
from .calls.previous_run import PreviousRun
from .calls.services import CallServices
from .envelope import Envelope, Peer
from .recovery.session_record import CallRecord, encoded_record
from .recovery.stored_journal import LOG_KIND, CallLog, Holding, TakenOver, write_held
from .replies import ReplyTarget
from .server import ServerSession

CALL_SECONDS: Final = 86400.0
"""For how long a store keeps what was last written of a call."""


@dataclass(slots=True, eq=False)
class KeptRequest:
    """A request whose answer is owed, and which the next process answers if it is in the store.

    Attributes:
        key: of its record and of its log.
        call: what answers it; None if it had its answer at once.
        log: where its call writes what it does, from when the record may be in the store on; None before.
        record: what the store has of it.
        target: who gets the answer.
        is_left_out: it is not kept: its idempotency key is not this process's any more.
        before: the log in which the call wrote before it was kept.
        holding: says that this process has the session; None if no other one can take it over.
    """

    key: str
    call: CallByRequests | None
    log: CallLog | None = None
    record: Record | None = None
    target: ReplyTarget | None = None
    is_left_out: bool = False
    before: CallLog | None = None
    holding: Holding | None = None

    @property
    def continues_elsewhere(self) -> bool:
        """Whether the next process answers it."""
        return self.call is not None and self.call.continues_elsewhere

    @property
    def may_be_stored(self) -> bool:
        """Whether its record is in the store, or may come there."""
        return self.log is not None and (not self.log.opening or self.log.is_uncertain)

    def opened_log(self, services: CallServices) -> CallLog:
        """Return the log, whose first commit puts the request into the store."""
        if self.log is None:
            assert self.record is not None
            assert self.call is not None
            self.log = log = services.open_log(self.key, CALL_SECONDS, holding=self.holding)
            # The session goes on with it: no repeat may run it beside.
            keyed, memory = self.call.keyed, self.call.memory
            handing_over = () if keyed is None else keyed.handing_over()
            log.opening, log.on_opened = [Put(self.record), *handing_over], self._note_opened
            self.before = None if memory is None else memory.log
            # First, so that a step that begins meanwhile is written after what comes before it.
            self.call.keep_in(log)
        return self.log

    def _note_opened(self) -> None:
        """Note that the request is in the store, and that its idempotency key is over there."""
        if self.call is not None and self.call.keyed is not None:
            self.call.keyed.handed_over()

    def take_back(self) -> None:
        """Let the call write where it did before: the request is not in the store, and will not be."""
        log, self.log = self.log, None
        if log is not None and self.call is not None and self.call.memory is not None and self.call.memory.log is log:
            self.call.memory.log = self.before
            if self.before is not None:
                log.hand_over(self.before)


@dataclass(frozen=True, slots=True)
class LeftCall:
    """A request that an earlier process has not answered."""

    key: str
    record: CallRecord
    run: PreviousRun


def note_requests(
    kept: list[KeptRequest],
    listener: ReplyTarget | OpenBatch | None,
    stream: int,
    owner: str,
    holding: Holding | None = None,
) -> None:
    """Add the requests whose answers are owed and whose calls run, to be put into the store; nothing is written yet.

    Args:
        stream: the number of the stream on which they are owed.
        owner: of the records.
        holding: says that this process has the session; None if no other one can take it over.
    """
    targets = listener.reply_targets if isinstance(listener, OpenBatch) else () if listener is None else (listener,)
    for target in targets:
        call, params = target.work, target.params
        # Before its key is claimed, a request has no call yet.
        if not isinstance(call, CallByRequests) or params is None or any(each.target is target for each in kept):
            continue
        is_batch = isinstance(target, BatchReplyTarget)
        value = encoded_record(
            CallRecord(id=target.request_id, method=call.method, params=params.wire(), stream=stream, batch=is_batch)
        )
        key = secrets.token_urlsafe(16)
        record = Record(LOG_KIND, key, value, owner, time.time() + CALL_SECONDS)
        kept.append(KeptRequest(key, call, record=record, target=target, holding=holding))


async def keep(services: CallServices, kept: Sequence[KeptRequest], *further: Change) -> None:
    """Put requests into the store that are not there yet, with all that their calls have recorded until now.

    A request whose idempotency key is not this process's any more is left out.

    Args:
        further: changes that are made together with the last of it.

    Raises:
        TakenOver: another process has the session.
        StoreError: whatever the store raises; those that are not kept are lost with the process.
    """
    waiting = [request for request in kept if not request.is_left_out]
    if further and not waiting:
        await write_held(services.store, next((request.holding for request in kept), None), further)
    while waiting:
        request = waiting.pop(0)
        try:
            await request.opened_log(services).commit(*(() if waiting else further))
        except TakenOver:
            raise
        except StoreConflict:
            request.take_back()
            request.is_left_out = True
            if further and not waiting:
                await write_held(services.store, request.holding, further)
        except BaseException:
            # Nothing of it is in the store: its steps need not be recorded before they run.
            if not request.may_be_stored:
                request.take_back()
            raise


def resume_requests(
    session: ServerSession,
    outbox: Outbox[Envelope],
    calls: Sequence[LeftCall],
    peer: Peer,
    holding: Holding | None = None,
) -> tuple[ReplyTarget | OpenBatch, list[KeptRequest]]:
    """Serve the requests of one stream that an earlier process has not answered; return what waits for their answers.

    Args:
        outbox: for what is sent about them; it is closed after the last answer.
        peer: who asks for the answers.
        holding: says that this process has the session; None if no other one can take it over.
    """
    services = session.service.calls
    batch = OpenBatch(outbox, owns_outbox=True) if any(call.record.batch for call in calls) else None
    listener: ReplyTarget | OpenBatch | None = batch
    kept: list[KeptRequest] = []
    for left in calls:
        record = left.record
        if batch is not None:
            target: ReplyTarget = batch.reply_target(record.id, session.requests)
        else:
            listener = target = ReplyTarget(record.id, outbox, owns_outbox=True, open_requests=session.requests)
        session.requests.add(target)
        log = services.open_log(left.key, CALL_SECONDS, left.run.logged, holding)
        session.resume(Request(record.id, record.method, record.params), target, peer, left.run, log)
        call = target.work
        kept.append(KeptRequest(left.key, call if isinstance(call, CallByRequests) else None, log, target=target))
    if batch is not None:
        batch.all_read()
    assert listener is not None
    return listener, kept


def removal(keys: Sequence[str]) -> list[Change]:
    """Return what removes these requests from the store."""
    removed: list[Change] = [Remove(LOG_KIND, key) for key in keys]
    return [*removed, *(Forget(LOG_KIND, key) for key in keys)]
