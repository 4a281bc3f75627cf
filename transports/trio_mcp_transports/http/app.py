"""The ASGI application: Streamable HTTP for both eras, and WebSocket, on one path.

Modern requests are stateless: each has a conversation of its own, and the end of its connection is its cancellation
(M-HTTP-10s). Legacy requests belong to a session that `initialize` opened; the end of a connection cancels nothing there for a
grace period (L-HTTP-9b). Which one a request is, it says itself: in `_meta`, or by its version header (protocol.md 3.4).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import sniffio
import trio

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http_headers import SESSION_HEADER, VERSION_HEADER, check_headers
from trio_mcp.protocol.jsonrpc import (
    Batch,
    Malformed,
    Message,
    Notification,
    Request,
    decoded,
    dump,
    error_response,
    parse,
)
from trio_mcp.protocol.meta import PROTOCOL_VERSION
from trio_mcp.protocol.revisions import REVISIONS, Era
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.runtime import CancelReason, Outbox
from trio_mcp.server import Server
from trio_mcp.session import Envelope, Listener, Peer, ServerSession, Service
from trio_mcp.storage import EventStore
from trio_mcp.stores import MemoryEventStore

from ..websocket.endpoint import Check, WebSockets
from .asgi import Receive, Scope, Send, read_body, refuse, refuse_upgrade, respond
from .authentication import Authenticate, check_hook, identified
from .exchange import MODERN_STATUS, Exchange, refused
from .hypercorn_guard import install
from .legacy import LegacyEndpoint
from .limits import HttpLimits
from .refusals import ALLOW, RETRY_LATER, Access, HttpRefusal, check_access, check_post, check_upgrade, read_headers

__all__ = ["McpApp", "asgi_app"]

logger = logging.getLogger("trio_mcp.http")


@dataclass(slots=True)
class Running:
    """What exists between the application's startup and its shutdown."""

    service: Service
    legacy: LegacyEndpoint
    websockets: WebSockets


def asgi_app(
    server: Server,
    *,
    path: str = "/mcp",
    allowed_hosts: Sequence[str] = (),
    allowed_origins: Sequence[str] = (),
    authenticate: Authenticate | None = None,
    limits: HttpLimits | None = None,
    event_store: EventStore | None = None,
) -> McpApp:
    """An ASGI application that serves `server` under `path`, over HTTP and WebSocket: `hypercorn -k trio module:app`.

    Args:
        allowed_hosts: the names it is reached by (`mcp.example.com`); loopback names only, unless given.
        allowed_origins: web pages that may call it (`https://app.example.com`).
        authenticate: asked for every request who makes it: an async function from the headers to the principal, such as a
            user's name; None refuses the request. It has 10 seconds. See `McpApp.identify`.
        limits: what a client may cost.
        event_store: keeps what was sent on legacy streams, for clients that come back; in memory, unless given.

    It needs an ASGI server that runs on Trio and speaks the lifespan protocol; others get a clear refusal.
    """
    check_hook(authenticate)
    access = Access(tuple(allowed_hosts), tuple(allowed_origins))
    store = MemoryEventStore() if event_store is None else event_store  # an empty one is falsy
    return McpApp(server, path, access, limits or HttpLimits(), store, authenticate)


