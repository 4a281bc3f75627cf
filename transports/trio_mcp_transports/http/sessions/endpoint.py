"""Streamable HTTP of the legacy era: sessions, and streams that their clients may leave and resume.

Who reads what: a response stream belongs to its POST, a session's standalone stream to a GET, and a GET with a `Last-Event-ID`
takes over the stream of that event, also from another reader. A GET without one opens a standalone stream; while
somebody reads one it gets 409, since nothing tells a reader that is alive from one that is not. Nothing here is 404 while the
session lives: that would tell the client to open another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from trio_mcp.http import HttpLimits
from trio_mcp.protocol.connection import Rejected
from trio_mcp.protocol.http.headers import SESSION_HEADER, VERSION_HEADER
from trio_mcp.protocol.jsonrpc import SERVER_BUSY, Batch, Request
from trio_mcp.protocol.revisions import REVISIONS, SUPPORTED
from trio_mcp.runtime import Account, CancelReason, Outbox
from trio_mcp.session import Envelope, OpenBatch, Peer, Received, ReplyTarget, ServerSession, Service, make_session
from trio_mcp.session.envelope import SESSION_SIZE, STREAM_SIZE
from trio_mcp.session.event_loop import move_to_trio
from trio_mcp.session.kept_requests import CALL_SECONDS
from trio_mcp.storage import EventStore
from trio_mcp.stores import MemoryEventStore
from trio_mcp.stores.adapters import StoredEvents

from ...asgi.access import ALLOW, HttpRejection, check_stream
from ...asgi.exchange import BATCH_STATUS, LEGACY_STATUS, Exchange, rejected
from ...asgi.requests import AuthorizedRequest, check_room
from ...asgi.responses import KnownResponse, OpenResponse, Response
from ...asgi.sessions import ID_LENGTH
from .breaker import Breaker
from .claims import Claims
from .event_log import NOT_KEPT, read_event_id
from .readers import OpenedStream, PostedStream, Readers, ResumedStream
from .sessions import LegacySession, LegacySessions
from .stored import SessionHeld, SessionHome
from .streams import SessionStream

NOT_RECORDED: Final = "The store of this server fails now, and has not recorded this answer. Send it again in a moment."


class LegacyEndpoint:
    """The three verbs of the endpoint, for the sessions of one application.

    Args:
        nursery: owns what goes on without a connection; it is the caller's.
        home: where sessions outlive the process; None if they do not.
    """

    def __init__(
        self,
        service: Service,
        store: EventStore,
        limits: HttpLimits,
        nursery: trio.Nursery,
        home: SessionHome | None = None,
    ) -> None:
        self.sessions = LegacySessions(limits, nursery.start_soon, home)
        self._service = service
        self._store = store
        self._home = home
        self._breaker = Breaker(NOT_KEPT, service.records)
        self._readers = Readers(limits.disconnect_grace, nursery)
        self._claims = None if home is None else Claims(home, self._new_session, self._new_stream, self._readers.leave)

    async def process(self, envelope: Envelope[Received]) -> Response:
        """Process one message of a client, or several, and return the response.

        Raises:
            HttpRejection: 400, 404 or 503, the message is rejected, or belongs to no session.
        """
        message, headers = envelope.message, envelope.peer.headers
        check_version(headers)
        if self._home is not None:
            await move_to_trio()
        # With a session header it is a second handshake in that session, which knows whether it is the same as the first.
        is_handshake = isinstance(message, Request) and message.method == "initialize"
        if is_handshake and SESSION_HEADER not in headers:
            return await self._open_session(envelope)
        if self._may_be_elsewhere(headers):
            with self._service.open_account(envelope.peer) as account:
                account.draw(envelope.size)
                await self._claim(envelope.peer)
        entry = self._find_session(envelope.peer)
        stream = self._new_stream(entry, envelope.peer)
        listener = entry.session.receive(envelope, stream.outbox, owns_outbox=True)
        if isinstance(listener, OpenBatch) and listener.read_more is not None:
            listener = await self._read_rest(entry, listener, stream, envelope)
        response = self._response(entry, listener, stream, message)
        if is_handshake and isinstance(listener, ReplyTarget):
            response.add_headers([(SESSION_HEADER.encode(), entry.id.encode())])
        session, place = entry.session, entry.place
        if place is not None and (session.has_answers or session.changes != place.saved):
            await self._store_first(entry, response)
        return response

    async def _store_first(self, entry: LegacySession, response: Response) -> None:
        """Store what a message has changed, before it is answered.

        Raises:
            HttpRejection: 503, it could not be stored.
        """
        try:
            if entry.session.has_answers and not await entry.session.commit_answers():
                # A client does not resend an acknowledged answer; the next process would wait for it.
                raise HttpRejection(503, NOT_RECORDED, code=SERVER_BUSY)
            if entry.place is not None and entry.session.changes != entry.place.saved:
                await self.sessions.save(entry)
        except BaseException:
            if isinstance(response, OpenResponse):
                response.lose()
            raise

    async def _read_rest(
        self, entry: LegacySession, batch: OpenBatch, stream: SessionStream, envelope: Envelope[Received]
    ) -> OpenBatch | None:
        """Process the rest of a batch in further turns of the event loop; return the batch if it expects a reply.

        Raises:
            HttpRejection: 404, the session has ended meanwhile.
        """
        try:
            with self._service.open_account(envelope.peer) as account:
                account.draw(envelope.size)
                await move_to_trio()
                await batch.read_rest(self._service.turn)
            if entry.ended:
                raise self.sessions.session_over()
        except BaseException:
            stream.retire()
            raise
        return batch if batch.expects_reply else None

    def _response(
        self,
        entry: LegacySession,
        listener: ReplyTarget | OpenBatch | Rejected | None,
        stream: SessionStream,
        message: Received,
    ) -> Response:
        """Return the response to a message that was processed."""
        if isinstance(listener, ReplyTarget) or (isinstance(listener, OpenBatch) and listener.reply_targets):
            stream.serve_request(listener, may_pause=self._readers.grace > 0)
            return PostedStream(self._readers, entry, stream)
        if isinstance(message, Request):
            return rejected(stream.outbox, LEGACY_STATUS)
        if isinstance(message, Batch) and listener is not None:
            return rejected(stream.outbox, BATCH_STATUS)
        stream.retire()
        return KnownResponse(202)

    async def get(self, incoming: AuthorizedRequest) -> Response:
        """Return the stream for what belongs to no request (L-HTTP-10c), or the rest of any stream (L-HTTP-14c)."""
        headers = incoming.peer.headers
        check_version(headers)
        check_stream(headers)
        if SESSION_HEADER not in headers:
            raise HttpRejection(405, "Without a session there is no stream to get: POST a message instead.", [ALLOW])
        entry = await self._found_session(incoming.peer)
        # A stream that is opened during a drain would hold up the end of it. A 503 tells the client to come back.
        self.sessions.quota.check_not_draining()
        last = headers.get("last-event-id")
        response = await (self._resume(entry, last, incoming.peer) if last else self._listen(entry, incoming.peer))
        response.expiry = incoming.expiry
        return response

    async def delete(self, incoming: AuthorizedRequest) -> Response:
        """End a session, and everything that runs in it (L-HTTP-19c)."""
        peer = incoming.peer
        check_version(peer.headers)
        if SESSION_HEADER not in peer.headers:
            raise HttpRejection(405, "There is no session to delete.", [ALLOW])
        entry = await self._found_session(peer)
        place, entry.place = entry.place, None
        self.sessions.end(entry, CancelReason.DISCONNECT)
        if place is not None and self._home is not None:
            # Before the response says that the session has ended.
            await self._home.remove(place)
        return KnownResponse(204)

    # sessions

    async def _open_session(self, envelope: Envelope[Received]) -> Response:
        account = self._service.open_account(envelope.peer)
        self.sessions.make_room(account)
        session = make_session(self._service, shared_channel=False, account=account)
        outbox = self._service.open_outbox(envelope.peer)
        target = session.receive(envelope, outbox, owns_outbox=True)
        # A handshake that was rejected leaves nothing behind: no id, no entry in the table.
        if not session.initialized:
            return rejected(outbox, LEGACY_STATUS)
        account.draw(SESSION_SIZE)
        entry = self.sessions.add(self._new_session(session, envelope.peer.principal, account))
        session.on_over = partial(self.sessions.end, entry, CancelReason.DISCONNECT)
        # A proxy has the answer only when its server has answered.
        response = Exchange(LEGACY_STATUS, outbox)
        if isinstance(target, ReplyTarget) and not target.finished:
            response = HandshakeResponse(self, entry, target, outbox)
        else:
            outbox.close()
        response.add_headers([(SESSION_HEADER.encode(), entry.id.encode())])
        if self._home is not None:
            entry.store_in(self._home, self._home.new_place(entry.id, entry.principal))
            await self._store_session(self._home, entry, response)
        return response

    async def _store_session(self, home: SessionHome, entry: LegacySession, response: OpenResponse) -> None:
        """Store a session before its client learns its id; end it if it cannot be.

        Raises:
            HttpRejection: 503, it cannot.
        """
        try:
            assert entry.place is not None
            await home.open(entry.place, entry.session)
        except BaseException:
            self.sessions.end(entry, CancelReason.DISCONNECT)
            response.finish()
            raise

    def _find_session(self, peer: Peer) -> LegacySession:
        """Return the session that a request names (L-HTTP-18s)."""
        session_id = peer.headers.get(SESSION_HEADER)
        if session_id is None:
            raise HttpRejection(
                400, "The Mcp-Session-Id header is missing: send initialize first and repeat the id it returns."
            )
        return self.sessions.find(session_id, peer.principal)

    # sessions of another process

    def leave_looking(self, looks_for: Callable[[SessionHeld], bool]) -> None:
        """Leave it to who passes requests on to look again for the sessions for which that returns True."""
        if self._claims is not None:
            self._claims.is_looked_for = looks_for

    def _may_be_elsewhere(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request names a session that this process does not have, and the store may."""
        session_id = headers.get(SESSION_HEADER)
        return (
            self._home is not None
            and session_id is not None
            and len(session_id) == ID_LENGTH
            and not self.sessions.knows(session_id)
        )

    async def _claim(self, peer: Peer) -> None:
        """Go on with the session that a request names, if the store has it. Raises as `Claims.take_over` does."""
        assert self._claims is not None
        await self._claims.take_over(peer.headers[SESSION_HEADER], peer, self.sessions)

    async def _found_session(self, peer: Peer) -> LegacySession:
        """Return the session that a request names, also one of an earlier process. Raises as `_find_session` and `_claim` do."""
        if self._may_be_elsewhere(peer.headers):
            await self._claim(peer)
        return self._find_session(peer)

    # streams

    async def _listen(self, entry: LegacySession, peer: Peer) -> OpenResponse:
        """Return a new standalone stream. What the one before had not sent yet moves over."""
        streams = entry.streams
        if not streams.idle:
            raise HttpRejection(
                409, "This session has an open stream already: resume that one with the Last-Event-ID header."
            )
        stream = self._new_stream(entry, peer, STREAM_SIZE)
        # Messages that were posted while no stream was open wait in the old one. They were never logged, so they have
        # no event id.
        for envelope in streams.standalone.retire() if streams.standalone is not None else ():
            stream.outbox.post(envelope)
        streams.standalone = stream
        if entry.place is not None:
            # Before its client learns the id of an event on it.
            stream.assign_number()
            entry.place.standalone = stream.number
            await self.sessions.save(entry)
        return OpenedStream(self._readers, entry, stream)

    async def _resume(self, entry: LegacySession, last: str, peer: Peer) -> OpenResponse:
        """Return what a client missed of a stream, and what follows if it has not ended."""
        event = read_event_id(last)
        number, after = event.stream, entry.streams.known(event)
        # Read first: an id that cannot be resumed takes nothing from a reader.
        events = await self._missed_events(entry, number, after)
        stream = entry.streams.active.get(number) or entry.streams.ended(number, Outbox(1))
        account = self._service.open_account(peer)
        check_room(account, STREAM_SIZE)
        account.draw(STREAM_SIZE)
        return ResumedStream(self._readers, entry, stream, after, events, account)

    async def _missed_events(self, entry: LegacySession, number: int, after: int) -> Sequence[bytes]:
        """The first part of what came after an event, or why there is none; the session may end meanwhile."""
        try:
            events = await entry.streams.read(number, after)
        except HttpRejection:
            if not entry.ended:
                raise
        else:
            if not entry.ended:
                return events
        raise self.sessions.session_over()

    def _new_session(
        self, session: ServerSession, principal: str | None, account: Account, id: str | None = None
    ) -> LegacySession:
        return LegacySession(session, principal, account, self._store, self._breaker, id=id)

    def _new_stream(self, entry: LegacySession, peer: Peer, size: int = 0) -> SessionStream:
        outbox = self._service.open_outbox(peer, size)
        if outbox.account is not None:
            # What a session runs counts for who opened it, on whichever connection it is asked for.
            outbox.account.caller = entry.account.caller
        return SessionStream(
            entry.streams,
            outbox,
            sends_priming_event=entry.session.connection.terms.codec.revision.polling,
        )


