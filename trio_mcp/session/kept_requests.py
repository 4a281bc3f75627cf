"""Requests of a legacy session that a durable store keeps until their answers are in the log of their stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ..protocol.jsonrpc import Request
from ..runtime import Outbox
from ..storage import Change, Forget, Put, Record, Remove
from .batch import BatchReplyTarget, OpenBatch
from .calls.asks_requests import CallByRequests
from .calls.call import Call
from .calls.earlier import EarlierRun
from .calls.log import LOG_KIND, CallLog
from .calls.services import CallServices
from .envelope import Envelope, Peer
from .replies import ReplyTarget
from .server import ServerSession
from .snapshot import CallRecord, encoded_record

CALL_SECONDS: Final = 86400.0
"""For how long a store keeps what was last written of a call."""


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """A request in the store.

    Attributes:
        key: of its record and of its log.
        call: what answers it; None if it had its answer at once.
        log: where its call writes what it does; None if it must not run twice.
    """

    key: str
    call: CallByRequests | None
    log: CallLog | None

    @property
    def continues_elsewhere(self) -> bool:
        """Whether the next process answers it."""
        return self.call is not None and self.call.continues_elsewhere


@dataclass(frozen=True, slots=True)
class LeftCall:
    """A request that an earlier process has not answered."""

    key: str
    record: CallRecord
    run: EarlierRun


async def keep_requests(
    services: CallServices[Call], listener: ReplyTarget | OpenBatch | None, stream: int, owner: str
) -> list[KeptRequest]:
    """Put the requests whose answers are owed into the store, and from now on what their calls do.

    Args:
        stream: the number of the stream on which they are owed.
        owner: of the records.

    Raises:
        StoreError: whatever the store raises; those that are not kept are lost with the process.
    """
    targets = listener.reply_targets if isinstance(listener, OpenBatch) else () if listener is None else (listener,)
    kept: list[KeptRequest] = []
    for target in targets:
        call, params = target.work, target.params
        if not isinstance(call, CallByRequests) or params is None:
            continue
        is_batch = isinstance(target, BatchReplyTarget)
        record = CallRecord(
            id=target.request_id, method=call.method, params=params.wire(), stream=stream, batch=is_batch
        )
        key = secrets.token_urlsafe(16)
        kept.append(await keep_call(services, call, key, encoded_record(record), owner))
    return kept


async def keep_call(
    services: CallServices[Call], call: CallByRequests, key: str, record: bytes, owner: str
) -> KeptRequest:
    """Put one request into the store. Raises `StoreError`."""
    changes: list[Change] = [Put(Record(LOG_KIND, key, record, owner, time.time() + CALL_SECONDS))]
    # The session goes on with it: no repeat may run it beside.
    keyed, memory = call.keyed, call.memory
    if keyed is not None and keyed.stored is not None:
        changes += keyed.stored.handing_over()
    if memory is None:
        assert services.log_store is not None
        await services.log_store.write(changes)
        if keyed is not None:
            keyed.stored = None
        return KeptRequest(key, call, None)
    log = services.open_log(key, CALL_SECONDS)
    # First, so that a step that begins meanwhile is written after what comes before it.
    before = memory.log
    call.keep_in(log)
    try:
        await log.commit(*changes)
    except BaseException:
        memory.log = before
        raise
    if keyed is not None:
        keyed.stored = None
    return KeptRequest(key, call, log)


def resume_requests(
    session: ServerSession, outbox: Outbox[Envelope], calls: Sequence[LeftCall], peer: Peer
) -> tuple[ReplyTarget | OpenBatch, list[KeptRequest]]:
    """Serve the requests of one stream that an earlier process has not answered; return what waits for their answers.

    Args:
        outbox: for what is sent about them; it is closed after the last answer.
        peer: who asks for the answers.
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
        log = services.open_log(left.key, CALL_SECONDS, left.run.logged)
        session.resume(Request(record.id, record.method, record.params), target, peer, left.run, log)
        call = target.work
        kept.append(KeptRequest(left.key, call if isinstance(call, CallByRequests) else None, log))
    if batch is not None:
        batch.all_read()
    assert listener is not None
    return listener, kept


def removal(keys: Sequence[str]) -> list[Change]:
    """Return what removes these requests from the store."""
    removed: list[Change] = [Remove(LOG_KIND, key) for key in keys]
    return [*removed, *(Forget(LOG_KIND, key) for key in keys)]
