"""Legacy sessions in a durable store, so that they outlive the process that opened them."""

# Who has a session, by its record:
#
#     event                                  the record
#     initialize                             put, with this process as its node, in epoch 0
#     what the client changes of it          put again
#     the process ends                       stays
#     a request names it in another process  if its node is dead: put again with the new node, in the next epoch; else the node is
#                                            asked to release it, and until it has, 503
#     it cannot be restored there            put again without a node; until that is done, requests get 503 there
#     it is released: no request of it runs  put again without a node
#     and another process asks for it, or
#     serves in place of this one
#     DELETE, or nothing for too long        removed
#
# Each put names the version that it replaces. So of two processes that claim a session one has it, and one that is thought dead
# and is not finds out with its next put: its session is ended there, and nothing in the store is touched.
#
# Ids of a later epoch begin where no earlier one has come to: those of streams, and those of requests to the client. The ids of
# events name the epoch, since an earlier process may have sent events that its store did not keep, under numbers that others get
# later (`continued`).

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from trio_mcp.base.logs import RepeatedRecords
from trio_mcp.errors import LimitExceeded
from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.runtime import Account
from trio_mcp.session import Peer, ServerSession, Service
from trio_mcp.session.calls.previous_run import UNREADABLE_CALL, left_run
from trio_mcp.session.changes import SESSION_TOPIC, wanted
from trio_mcp.session.kept_requests import LeftCall, removal
from trio_mcp.session.recovery.session_record import (
    CallRecord,
    ContinuedStream,
    SessionSnapshot,
    StoredSession,
    decoded_record,
    encoded_record,
)
from trio_mcp.session.recovery.stored_journal import LOG_KIND, TakenOver, write_held
from trio_mcp.storage import Change, Expect, Put, Record, Remove, SharedStore, Store, StoreConflict, UnreadableRecord

from ...asgi.access import HttpRejection
from ...asgi.authentication import log_failures
from .breaker import Breaker
from .unknown import UnknownSessions

if TYPE_CHECKING:
    pass

SESSION_KIND: Final = "session"
"""The kind of the records of sessions."""

EPOCH_IDS: Final = 1_000_000
"""Ids of streams, and of requests to the client, that each epoch has."""

NOT_KEPT: Final = "the store did not keep a session or a call, which would not survive the end of the process"
UNREADABLE: Final = "a stored session cannot be read, and is unknown from now on"
TAKEN: Final = "a session was taken over by another process, and ends here"

NOT_READ: Final = "the store did not give back a session"
NOT_ASKED: Final = "another process could not be asked for a session"

GIVE_BACK_SECONDS: Final = 1.0
"""How long a request waits until a session is given back that cannot be restored."""

GIVE_BACK_ATTEMPTS: Final = 3

OPEN_SECONDS: Final = 6.0
"""How long the store may take to keep a new session: longer than the store waits, whose error says more."""

CLAIM_SECONDS: Final = 6.0
"""How long the store may take to give back a session with its calls."""

MAX_CONTINUED: Final = 1000
"""How often it is remembered that a process went on with a stream; the oldest are forgotten."""

PAGE: Final = 100
"""Records that are read at once."""


@dataclass(slots=True, eq=False)
class SessionPlace:
    """Where a session is in the store.

    Attributes:
        version: of its record; 0 before the first.
        saved: the changes of the session that the record has.
        touched: when it was last put, on Trio's clock (seconds).
        standalone: the number of the stream for what belongs to no request; 0 without one.
        continued: see `StoredSession`.
        may_be_stored: the store was asked to keep it.
    """

    key: str
    principal: str | None
    epoch: int = 0
    version: int = 0
    may_be_stored: bool = False
    saved: int = 0
    touched: float = field(default_factory=trio.current_time)
    standalone: int = 0
    continued: list[ContinuedStream] = field(default_factory=list[ContinuedStream])
    lock: trio.Lock = field(default_factory=trio.Lock)


@dataclass(frozen=True, slots=True)
class LeftSession:
    """A session of an earlier process, which belongs to this one now."""

    stored: StoredSession
    place: SessionPlace
    calls: Sequence[LeftCall]
    before: StoredSession
    """As the earlier process left it."""


class SessionHeld(HttpRejection):
    """A request names a session that another process has, or is taking over.

    Attributes:
        node: the process that has it; None if it is being taken over.
    """

    node: str | None = None


