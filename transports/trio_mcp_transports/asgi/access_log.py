"""The access log: one record for each request or WebSocket, when it is over.

It is kept by the application and not by the ASGI server, so that it is the same under all of them, and knows what the request was
for. It has no query, no header and no body: those hold secrets.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from trio_mcp.base.log_setup import LOG_CONTEXT, LogContext
from trio_mcp.base.values import JsonValue, one_line

from .forwarded import TrustedProxies
from .messages import Message, Receive, Scope, Send

App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

logger: Final = logging.getLogger("trio_mcp.access")

RECORD_KEY: Final = "trio_mcp.access"
"""The key of the record in the scope of its request."""

ID_HEADER: Final = b"x-request-id"
ID: Final = re.compile(rb"[0-9A-Za-z._:-]{1,64}")
STARTS: Final = frozenset({"http.response.start", "websocket.http.response.start"})
BODIES: Final = frozenset({"http.response.body", "websocket.http.response.body"})


class AccessRecord:
    """What is logged of one request.

    Args:
        scope: of the request.
        given: an id that a trusted proxy has given it.

    Attributes:
        scope: as its client sent the request, which trusted proxies tell.
        id: of the request, for log records and for the header `X-Request-Id` of the response.
        principal: who sent it; set when that is known.
        rpc: the method of the JSON-RPC message in it; set when it has been read.
    """

    __slots__ = ("_began", "_bytes", "_ended", "_status", "id", "principal", "rpc", "scope")

    def __init__(self, scope: Scope, given: str | None) -> None:
        self.scope = scope
        self.id = given or secrets.token_hex(8)
        self.principal: str | None = None
        self.rpc: str | None = None
        self._began = time.monotonic()
        self._status: int | None = None
        self._bytes = 0
        self._ended = False

    def watch(self, send: Send) -> Send:
        """Return `send`, whose messages are noted, and which adds the id to the response."""
        return partial(self._send, send)

    async def _send(self, send: Send, message: Message) -> None:
        kind = message["type"]
        if kind in STARTS:
            self._status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (ID_HEADER, self.id.encode())]}
        elif kind in BODIES:
            self._bytes += len(message.get("body", b""))
            self._ended = not message.get("more_body", False)
        elif kind == "websocket.accept":
            self._status = 101
            self._ended = True
        elif kind == "websocket.close" and self._status is None:
            self._status, self._ended = 403, True
        await send(message)

    def name_principal(self, principal: str | None) -> None:
        """Note who sent the request; records that are logged for it from now on have it."""
        self.principal = principal
        LOG_CONTEXT.set(LogContext(self.id, principal))

    def log(self) -> None:
        """Log the request, which is over."""
        scope, seconds = self.scope, time.monotonic() - self._began
        client = scope.get("client")
        method = one_line(scope.get("method", "WEBSOCKET"))
        path = one_line(scope["path"])
        fields: dict[str, JsonValue] = {
            "method": method,
            "path": path,
            "status": self._status,
            "bytes": self._bytes,
            "seconds": round(seconds, 6),
            "client": None if client is None else one_line(str(client[0])),
            "rpc": None if self.rpc is None else one_line(self.rpc),
            "complete": self._ended,
        }
        logger.info(
            '%s "%s %s" %s %d bytes in %.1f ms%s%s%s [%s]',
            fields["client"] or "-",
            method,
            path,
            self._status or "-",
            self._bytes,
            seconds * 1000,
            f" {fields['rpc']}" if self.rpc else "",
            f" {one_line(self.principal)}" if self.principal else "",
            "" if self._ended else " (the client left)",
            self.id,
            extra={"fields": {"http": fields, **({"principal": one_line(self.principal)} if self.principal else {})}},
        )


async def serve_logged(serve: App, scope: Scope, receive: Receive, send: Send, proxies: TrustedProxies | None) -> None:
    """Serve a request, and log it when it is over, however it ends."""
    is_passed_on = proxies is not None and proxies.trusts(scope)
    record = AccessRecord(scope, given_id(scope) if is_passed_on else None)
    token = LOG_CONTEXT.set(LogContext(record.id))
    try:
        await serve({**scope, RECORD_KEY: record}, receive, record.watch(send))
    finally:
        record.log()
        LOG_CONTEXT.reset(token)


def given_id(scope: Scope) -> str | None:
    """Return the id that a request brings along, if it is one."""
    found = next((value for name, value in scope["headers"] if name == ID_HEADER), b"")
    return found.decode() if ID.fullmatch(found) else None


def record_of(scope: Scope) -> AccessRecord | None:
    """Return the record of a request; None without an access log."""
    record: AccessRecord | None = scope.get(RECORD_KEY)
    return record


def check_shown() -> None:
    """Warn if no handler would write the records."""
    if not logger.isEnabledFor(logging.INFO):
        logger.warning(
            "access_log=True, but records of the level INFO are not shown: call trio_mcp.configure_logging('info'), or set the "
            "level of the logger %s",
            logger.name,
        )
