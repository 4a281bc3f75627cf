"""HTTP+SSE of 2024-11-05 (L-HTTP-22), for clients that know nothing newer: a GET opens a stream, and with it a session.

The first event names the URI that the session's messages are posted to; everything that is said in the session is an event of
its stream, answers too. So the stream is what a pipe is elsewhere: its end is the end of the session, everything that runs for it
is cancelled, and there is nothing to come back for. Ids are shared, and each message may be of any revision.

There is no reader task: the task of a POST passes its message to the session, and the task of the GET writes.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote

import trio

from trio_mcp.protocol.http.sse import encode_event
from trio_mcp.protocol.jsonrpc import Batch, Malformed, Message, Request, dump, error_response, parse
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.runtime import CancelReason, Outbox
from trio_mcp.session import Envelope, ServerSession, Service

from ..asgi.access import RETRY_LATER, HttpRejection, accepts, check_content
from ..asgi.authentication import Expiry
from ..asgi.exchange import LEGACY_STATUS, Exchange
from ..asgi.limits import HttpLimits
from ..asgi.messages import AuthorizedRequest, Receive, Send, read_body, respond
from ..asgi.quota import Quota

logger = logging.getLogger("trio_mcp.http")

ID_BYTES: Final = 24

UNUSED_TIMEOUT: Final = 60.0
"""Seconds after which a stream ends on which nothing was ever posted."""

FULL_OUTBOX_TIMEOUT: Final = 10.0
"""How long a request waits for its client to read the answers before; the guard cuts a reader that is stuck after as long."""


class SseStream(Exchange):
    """The exchange that carries a session's stream.

    Attributes:
        used: something was posted.
    """

    __slots__ = ("_first", "_opened_at", "used")

    def __init__(self, receive: Receive, send: Send, outbox: Outbox[Envelope], uri: str) -> None:
        super().__init__(receive, send, LEGACY_STATUS, outbox)
        self.used = False
        self._first = encode_event(uri.encode("ascii"), event=b"endpoint")
        self._opened_at = trio.current_time()

    async def _events(self) -> bytes:
        first, self._first = self._first, b""
        return first + await super()._events()

    async def _keep_alive(self) -> None:
        if self.used or trio.current_time() - self._opened_at < UNUSED_TIMEOUT:
            await super()._keep_alive()
        else:
            self.end_response()


@dataclass(slots=True, eq=False)
class SseSession:
    """One session: the stream that carries it, and whose it is."""

    id: str
    session: ServerSession
    stream: SseStream
    principal: str | None
    ended: bool = False


class SseEndpoint:
    """The two ends of the sessions of one application; ids carry 192 random bits (S-41) and count only with their owner (S-42).

    Args:
        message_path: where the messages are posted.
    """

    def __init__(self, service: Service, limits: HttpLimits, message_path: str) -> None:
        self.draining = False
        """No more streams are opened."""
        self._service = service
        self._limits = limits
        self._json_limits = JsonLimits(max_bytes=limits.body)
        self._message_path = message_path
        self._quota = Quota("streams", limits.sessions, limits.per_principal)
        self._sessions: dict[str, SseSession] = {}

    async def get(self, incoming: AuthorizedRequest, expiry: Expiry | None = None) -> None:
        """Open a session and carry its stream until either side ends it. A cancel ends the session.

        Args:
            expiry: of its credentials; None without authentication.
        """
        if not accepts(incoming.peer.headers.get("accept", "*/*"), "text", "event-stream"):
            raise HttpRejection(406, "The Accept header must list text/event-stream.")
        if self.draining:
            raise HttpRejection(503, "The server is shutting down. Try again in a moment.", [RETRY_LATER])
        rejection = self._quota.rejection(incoming.peer.principal)
        if rejection is not None:
            raise HttpRejection(503, rejection, [RETRY_LATER])
        entry = self._open(incoming)
        try:
            if expiry is None:
                await entry.stream.listen()
                return
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_when_expired, entry, expiry)
                await entry.stream.listen()
                nursery.cancel_scope.cancel()
        finally:
            self._end(entry, CancelReason.DISCONNECT)

    async def post(self, incoming: AuthorizedRequest) -> None:
        """Take one message. Its answer goes to the stream; only invalid messages are answered here."""
        check_content(incoming.peer.headers)
        entry = self._find_session(incoming)
        body = await read_body(
            incoming.receive, self._limits.body, self._limits.body_seconds, incoming.peer.headers.get("content-length")
        )
        message = parse(body, self._json_limits)
        if isinstance(message, Malformed) and not isinstance(message, Batch):
            await respond(incoming.send, 400, dump(error_response(message.error)))
            return
        try:
            await self._wait_for_room(entry, message)
        except HttpRejection as rejection:
            rejection.request_id = message.id if isinstance(message, Request) else None
            raise
        entry.stream.used = True
        entry.session.receive(Envelope(message, peer=incoming.peer, size=len(body)), entry.stream.outbox)
        await respond(incoming.send, 202)

    def close_streams(self) -> None:
        """End every stream after what was said in it: the server is going away."""
        for entry in self._sessions.values():
            entry.stream.outbox.close()

    def end_all(self, reason: CancelReason) -> None:
        """End every session; its calls are cancelled."""
        for entry in list(self._sessions.values()):
            self._end(entry, reason)

    # one step each

    def _open(self, incoming: AuthorizedRequest) -> SseSession:
        session_id = secrets.token_urlsafe(ID_BYTES)
        root = str(incoming.scope.get("root_path", "")).rstrip("/")
        uri = f"{quote(root)}{self._message_path}?session_id={session_id}"
        outbox: Outbox[Envelope] = Outbox(self._service.options.outbox)
        stream = SseStream(incoming.receive, incoming.send, outbox, uri)
        entry = SseSession(session_id, ServerSession(self._service), stream, incoming.peer.principal)
        entry.session.attach(outbox)
        self._sessions[session_id] = entry
        self._quota.acquire(entry.principal)
        return entry

    async def _end_when_expired(self, entry: SseSession, expiry: Expiry) -> None:
        await expiry()
        logger.info("a stream is ended: its credentials are no longer good")
        entry.stream.end_response()

    def _end(self, entry: SseSession, reason: CancelReason) -> None:
        """What still runs is cancelled, and unwinds in the service; the id is unknown from now on."""
        if entry.ended:
            return
        entry.ended = True
        del self._sessions[entry.id]
        self._quota.release(entry.principal)
        entry.session.close(reason)
        entry.stream.outbox.close()

    def _find_session(self, incoming: AuthorizedRequest) -> SseSession:
        """The session that a message is posted to; one that somebody else opened is as unknown as one that never was."""
        session_id = session_id_in_query(incoming.scope.get("query_string", b""))
        if session_id is None:
            raise HttpRejection(400, "The URI names no session: post to the one that the event `endpoint` gave.")
        entry = self._sessions.get(session_id)
        if entry is None or entry.principal != incoming.peer.principal:
            raise HttpRejection(404, SESSION_OVER)
        return entry

    async def _wait_for_room(self, entry: SseSession, message: Message | Malformed) -> None:
        """A client that does not read its answers asks nothing more; what needs no answer, a cancellation say, still comes in.

        Raises:
            HttpRejection: 503, there was no room in time; 404, the session has ended meanwhile.
        """
        # A cancellation is let in even then: it is what makes room.
        if isinstance(message, Request | Batch) and entry.stream.outbox.is_full:
            with trio.move_on_after(FULL_OUTBOX_TIMEOUT) as waiting:
                await entry.stream.outbox.wait_not_full()
            if waiting.cancelled_caught:
                raise HttpRejection(503, "Too many answers wait in the stream: read them first.", [RETRY_LATER])
        if entry.ended:
            raise HttpRejection(404, SESSION_OVER)


SESSION_OVER: Final = "This session is unknown or has ended: open another stream."


def session_id_in_query(query: bytes) -> str | None:
    """The id in a query; None when there is not exactly one."""
    try:
        named: Mapping[str, list[str]] = parse_qs(query.decode("ascii"), max_num_fields=16)
    # Other bytes than ASCII, or more than 16 fields.
    except ValueError:
        return None
    ids = named.get("session_id", [])
    return ids[0] if len(ids) == 1 else None
