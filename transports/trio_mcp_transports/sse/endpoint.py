"""HTTP+SSE of 2024-11-05 (L-HTTP-22), for clients that know nothing newer: a GET opens a stream, and with it a session.

The first event names the URI that the session's messages are posted to; everything that is said in the session is an event of
its stream, answers too. So the stream is what a pipe is elsewhere: its end is the end of the session, everything that runs for it
is cancelled, and there is nothing to come back for. Ids are shared, and each message may be of any revision.

There is no reader task: who serves a POST passes its message to the session, and who serves the GET writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import parse_qs, quote

import trio

from trio_mcp.base.shared_limits import SSE_STREAMS
from trio_mcp.http import HttpLimits
from trio_mcp.protocol.http.sse import encode_event
from trio_mcp.protocol.jsonrpc import Batch, Malformed, Request
from trio_mcp.runtime import Account, CancelReason, Outbox
from trio_mcp.session import Envelope, OpenBatch, Peer, Received, Service, make_session
from trio_mcp.session.envelope import SESSION_SIZE, STREAM_SIZE

from ..asgi.access import HttpRejection, check_content, check_stream
from ..asgi.exchange import LEGACY_STATUS, Exchange
from ..asgi.requests import AuthorizedRequest, check_room
from ..asgi.responses import KnownResponse, Response, StreamPart, rejection_of
from ..asgi.sessions import HttpQuota, OpenSession, SessionTable

ReadMessage: TypeAlias = Callable[[AuthorizedRequest, Account], Awaitable[Envelope[Received]]]

UNUSED_TIMEOUT: Final = 60.0
"""Seconds after which a stream ends on which nothing was ever posted."""

FULL_OUTBOX_TIMEOUT: Final = 10.0
"""How long a request waits for its client to read the answers before; the guard cuts a reader that is stuck after as long."""


class SseStream(Exchange):
    """The response that carries a session's stream.

    Args:
        on_over: called at its end.

    Attributes:
        used: something was posted.
        first: what it begins with.
    """

    __slots__ = ("_on_over", "_opened_at", "first", "used")

    def __init__(self, outbox: Outbox[Envelope], on_over: Callable[[], None]) -> None:
        super().__init__(LEGACY_STATUS, outbox)
        self.used = False
        self.first = b""
        self._on_over = on_over
        self._opened_at = trio.current_time()

    @property
    def is_ready(self) -> bool:
        # Its client waits for the first event, whatever there is to say.
        return not self._opened or super().is_ready

    def take_known(self) -> KnownResponse | None:
        return None

    def take_part(self) -> StreamPart | None:
        return super().take_part() if self._opened else self._part(self.first)

    def take_filler(self) -> StreamPart | None:
        if not self.used and trio.current_time() - self._opened_at >= UNUSED_TIMEOUT:
            self.is_ending = True
            return self.take_part()
        return super().take_filler()

    def finish(self) -> None:
        super().finish()
        self._on_over()


class SseSession(OpenSession):
    """One session, and the stream that carries it."""

    __slots__ = ("stream",)

    def __init__(self, service: Service, peer: Peer, on_over: Callable[[SseSession], None]) -> None:
        account = service.open_account(peer)
        check_room(account, SESSION_SIZE)
        account.draw(SESSION_SIZE)
        super().__init__(make_session(service, account=account), peer.principal, account)
        self.stream = SseStream(service.open_outbox(peer, STREAM_SIZE), partial(on_over, self))
        self.session.attach(self.stream.outbox)

    def close_streams(self) -> None:
        self.stream.outbox.close()


class SseEndpoint:
    """The two ends of the sessions of one application.

    Args:
        message_path: where the messages are posted.
        read_message: reads the message that is posted.
    """

    def __init__(self, service: Service, limits: HttpLimits, message_path: str, read_message: ReadMessage) -> None:
        quota = HttpQuota(SSE_STREAMS, limits.sessions, limits.per_principal)
        self.sessions: SessionTable[SseSession] = SessionTable(quota, "open another stream.")
        self._service = service
        self._message_path = message_path
        self._read_message = read_message

    async def get(self, incoming: AuthorizedRequest) -> Response:
        """Open a session, and return its stream, whose end is the end of the session."""
        check_stream(incoming.peer.headers)
        self.sessions.quota.admit(self._service.open_account(incoming.peer))
        entry = self.sessions.add(SseSession(self._service, incoming.peer, self._end))
        entry.session.on_over = partial(self._end, entry)
        uri = f"{quote(incoming.request.root)}{self._message_path}?session_id={entry.id}"
        entry.stream.first = encode_event(uri.encode("ascii"), event=b"endpoint")
        entry.stream.expiry = incoming.expiry
        return entry.stream

    def _end(self, entry: SseSession) -> None:
        self.sessions.end(entry, CancelReason.DISCONNECT)

    async def post(self, incoming: AuthorizedRequest) -> Response:
        """Take one message. Its answer goes to the stream; only invalid messages are answered here."""
        check_content(incoming.peer.headers)
        entry = self._find_session(incoming)
        with self._service.open_account(incoming.peer) as account:
            envelope = await self._read_message(incoming, account)
            message = envelope.message
            if isinstance(message, Malformed) and not isinstance(message, Batch):
                return rejection_of(message.error)
            await self._wait_for_room(entry, message)
        # A call draws what it keeps of the message from a separate account.
        entry.stream.used = True
        taken = entry.session.receive(envelope, entry.stream.outbox)
        if isinstance(taken, OpenBatch):
            await taken.read_rest(self._service.turn)
        return KnownResponse(202)

    # one step each

    def _find_session(self, incoming: AuthorizedRequest) -> SseSession:
        """Return the session that a message is posted to."""
        session_id = session_id_in_query(incoming.request.query)
        if session_id is None:
            raise HttpRejection(400, "The URI names no session: post to the one that the event `endpoint` gave.")
        return self.sessions.find(session_id, incoming.peer.principal)

    async def _wait_for_room(self, entry: SseSession, message: Received) -> None:
        """A client that does not read its answers asks nothing more; what needs no answer, a cancellation say, still comes in.

        Raises:
            HttpRejection: 503, there was no room in time; 404, the session has ended meanwhile.
        """
        # A cancellation is let in even then: it is what makes room.
        if isinstance(message, Request | Batch) and entry.stream.outbox.is_full:
            with trio.move_on_after(FULL_OUTBOX_TIMEOUT) as waiting:
                await entry.stream.outbox.wait_not_full()
            if waiting.cancelled_caught:
                raise rejected(message, HttpRejection(503, "Too many answers wait in the stream: read them first."))
        if entry.ended:
            raise rejected(message, self.sessions.session_over())


def rejected(message: Received, rejection: HttpRejection) -> HttpRejection:
    """Return the rejection with the id of the message."""
    rejection.request_id = message.id if isinstance(message, Request) else None
    return rejection


def session_id_in_query(query: str) -> str | None:
    """The id in a query; None when there is not exactly one."""
    try:
        named: Mapping[str, list[str]] = parse_qs(query.encode("latin-1").decode("ascii"), max_num_fields=16)
    # Other bytes than ASCII, or more than 16 fields.
    except ValueError:
        return None
    ids = named.get("session_id", [])
    return ids[0] if len(ids) == 1 else None
