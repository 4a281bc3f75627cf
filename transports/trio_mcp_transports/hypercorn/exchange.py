"""One HTTP exchange of a connection, for an ASGI application (asgi.readthedocs.io, HTTP specification 2.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from time import time
from typing import TypeAlias, cast
from urllib.parse import unquote

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, HTTPResponseStartEvent, LifespanState, ResponseSummary, WWWScope

from trio_mcp.base.logs import RepeatedRecords

from ..asgi.authentication import ClientDisconnected, log_failures
from ..asgi.direct import DirectApp, direct_app
from ..asgi.messages import Message, Receive, Respond, Scope, Send
from .connections import Connections
from .inbox import Inbox
from .response import LAST_SEND, NO_BODY, Response, UnexpectedMessage, checked

Address: TypeAlias = tuple[str, int] | None
Call: TypeAlias = Callable[..., object]
App: TypeAlias = Callable[[Scope, Receive, Send, Call, Call], Awaitable[None]]
"""An application as hypercorn wraps it. Hypercorn has a type for each ASGI message; ours are dicts, as ASGI has them."""


@dataclass(slots=True, frozen=True)
class ConnectionFacts:
    """What an application is told of its connection, and what hypercorn gives each."""

    app: AppWrapper
    config: Config
    context: WorkerContext
    state: LifespanState
    connections: Connections
    client: Address
    server: Address
    tls: bool


class State(Enum):
    """How far a response is."""

    REQUEST = auto()
    RESPONSE = auto()
    OVER = auto()


class HttpExchange:
    """One request, and the response to it.

    Attributes:
        over: the client has gone, or has the whole response.
    """

    __slots__ = ("_began", "_facts", "_response", "_start", "_state", "inbox", "is_lost", "over", "scope")

    def __init__(self, facts: ConnectionFacts, scope: Scope, inbox: Inbox, response: Response) -> None:
        self.scope = scope
        self.inbox = inbox
        self.over = False
        self.is_lost = False
        self._facts = facts
        self._response = response
        self._start: Message = {"status": 500, "headers": []}
        self._state = State.REQUEST
        self._began = time()

    def go_on(self) -> None:
        """Go on with a response of which a part was written without ASGI messages."""
        self._start = {"status": 200, "headers": []}
        self._state = State.RESPONSE

    async def receive_body(self, data: bytes, *, more: bool) -> None:
        """Hand on a part of the body; waits while the application has many unread."""
        await self.inbox.put({"type": "http.request", "body": data, "more_body": more})

    async def lose(self) -> None:
        """Tell the application that its client has gone, or has the whole response."""
        if self.over:
            return
        self.over = True
        if self._state is not State.OVER:
            self.is_lost = True
            await self.log_access(None)
        await self.inbox.put({"type": "http.disconnect"})

    async def send(self, message: Message) -> None:
        """Send one ASGI message. Raises `ClientDisconnected` if the client has gone, and `UnexpectedMessage`."""
        await check_not_lost(self.is_lost)
        kind = message["type"]
        if kind == "http.response.start" and self._state is State.REQUEST:
            self._start = message
            self._response.set_head(int(message["status"]), checked(message.get("headers", [])))
            self._state = State.RESPONSE
        elif kind == "http.response.body" and self._state is State.RESPONSE:
            await self._send_body(message)
        else:
            raise UnexpectedMessage(f"{kind} cannot be sent now: {self._state.name.lower()}")
        # The client may have left while the message was written. An app that streams in a loop has to be told, or it would go on
        # for ever.
        if self.is_lost:
            raise ClientDisconnected

    async def _send_body(self, message: Message) -> None:
        more = bool(message.get("more_body", False))
        body = bytes(message.get("body", b""))
        status = int(self._start["status"])
        if self.scope.get("method") == "HEAD" or status in NO_BODY:
            body = b""
        # An empty chunk is how an app asks for the response head at once (ASGI holds it until the first body).
        await self._response.send_body(body, more=more)
        if not more:
            self._state = State.OVER
            await self.log_access(self._start)
            await self._response.end_response()

    async def refuse(self, status: int) -> None:
        """Answer with a status alone, before the application is started, and close the connection."""
        self._start = {"status": status, "headers": [(b"content-length", b"0"), (b"connection", b"close")]}
        self._response.set_head(status, self._start["headers"])
        self._state = State.OVER
        await self._response.send_body(b"", more=False)
        await self.log_access(self._start)
        await self._response.end_response()

    async def end(self) -> None:
        """The application has ended: a response that it did not complete is none."""
        if not self.over:
            if self._state is State.REQUEST:
                await self.log_access(self._start)
            await self._response.fail()

    async def log_access(self, start: Message | None) -> None:
        """Log a response that begins like this; None for none."""
        # Its interface says that there always is a response, and hypercorn passes None for none.
        summary = cast(ResponseSummary, cast(HTTPResponseStartEvent, start))
        await self._facts.config.log.access(cast(WWWScope, self.scope), summary, time() - self._began)


def http_scope(facts: ConnectionFacts, request: h11.Request) -> Scope:
    """Return the scope of a request that asks for no WebSocket."""
    scope = {"type": "http", "scheme": "https" if facts.tls else "http", **scope_of(facts, request)}
    scope |= {"asgi": {"spec_version": "2.1", "version": "3.0"}, "extensions": {}}
    scope["method"] = request.method.decode("ascii").upper()
    return scope


def scope_of(facts: ConnectionFacts, request: h11.Request) -> Scope:
    """Return what the scopes of both kinds of exchanges have in common."""
    path, _, query = request.target.partition(b"?")
    return {
        "http_version": request.http_version.decode(),
        "path": unquote(path.decode("ascii")),
        "raw_path": path,
        "query_string": query,
        "root_path": facts.config.root_path,
        # Raw items keep the case of names; h11 itself lowers it, which is what ASGI asks for.
        "headers": request.headers.raw_items() if facts.config.h11_pass_raw_headers else list(request.headers),
        "client": facts.client,
        "server": facts.server,
        "state": dict(facts.state),
    }


def app_call(app: AppWrapper, scope: Scope, inbox: Inbox, send: Send) -> Respond:
    """Return what runs an application for one exchange."""
    return partial(cast(App, app), scope, inbox.receive, send, trio.to_thread.run_sync, trio.from_thread.run)


async def run_app(run: Respond, kind: str, inbox: Inbox, end: Respond, records: RepeatedRecords) -> None:
    """Run an app to its end. Whatever it raises ends its own exchange only; a cancel of an outer scope passes.

    Args:
        kind: of the exchange.
        end: called when the app has ended, however it did.
    """
    try:
        with inbox, log_failures(f"the ASGI app failed in a {kind} exchange", records):
            await run()
    except BaseException:
        # Shielded, or the exchange would never be closed. Bounded, since it may write a 500.
        with trio.move_on_after(LAST_SEND, shield=True):
            await end()
        raise
    await end()


async def check_not_lost(lost: bool) -> None:
    """A cancel point before anything is written; a full checkpoint before an error, so that no retry loop can spin."""
    if lost:
        # A full checkpoint even though it fails: an app that catches the error and tries again must give way to others.
        await trio.lowlevel.checkpoint()
        raise ClientDisconnected
    await trio.lowlevel.checkpoint_if_cancelled()


# Which application hypercorn serves, and what is wrapped round it.

AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class LifespanWrapper:
    """An application whose lifespan another one handles; it serves its requests itself.

    Args:
        app: the application.
        lifespan: handles the lifespan events.
    """

    def __init__(self, app: AsgiApp, lifespan: AsgiApp) -> None:
        self.app = app
        self._lifespan = lifespan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._lifespan if scope["type"] == "lifespan" else self.app)(scope, receive, send)


def directly_served(facts: ConnectionFacts) -> DirectApp | None:
    """Return the application if its requests may go the direct way, which knows nothing of these settings."""
    config = facts.config
    is_plain = not (facts.tls or config.root_path or config.server_names or config.h11_pass_raw_headers)
    app = own_app(facts.app) if is_plain and config.log.access_logger is None else None
    return app if app is not None and app.takes_direct_requests else None


def own_app(app: AppWrapper) -> DirectApp | None:
    """Return the application if it is ours and nothing but our own `LifespanWrapper` is round it.

    A middleware sees every request: it may reject it, or change it.
    """
    inner: object = app.app if type(app) is ASGIWrapper else None
    return direct_app(inner.app if type(inner) is LifespanWrapper else inner)