class HandshakeResponse(Exchange):
    """The answer to a handshake that is still to come; the session ends if there is none, or it is an error."""

    __slots__ = ("_endpoint", "_entry", "_target")

    def __init__(
        self, endpoint: LegacyEndpoint, entry: LegacySession, target: ReplyTarget, outbox: Outbox[Envelope]
    ) -> None:
        super().__init__(LEGACY_STATUS, outbox)
        self._endpoint = endpoint
        self._entry = entry
        self._target = target

    def finish(self) -> None:
        super().finish()
        if not self._target.finished or not self._entry.session.initialized:
            self._endpoint.sessions.end(self._entry, CancelReason.DISCONNECT)


def check_version(headers: Mapping[str, str]) -> None:
    """L-HTTP-21s: reject an unknown version; without the header a client of an older revision is assumed."""
    version = headers.get(VERSION_HEADER)
    if version is not None and version not in REVISIONS:
        known = ", ".join(SUPPORTED)
        raise HttpRejection(400, f"The protocol version {version[:64]!r} is not supported; there are: {known}.")


# The endpoint of an application, with its sessions and its event log where they outlive the process if they can.


def legacy_endpoint(
    service: Service, store: EventStore | None, limits: HttpLimits, nursery: trio.Nursery
) -> LegacyEndpoint:
    """Return the endpoint of an application, with the event log and the sessions where they outlive the process if they can.

    Args:
        store: the event log; None for that of the service's store, or of this process.
    """
    durable = service.calls.log_store
    if store is None and durable is not None:
        store = StoredEvents(durable, lifetime=CALL_SECONDS)
    elif store is None:
        store = MemoryEventStore(memory=service.options.memory)
    # The sessions of a proxy end with its connections to the server.
    is_kept = service.session_type is None
    home = SessionHome(service, durable, limits.session_idle) if is_kept and durable is not None else None
    endpoint = LegacyEndpoint(service, store, limits, nursery, home)
    if home is not None:
        service.on_session_wanted.append(endpoint.sessions.release_wanted)
        nursery.start_soon(endpoint.sessions.leave_lost, home)
    return endpoint
