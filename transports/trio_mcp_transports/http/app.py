"""The ASGI application: Streamable HTTP for both eras, on one path.

Modern requests are stateless: each has a conversation of its own, and the end of its connection is its cancellation
(M-HTTP-10s). Legacy requests belong to a session that `initialize` opened; the end of a connection cancels nothing there for a
grace period (L-HTTP-9b). Which one a request is, it says itself: in `_meta`, or by its version header (protocol.md 3.4).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import sniffio
import trio

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http_headers import SESSION_HEADER, VERSION_HEADER, check_headers
from trio_mcp.protocol.jsonrpc import (
    INVALID_REQUEST,
    SERVER_BUSY,
    Answers,
    Batch,
    ErrorDetail,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    decoded,
    dump,
    error_response,
    parse,
)
from trio_mcp.protocol.meta import PROTOCOL_VERSION
from trio_mcp.protocol.revisions import REVISIONS, SUPPORTED, Era
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.runtime import CancelReason
from trio_mcp.server import Server
from trio_mcp.session import Envelope, Listener, OpenBatch, Peer, ServerSession, Service

from .asgi import Receive, Scope, Send, read_body, respond
from .exchange import BATCH_STATUS, LEGACY_STATUS, MODERN_STATUS, RETRY_LATER, Exchange
from .hypercorn_guard import install
from .legacy_sessions import LegacySession, LegacySessions, TooManySessions
from .refusals import Access, HttpRefusal, accepts, check_access, check_post, read_headers

__all__ = ["HttpLimits", "McpApp", "asgi_app"]

logger = logging.getLogger("trio_mcp.http")


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may cost; sizes in bytes, times in seconds."""

    body: int = 4 * 1024 * 1024
    body_seconds: float = 30.0
    sessions: int = 10_000
    session_idle: float = 1800.0
    disconnect_grace: float = 30.0
    """How long a legacy call goes on when its client has dropped the connection; 0 cancels it at once."""


@dataclass(slots=True)
class Running:
    """What exists between the application's startup and its shutdown."""

    service: Service
    sessions: LegacySessions
    nursery: trio.Nursery
    draining: bool = field(default=False)


def asgi_app(
    server: Server,
    *,
    path: str = "/mcp",
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    limits: HttpLimits | None = None,
) -> McpApp:
    """An ASGI application that serves `server` under `path`: `hypercorn -k trio module:app`.

    Args:
        allowed_hosts: the names it is reached by (`mcp.example.com`); loopback names only, unless given.
        allowed_origins: web pages that may call it (`https://app.example.com`).
        limits: what a client may cost.

    It needs an ASGI server that runs on Trio and speaks the lifespan protocol; others get a clear refusal.
    """
    return McpApp(server, path, Access(tuple(allowed_hosts), tuple(allowed_origins)), limits or HttpLimits())