class SessionHome:
    """The sessions of one application in its store.

    Args:
        idle: seconds after which an idle session ends.
    """

    def __init__(self, service: Service, store: Store, idle: float) -> None:
        self.service = service
        self.store = store
        self._idle = idle
        self._records: RepeatedRecords = service.records
        self.breaker = Breaker(NOT_KEPT, service.records)
        self._unknown = UnknownSessions()
        self._removing: set[str] = set()
        """The keys of sessions that have ended here, and are in the store until it has removed them."""
        self._giving_back: set[str] = set()
        """The keys of sessions that were released, or claimed and not restored, until the store has them without this process. A
        claim before that would be taken for the one that is to be given back."""

    def open_account(self, peer: Peer) -> Account:
        """Open an account for a session."""
        return self.service.open_account(peer)

    def new_place(self, session_id: str, principal: str | None) -> SessionPlace:
        """Return the place of a session that is not stored yet."""
        return SessionPlace(session_key(session_id), principal)

    # sessions of this process

    async def open(self, place: SessionPlace, session: ServerSession) -> None:
        """Store a new session, before its client learns of it.

        Raises:
            HttpRejection: 503, the store does not keep it.
        """
        self._check_settled(place.principal)
        # The client waits for it: a store that is slow opens sessions, too.
        is_kept = False
        with log_failures(NOT_KEPT, self._records):
            with trio.fail_after(OPEN_SECONDS):
                await self._put(place, session)
            is_kept = True
        if not is_kept:
            raise HttpRejection(503, "The server cannot keep a session now. Try again in a moment.", code=SERVER_BUSY)

    def _check_settled(self, principal: str | None) -> None:
        """Raise `HttpRejection` if a session may not be opened that the store would have to remove once more."""
        try:
            self.service.calls.settling.check_room(principal)
        except LimitExceeded as error:
            raise HttpRejection(503, str(error), code=SERVER_BUSY) from None

    async def save(self, place: SessionPlace, session: ServerSession) -> bool:
        """Store what has changed of a session, and for how long it lives. False if another process has taken it over."""
        try:
            await self.breaker.run(lambda: self._put(place, session))
        except StoreConflict:
            self._records.log(TAKEN)
            return False
        return True

    async def note_continued(self, place: SessionPlace, session: ServerSession, last: Mapping[int, int]) -> None:
        """Store which streams this process goes on with, before it does. Raises whatever the store raises.

        Args:
            last: the newest event of each that is known.
        """
        if last:
            place.continued += [ContinuedStream(stream, place.epoch, known) for stream, known in last.items()]
            del place.continued[:-MAX_CONTINUED]
            await self._put(place, session)

    async def remove(self, place: SessionPlace) -> None:
        """Remove a session and its calls, soon if the store fails now. Done although all else is cancelled."""
        if not place.may_be_stored:
            return
        self._removing.add(place.key)
        with trio.CancelScope(shield=True):
            await self._remove_soon(place, partial(self._remove, place))

    async def remove_calls(self, place: SessionPlace, keys: Sequence[str]) -> None:
        """Remove requests of a session that have their answers, soon if the store fails now, also after a cancel."""
        if keys:
            await self._remove_soon(place, partial(write_held, self.store, HeldSession(self, place), removal(keys)))

    async def _remove_soon(self, place: SessionPlace, remove: Callable[[], Awaitable[None]]) -> None:
        is_done = False
        try:
            is_done = await self.breaker.run(remove)
        except StoreConflict:
            # Another process has the session, and requests with the same keys.
            is_done = True
        finally:
            if not is_done:
                self.service.calls.settling.begin(remove, place.principal)

    async def release(self, place: SessionPlace, snapshot: SessionSnapshot) -> None:
        """Let any process take over a session that was left here, as `give_back` does.

        Args:
            snapshot: of the session.
        """
        stored = self._stored(place, snapshot)
        await self.give_back(LeftSession(stored, place, [], stored))

    async def ask_for(self, session_id: str, node: str) -> None:
        """Ask the process that has a session to release it, as far as the store has notices. If it fails, that is logged."""
        if isinstance(self.store, SharedStore):
            with log_failures(NOT_ASKED, self._records):
                await self.store.announce(SESSION_TOPIC, wanted(node, session_key(session_id)))

    def _stored(self, place: SessionPlace, snapshot: SessionSnapshot) -> StoredSession:
        return StoredSession(
            principal=place.principal,
            node=self.service.calls.node,
            epoch=place.epoch,
            standalone=place.standalone,
            snapshot=snapshot,
            continued=place.continued,
        )

    async def _put(self, place: SessionPlace, session: ServerSession) -> None:
        async with place.lock:
            changes = session.changes
            place.may_be_stored = True
            await self._write(place, self._stored(place, session.snapshot()))
            place.saved = changes
            place.touched = trio.current_time()

    async def _write(self, place: SessionPlace, stored: StoredSession) -> None:
        """Put a record; the place is locked. Raises what the store raises."""
        try:
            await self.store.write([Put(self._record(place, stored))])
        except StoreConflict:
            # A write that was given up may have been made.
            place.version = await self._version_in_store(place)
            await self.store.write([Put(self._record(place, stored))])
        place.version += 1

    async def catch_up(self, place: SessionPlace) -> bool:
        """Take the version of the record from the store; return False if another process has put it. Raises `StoreError`."""
        known = place.version
        async with place.lock:
            # Put meanwhile: then it is known.
            if place.version == known:
                try:
                    place.version = await self._version_in_store(place)
                except (StoreConflict, UnreadableRecord, ValueError):
                    return False
        return True

    async def has_lost(self, place: SessionPlace) -> bool:
        """Return whether another process has a session; False if the store does not say."""
        with log_failures(NOT_READ, self._records):
            return not await self.catch_up(place)
        return False

    async def _version_in_store(self, place: SessionPlace) -> int:
        """Return the version of the record, which this process has put. Raises `StoreConflict` if another one has."""
        record = await self.store.read(SESSION_KIND, place.key)
        if record is not None:
            stored = decoded_record(StoredSession, record.value)
            if (stored.node, stored.epoch) == (self.service.calls.node, place.epoch):
                return record.version
        raise StoreConflict("the session belongs to another process, or was removed")

    async def _remove(self, place: SessionPlace) -> None:
        keys = [record.key for record in await self._calls_of(place.key)]
        # What another process has is not removed, nor what is gone already.
        with suppress(TakenOver):
            await write_held(self.store, HeldSession(self, place), [Remove(SESSION_KIND, place.key), *removal(keys)])
        self._removing.discard(place.key)

    def _record(self, place: SessionPlace, stored: StoredSession) -> Record:
        # A session lives for at most 1.25 times the timeout, and is put again at every quarter of it.
        expires_at = time.time() + 1.5 * self._idle
        return Record(SESSION_KIND, place.key, encoded_record(stored), "", expires_at, place.version)

    async def _calls_of(self, key: str) -> Sequence[Record]:
        """Return the records of the calls of a session."""
        records: list[Record] = []
        while page := await self.store.list(LOG_KIND, owner=key, after=records[-1].key if records else "", limit=PAGE):
            records += page
        return records

    # sessions of others

    async def claim(self, session_id: str, principal: str | None, make_room: Callable[[], None]) -> LeftSession | None:
        """Take over a session of an earlier process; None if there is none of this id and owner.

        Args:
            make_room: called when there is one, before it is taken over. Raises `HttpRejection`.

        Raises:
            HttpRejection: 503, its process is alive, or another one is taking it over, or the store fails.
        """
        try:
            with trio.fail_after(CLAIM_SECONDS):
                return await self._claim(session_key(session_id), principal, make_room)
        except HttpRejection:
            raise
        except (ValueError, UnreadableRecord) as error:
            self._records.log(UNREADABLE, level=logging.ERROR, exc_info=error)
            return None
        except StoreConflict:
            raise self.busy() from None
        except Exception as error:  # noqa: BLE001  whatever a store raises
            self._records.log(NOT_READ, level=logging.ERROR, exc_info=error)
            text = "The store of this server cannot give back the session now. Try again in a moment."
            raise HttpRejection(503, text, code=SERVER_BUSY) from None

    async def _claim(self, key: str, principal: str | None, make_room: Callable[[], None]) -> LeftSession | None:
        if self._unknown.has(key, principal):
            return None
        record = await self.store.read(SESSION_KIND, key)
        if record is None or key in self._removing:
            self._unknown.add(key, principal)
            return None
        left = decoded_record(StoredSession, record.value)
        if left.principal != principal:
            self._unknown.add(key, principal)
            return None
        if key in self._giving_back:
            raise self.busy()
        if left.node != self.service.calls.node and await self.store.is_alive(left.node):
            raise self.busy(left.node)
        place = SessionPlace(key, principal, left.epoch + 1, record.version, standalone=left.standalone)
        place.continued += left.continued
        first = place.epoch * EPOCH_IDS + 1
        snapshot = left.snapshot.model_copy(update={"next_request_id": first})
        stored = left.model_copy(update={"node": self.service.calls.node, "epoch": place.epoch, "snapshot": snapshot})
        make_room()
        claimed = LeftSession(stored, place, [], left)
        place.may_be_stored = True
        try:
            await self.store.write([Put(self._record(place, stored))])
            place.version += 1
            left_calls = [await self._left_call(each) for each in await self._calls_of(key)]
        except StoreConflict:
            raise
        except BaseException:
            await self.give_back(claimed)  # noqa: ASYNC102  it has a shield and a time limit
            raise
        return replace(claimed, calls=[call for call in left_calls if call is not None])

    async def give_back(self, left: LeftSession) -> None:
        """Let any process take over a session that was claimed, or may have been, and is not, or no longer, restored here.

        Done although all else is cancelled, and soon if the store fails now. Until then this process does not claim it again.
        """
        self._giving_back.add(left.place.key)
        settling = self.service.calls.settling
        await settling.settle(partial(self._give_back, left), left.place.principal, GIVE_BACK_SECONDS)

    async def _give_back(self, left: LeftSession) -> None:
        await self._put_back(left.place, left.before)
        self._giving_back.discard(left.place.key)

    async def _put_back(self, place: SessionPlace, before: StoredSession) -> None:
        given = before.model_copy(update={"node": "", "epoch": place.epoch})
        ours, others = (self.service.calls.node, place.epoch), (before.node, before.epoch)
        # A claim that is made late is made before the write that would give back what it has not changed yet.
        for _ in range(GIVE_BACK_ATTEMPTS):
            record = await self.store.read(SESSION_KIND, place.key)
            if record is None:
                return
            found = decoded_record(StoredSession, record.value)
            if (found.node, found.epoch) not in (ours, others):
                return
            with suppress(StoreConflict):
                await self.store.write([Put(self._record(replace(place, version=record.version), given))])
                return

    async def _left_call(self, record: Record) -> LeftCall | None:
        """Return a request of the session with what its call has left; None if nothing is known of it. The others go on."""
        try:
            call = decoded_record(CallRecord, record.value)
        except ValueError as error:
            self._records.log(UNREADABLE_CALL, level=logging.ERROR, exc_info=error)
            return None
        return LeftCall(record.key, call, await left_run(self.store, record.key, self._records))

    def busy(self, node: str | None = None) -> SessionHeld:
        """Return the rejection of a request for a session that cannot be had now. Args: see `SessionHeld`."""
        text = "This session is held by another process of the server. Try again in a moment."
        held = SessionHeld(503, text, code=SERVER_BUSY)
        held.node = node
        return held


@dataclass(frozen=True, slots=True)
class HeldSession:
    """Says that this process has a session, and runs its calls (`Holding`).

    Args:
        on_lost: called when another process has it.
    """

    _home: SessionHome
    _place: SessionPlace
    _on_lost: Callable[[], None] = lambda: None

    def held(self) -> Sequence[Change]:
        place = self._place
        return [Expect(SESSION_KIND, place.key, place.version)] if place.version else []

    def kept(self, changes: Sequence[Change]) -> None:
        """Nothing: the record stays as it is."""

    async def renew(self) -> bool:
        return await self._home.catch_up(self._place)

    def lost(self) -> None:
        self._on_lost()

    async def remove_calls(self, keys: Sequence[str]) -> None:
        """Remove requests that have their answers, as `SessionHome.remove_calls` does."""
        await self._home.remove_calls(self._place, keys)


def session_key(session_id: str) -> str:
    """Return the key of a session in a store. An id may be all that protects a session, so that it is not the key."""
    return hashlib.sha256(session_id.encode()).hexdigest()[:40]
