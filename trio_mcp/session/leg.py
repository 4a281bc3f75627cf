"""A leg: one request that carries a call forward, and everyone who waits for its outcome.

In the handshake era a call has one leg. In the modern era it may take several: each brings its own id, progress token, log
level and response stream, and ends with a result, an error or a round of questions. Two copies of the same leg (a client's
retry, a load balancer's) are one leg with two listeners: it runs once and both get the same outcome.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from ..protocol.codec import Codec
from ..protocol.jsonrpc import Encoded, ErrorDetail, ErrorResponse, Notification, RequestId, Response
from ..runtime import CancelReason, Outbox
from ..types import LOGGING_LEVELS, ClientCapabilities, Implementation, JsonObject, LoggingLevel, Model
from .envelope import Envelope

Ending = Encoded | ErrorDetail | None
"""How a leg ended: a result, an error, or nothing because it was cancelled."""


class RequestFacts(NamedTuple):
    """What a handler may know about the request it serves. `meta` is the raw `_meta` object, `size` its bytes on the wire."""

    id: RequestId
    method: str
    codec: Codec
    client_capabilities: ClientCapabilities
    client_info: Implementation | None
    principal: str | None
    headers: Mapping[str, str]
    meta: JsonObject
    size: int = 0

    @property
    def protocol_version(self) -> str:
        return self.codec.revision.name


@dataclass(slots=True, eq=False)
class Threshold:
    """The least severe level that is sent; None sends nothing. A session shares one, a modern leg has its own (M-LOG-1s)."""

    level: LoggingLevel | None

    def passes(self, level: LoggingLevel) -> bool:
        return self.level is not None and LOGGING_LEVELS.index(level) >= LOGGING_LEVELS.index(self.level)


SILENT = Threshold(None)

UNHEARD = (CancelReason.CLIENT, CancelReason.DISCONNECT)
"""Reasons after which nobody waits for the answer: none is sent (L-CAN-2b, M-CAN-2s)."""


@dataclass(slots=True, eq=False)
class Listener:
    """One request id and the outbox its answer goes to; `exclusive` when the outbox serves nothing but this request."""

    request_id: RequestId
    outbox: Outbox[Envelope]
    exclusive: bool = False
    on_finished: Callable[[Listener], None] | None = None
    finished: bool = field(default=False, init=False)
    """It has had its answer, or will get none."""
    pause: Callable[[float | None], Awaitable[None]] | None = field(default=None, init=False)
    """Ends the stream that the answer would go out on, with seconds to wait before asking for the rest; None where it cannot."""

    def finish(self, ending: Ending) -> None:
        """Send the outcome to this listener."""
        self.finished = True
        self.pause = None  # it knows the stream, which knows the listener
        if self.on_finished is not None:
            self.on_finished(self)
        if isinstance(ending, Encoded):
            self.outbox.post(Envelope(Response(self.request_id, ending), about=self.request_id))
        elif ending is not None:
            self.outbox.post(Envelope(ErrorResponse(self.request_id, ending), about=self.request_id))
        if self.exclusive:
            self.outbox.close()


@dataclass(slots=True, eq=False)
class Leg:
    """One leg of a call. `finish` ends it, once."""

    facts: RequestFacts
    listeners: list[Listener]
    progress_token: RequestId | None = None
    threshold: Threshold = SILENT
    progress: float = -math.inf
    """The last progress value sent: it must rise (L-PRG-1b)."""
    ended: bool = field(default=False, init=False)
    unwanted: bool = field(default=False, init=False)
    """Its client has cancelled it: nothing more is said about it, also while the call cleans up (M-CAN-2s)."""
    dropped: int = field(default=0, init=False)

    @property
    def codec(self) -> Codec:
        return self.facts.codec

    def finish(self, ending: Ending) -> None:
        """Send the outcome to everyone who waits for it. Nothing is sent for this leg afterwards."""
        if self.ended:
            return
        self.ended = True
        for listener in self.listeners:
            listener.finish(ending)

    def leave(self, listener: Listener) -> bool:
        """A listener is gone; True when it was the last one."""
        self.listeners = [other for other in self.listeners if other is not listener]
        return not self.listeners

    def post(self, message: Notification) -> None:
        """Send without waiting, for what must get out in a clean-up."""
        if self.listeners and not self.ended:
            first = self.listeners[0]
            first.outbox.post(Envelope(message, about=first.request_id))

    async def notify(self, method: str, params: Model) -> None:
        """Send a notification about this request; waits while its reader is slow. Silent once nobody wants to hear of it.

        Always a checkpoint, also when silent: it may be the only one that a tool has.
        """
        if self.ended or self.unwanted or not self.listeners:
            self.dropped += 1
            await trio.lowlevel.checkpoint()
            return
        first = self.listeners[0]
        encoded = self.codec.encode_notification(method, params)
        await first.outbox.send(Envelope(Notification(method, encoded), about=first.request_id))

    def __repr__(self) -> str:
        ids = [listener.request_id for listener in self.listeners]
        return f"<Leg {self.facts.method} ids={ids} {'ended' if self.ended else 'open'}>"