class McpApp:
    """An ASGI 3 application; made by `asgi_app`."""

    def __init__(self, server: Server, path: str, access: Access, limits: HttpLimits) -> None:
        self._server = server
        self._path = path
        self._access = access
        self._limits = limits
        self._json_limits = JsonLimits(max_bytes=limits.body)
        self._running: Running | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": "this server speaks HTTP only"})

    async def drain(self, seconds: float, clean_up: float = 2.0) -> None:
        """Shut down in order: refuse new calls, give running ones `seconds`, then cancel them and answer their callers.

        The cancelled ones have `clean_up` seconds to unwind.
        """
        running = self._running
        if running is None:
            return
        running.draining = True
        await running.service.drain(seconds, clean_up)
        running.sessions.close_streams()

    @property
    def service(self) -> Service:
        """What is being served.

        Raises:
            RuntimeError: the application was not started.
        """
        return self._started().service

    def __repr__(self) -> str:
        state = f"serving {self._running.service!r}" if self._running else "not started"
        return f"<McpApp {self._path} {state}>"

    # life

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        problem = unsuitable_loop()
        if problem is not None:
            logger.error(problem)
            await send({"type": "lifespan.startup.failed", "message": problem})
            return
        if "hypercorn.trio.run" in sys.modules:
            install()
        async with AsyncExitStack() as stack:
            service = await stack.enter_async_context(self._server.open_service())
            nursery = await stack.enter_async_context(trio.open_nursery())
            sessions = LegacySessions(self._limits.sessions, self._limits.session_idle)
            self._running = Running(service, sessions, nursery)
            nursery.start_soon(sessions.reap)
            try:
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await self.drain(0)
                sessions.end_all(CancelReason.SHUTDOWN)
                await send({"type": "lifespan.shutdown.complete"})
            finally:
                self._running = None
                nursery.cancel_scope.cancel()

    def _started(self) -> Running:
        if self._running is None:
            raise RuntimeError("the application was not started: serve it with the ASGI lifespan protocol")
        return self._running

    # requests

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            headers = read_headers(scope["headers"])
            check_access(headers, self._access)
            if scope["path"] != self._path:
                raise HttpRefusal(404, f"There is nothing here; the MCP endpoint is {self._path}.")
            serve = VERBS.get(scope["method"])
            if serve is None:
                raise HttpRefusal(405, "The methods of this endpoint are POST, GET and DELETE.", [ALLOW])
            await serve(self, self._started(), headers, receive, send)
        except HttpRefusal as refusal:
            error = ErrorResponse(None, ErrorDetail(INVALID_REQUEST, str(refusal)))
            await respond(send, refusal.status, dump(error), refusal.headers)

    async def _post(self, running: Running, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        check_post(headers)
        limits = self._limits
        body = await read_body(receive, limits.body, limits.body_seconds, headers.get("content-length"))
        message = parse(body, self._json_limits)
        if isinstance(message, Malformed) and not (isinstance(message, Batch) and SESSION_HEADER in headers):
            await respond(send, 400, dump(error_response(message.error)))
            return
        envelope = Envelope(message, peer=Peer(None, headers), size=len(body))
        if is_modern(message, headers):
            await self._modern(running, message, envelope, receive, send)
        else:
            await self._legacy(running, message, envelope, receive, send)

    async def _modern(
        self, running: Running, message: Message | Batch, envelope: Envelope, receive: Receive, send: Send
    ) -> None:
        headers = envelope.peer.headers
        exchange = Exchange(receive, send, MODERN_STATUS, running.service.options.outbox)
        if isinstance(message, Notification):  # the core defines none over HTTP; M-HTTP-9s
            await exchange.accept()
            return
        if not isinstance(message, Request):
            raise HttpRefusal(400, "A modern client sends requests only.")
        params = decoded(message.params)
        try:
            require_version(params, headers)
            check_headers(headers, message.method, params)
        except RemoteProtocolError as error:
            error.request_id = message.id
            await exchange.refuse(400, error_response(error))
            return
        session = ServerSession(running.service, shared=False)
        listener = session.receive(envelope, exchange.outbox, exclusive=True)
        if not isinstance(listener, Listener):
            await refused(exchange, MODERN_STATUS)
        elif not await exchange.run():
            session.disconnect(listener)

    async def _legacy(
        self, running: Running, message: Message | Batch, envelope: Envelope, receive: Receive, send: Send
    ) -> None:
        headers = envelope.peer.headers
        check_version(headers)
        exchange = Exchange(receive, send, LEGACY_STATUS, running.service.options.outbox)
        if isinstance(message, Request) and message.method == "initialize" and SESSION_HEADER not in headers:
            await self._open_session(running, message.id, envelope, exchange)
            return
        entry = found(running, headers)
        envelope = envelope._replace(peer=Peer(entry.principal, headers))
        listener = entry.session.receive(envelope, exchange.outbox, exclusive=True)
        if isinstance(listener, Listener) or (isinstance(listener, OpenBatch) and listener.listeners):
            if not await exchange.run():
                running.nursery.start_soon(self._outlive, entry, listener)
        elif isinstance(message, Request):
            await refused(exchange, LEGACY_STATUS)
        elif isinstance(message, Batch) and listener is not None:
            await refused(exchange, BATCH_STATUS)
        else:
            await exchange.accept()

    async def _open_session(
        self, running: Running, request_id: RequestId, envelope: Envelope, exchange: Exchange
    ) -> None:
        try:
            running.sessions.check_room()
        except TooManySessions as error:
            exchange.add_header(*RETRY_LATER)
            await exchange.refuse(503, ErrorResponse(request_id, ErrorDetail(SERVER_BUSY, str(error))))
            return
        session = ServerSession(running.service, shared=False)
        session.receive(envelope, exchange.outbox, exclusive=True)
        if session.initialized:  # a refused one leaves nothing behind
            entry = running.sessions.add(session, None)
            exchange.add_header(SESSION_HEADER.encode(), entry.id.encode())
        exchange.outbox.close()
        await exchange.run()

    async def _outlive(self, entry: LegacySession, listener: Listener | OpenBatch) -> None:
        """The connection of a legacy call has gone: let it go on for the grace period, then cancel it."""
        with trio.move_on_after(self._limits.disconnect_grace):
            while await listener.outbox.take():
                pass
        if not listener.finished:
            entry.session.disconnect(listener)

    async def _get(self, running: Running, headers: Mapping[str, str], receive: Receive, send: Send) -> None:
        """The stream for what belongs to no request (L-HTTP-10c). A session has one at a time."""
        check_version(headers)
        if not accepts(headers.get("accept", "*/*"), "text", "event-stream"):
            raise HttpRefusal(406, "The Accept header must list text/event-stream.")
        if SESSION_HEADER not in headers:
            raise HttpRefusal(405, "Without a session there is no stream to get: POST a message instead.", [ALLOW])
        entry = found(running, headers)
        if entry.stream is not None:
            raise HttpRefusal(409, "This session has an open stream already.")
        exchange = Exchange(receive, send, LEGACY_STATUS, running.service.options.outbox)
        entry.stream = exchange.outbox
        try:
            await exchange.open_stream()
            await exchange.run()
        finally:
            entry.stream = None

    async def _delete(self, running: Running, headers: Mapping[str, str], _receive: Receive, send: Send) -> None:
        """End a session, and everything that runs in it (L-HTTP-19c)."""
        check_version(headers)
        if SESSION_HEADER not in headers:
            raise HttpRefusal(405, "There is no session to delete.", [ALLOW])
        running.sessions.end(found(running, headers), CancelReason.CLIENT)
        await respond(send, 204)


VERBS: Mapping[str, Callable[[McpApp, Running, Mapping[str, str], Receive, Send], Awaitable[None]]] = {
    "POST": McpApp._post,  # noqa: SLF001  one room
    "GET": McpApp._get,  # noqa: SLF001
    "DELETE": McpApp._delete,  # noqa: SLF001
}

ALLOW = (b"allow", b"POST, GET, DELETE")


def is_modern(message: Message | Batch, headers: Mapping[str, str]) -> bool:
    """Whether the modern rules apply: the body says so, or the version header does."""
    if isinstance(message, Request):
        meta = decoded(message.params).get("_meta")
        if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
            return True
    revision = REVISIONS.get(headers.get(VERSION_HEADER, ""))
    return revision is not None and revision.era is Era.MODERN


def require_version(params: Mapping[str, object], headers: Mapping[str, str]) -> None:
    """A modern request names its version in the body as well (M-META-1s); the codec words the refusal."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or PROTOCOL_VERSION not in meta:
        version = headers.get(VERSION_HEADER, "")
        raise RemoteProtocolError(f'params._meta must say "{PROTOCOL_VERSION}": "{version}"', code=-32602)


def check_version(headers: Mapping[str, str]) -> None:
    """L-HTTP-21s: an unknown version is refused; without one an older client is assumed."""
    version = headers.get(VERSION_HEADER)
    if version is not None and version not in REVISIONS:
        known = ", ".join(SUPPORTED)
        raise HttpRefusal(400, f"The protocol version {version[:64]!r} is not spoken here; there are: {known}.")


def found(running: Running, headers: Mapping[str, str]) -> LegacySession:
    """The session that a request names (L-HTTP-18s)."""
    session_id = headers.get(SESSION_HEADER)
    if session_id is None:
        raise HttpRefusal(
            400, "The Mcp-Session-Id header is missing: send initialize first and repeat the id it returns."
        )
    entry = running.sessions.find(session_id, None)
    if entry is None:
        raise HttpRefusal(404, "This session is unknown or has ended: send initialize to open another.")
    return entry


async def refused(exchange: Exchange, statuses: Mapping[int, int]) -> None:
    """Send the error of a message that was refused before anything was started, or the errors of a batch."""
    for envelope in exchange.outbox.take_nowait():
        answer = envelope.message
        assert isinstance(answer, ErrorResponse | Answers)
        each = answer.answers if isinstance(answer, Answers) else (answer,)
        codes = [error.error.code for error in each if isinstance(error, ErrorResponse)]
        fitting = {statuses.get(code, 400 if statuses is MODERN_STATUS else 200) for code in codes}
        await exchange.refuse(fitting.pop() if len(fitting) == 1 else 200, answer)


def unsuitable_loop() -> str | None:
    """What is wrong with the event loop this runs in, or None."""
    library = sniffio.current_async_library()
    if library == "trio":
        return None
    return f"trio_mcp runs on Trio, not on {library}: start it with `hypercorn -k trio module:app`"