class McpApp:
    """An ASGI 3 application; made by `asgi_app`."""

    def __init__(
        self,
        server: Server,
        path: str,
        access: Access,
        limits: HttpLimits,
        event_store: EventStore,
        authenticate: Authenticate | None = None,
    ) -> None:
        self._server = server
        self._path = path
        self._access = access
        self._limits = limits
        self._event_store = event_store
        self._authenticate = authenticate
        self._json_limits = JsonLimits(max_bytes=limits.body)
        self._running: Running | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await self._websocket(scope, receive, send)

    async def drain(self, seconds: float, clean_up: float = 2.0) -> None:
        """Shut down in order: refuse new calls, give running ones `seconds`, then cancel them and answer their callers.

        The cancelled ones have `clean_up` seconds to unwind.
        """
        running = self._running
        if running is None:
            return
        running.legacy.draining = running.websockets.draining = True
        await running.service.drain(seconds, clean_up)
        running.legacy.sessions.close_streams()
        with trio.move_on_after(WEBSOCKETS_END):
            await running.websockets.close()

    async def identify(self, headers: Mapping[str, str]) -> str | None:
        """The principal who makes a request with these headers; None when nobody is asked for (no `authenticate=`).

        It comes after the checks of Host and Origin and before anything is read or made. A cancel leaves nothing.

        Raises:
            HttpRefusal: 401, they are nobody's; 500 or 503, the hook failed or took more than 10 seconds.
        """
        if self._authenticate is None:
            return None
        return await identified(self._authenticate, headers)

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
            try:
                service = await stack.enter_async_context(self._server.open_service())
            except Exception as error:  # noqa: BLE001  whatever it is, an ASGI server must not go on without
                problem = f"{self._server.identity.name} could not be started: {error}"
                logger.error(problem)
                await send({"type": "lifespan.startup.failed", "message": problem})
                return
            nursery = await stack.enter_async_context(trio.open_nursery())
            legacy = LegacyEndpoint(service, self._event_store, self._limits, nursery)
            websockets = WebSockets(service, self._limits.body, self._limits.websockets)
            self._running = Running(service, legacy, websockets)
            nursery.start_soon(legacy.sessions.reap)
            try:
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await self.drain(0)
                legacy.sessions.end_all(CancelReason.SHUTDOWN)
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
            peer = Peer(await self.identify(headers), headers)
            if scope["path"] != self._path:
                raise HttpRefusal(404, f"There is nothing here; the MCP endpoint is {self._path}.")
            serve = VERBS.get(scope["method"])
            if serve is None:
                raise HttpRefusal(405, "The methods of this endpoint are POST, GET and DELETE.", [ALLOW])
            await serve(self, self._started(), peer, receive, send)
        except HttpRefusal as refusal:
            await refuse(send, refusal)

    async def _post(self, running: Running, peer: Peer, receive: Receive, send: Send) -> None:
        headers = peer.headers
        check_post(headers)
        limits = self._limits
        body = await read_body(receive, limits.body, limits.body_seconds, headers.get("content-length"))
        message = parse(body, self._json_limits)
        if isinstance(message, Malformed) and not (isinstance(message, Batch) and SESSION_HEADER in headers):
            await respond(send, 400, dump(error_response(message.error)))
            return
        envelope = Envelope(message, peer=peer, size=len(body))
        try:
            if is_modern(message, headers):
                await self._modern(running, message, envelope, receive, send)
            else:
                await running.legacy.post(message, envelope, receive, send)
        except HttpRefusal as refusal:
            refusal.request_id = message.id if isinstance(message, Request) else None
            raise

    async def _modern(
        self, running: Running, message: Message | Batch, envelope: Envelope, receive: Receive, send: Send
    ) -> None:
        headers = envelope.peer.headers
        exchange = Exchange(receive, send, MODERN_STATUS, Outbox(running.service.options.outbox))
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

    async def _get(self, running: Running, peer: Peer, receive: Receive, send: Send) -> None:
        await running.legacy.get(peer, receive, send)

    async def _delete(self, running: Running, peer: Peer, receive: Receive, send: Send) -> None:
        await running.legacy.delete(peer, receive, send)

    # WebSocket

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An upgrade on the same path: what is refused is refused before it is accepted (reliability S-15)."""
        try:
            headers = read_headers(scope["headers"])
            check_access(headers, self._access)
            principal = await self.identify(headers)
            if scope["path"] != self._path:
                raise HttpRefusal(404, f"There is nothing here; the MCP endpoint is {self._path}.")
            check_upgrade(scope["subprotocols"])
            websockets = self._started().websockets
            if websockets.refusal is not None:
                raise HttpRefusal(503, websockets.refusal, [RETRY_LATER])
        except HttpRefusal as refusal:
            await refuse_upgrade(scope, receive, send, refusal)
            return
        check = None
        if self._authenticate is not None:
            check = Check(self._limits.recheck, partial(self._still, headers, principal))
        await websockets.serve(receive, send, Peer(principal, headers), check)

    async def _still(self, headers: Mapping[str, str], principal: str | None) -> bool:
        """Whether these headers are still those of the principal."""
        try:
            return await self.identify(headers) == principal
        except HttpRefusal:
            return False


WEBSOCKETS_END = 1.0
"""Seconds that open WebSockets have for their last messages and their close frames, when all calls have ended."""

VERBS: Mapping[str, Callable[[McpApp, Running, Peer, Receive, Send], Awaitable[None]]] = {
    "POST": McpApp._post,  # noqa: SLF001  one room
    "GET": McpApp._get,  # noqa: SLF001
    "DELETE": McpApp._delete,  # noqa: SLF001
}


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


def unsuitable_loop() -> str | None:
    """What is wrong with the event loop this runs in, or None."""
    library = sniffio.current_async_library()
    if library == "trio":
        return None
    return f"trio_mcp runs on Trio, not on {library}: start it with `hypercorn -k trio module:app`"
