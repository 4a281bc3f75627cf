"""Opening the connection to the server for a host, whose messages wait until it is known whether both speak one revision."""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeGuard

import trio

from ..base.named_tuples import NamedTuple
from ..client.dialects import MODERN_ERRORS, Dialect, newest_version
from ..client.link import Link
from ..client.options import ClientOptions
from ..client.requester import ServerFacts
from ..errors import McpError, PeerError, RemoteProtocolError, without_traceback
from ..protocol.codec import codec_for
from ..protocol.codec.models import validated
from ..protocol.codec.reading import Inbound, modern_terms
from ..protocol.codec.unknown import UnknownParams, Unread
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    UNSUPPORTED_VERSION,
    Encoded,
    ErrorDetail,
    Request,
    decoded,
)
from ..protocol.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    MODERN,
    NEWEST_LEGACY,
    PROTOCOL_VERSION,
    REVISIONS,
    Era,
)
from ..runtime import CancelReason, Outbox
from ..session import ClientSession, Envelope, Received, ReplyTarget
from ..session.client import SessionTerms
from ..session.envelope import CALL_SIZE
from ..session.notification_dispatch import ignore_notification
from ..types import ClientCapabilities, Implementation, JsonObject, JsonValue, Model, ServerCapabilities
from .forwarding import INITIALIZE, Forwarding, UnreadQuestions, failure_text
from .offers import Offers, host_of
from .rounds import as_object
from .session_memory import HostDialect, LastingDialect, SessionMemory
from .translating import WatchedChannel

PROBE_TIMEOUT: Final = 15.0
"""Seconds that a server may take to start and to answer `server/discover` before it is taken for a legacy one. It is longer than
that of a client: a host that gives up earlier sends `initialize`, which ends the wait."""

DISCOVER: Final = "server/discover"
MAX_QUESTIONS: Final = 4096
"""Requests of a server that are answered, or passed on, at once."""
IDS: Final = 1000
"""Ids of requests that are left out after each attempt, whose answers may still come."""

# What a host sends until the server has been reached.

MAX_WAITING: Final = 256
"""Messages of a host that wait until the server has been reached."""
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
REQUEST_SIZE: Final = CALL_SIZE // 2
"""A request that waits, with its stream, besides its message."""


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """A request of the host that waits; it is `ReplyTarget.work` until another session serves it."""

    message: Request
    target: ReplyTarget
    _drawn: int = field(default=0, init=False)

    @property
    def method(self) -> str:
        """The method of the request."""
        return self.message.method

    @property
    def params(self) -> JsonObject:
        """The params as the host sent them."""
        return decoded(self.message.params)

    def draw(self, size: int) -> None:
        """Count the request in the memory budget, with `size` bytes of its message. Raises `LimitExceeded` without room."""
        account = self.target.outbox.account
        if account is not None:
            account.check(size + REQUEST_SIZE)
            self._drawn = size + REQUEST_SIZE
            account.draw(self._drawn)

    def give_back(self) -> None:
        """Count the request no longer; doing it again does nothing."""
        drawn, self._drawn = self._drawn, 0
        if drawn and self.target.outbox.account is not None:
            self.target.outbox.account.give_back(drawn)

    def finish(self, outcome: Encoded | ErrorDetail) -> None:
        """Answer the request, unless its host has gone."""
        self.give_back()
        if not self.target.finished:
            self.target.finish(outcome)

    def withdraw(self, target: ReplyTarget, reason: CancelReason) -> None:  # noqa: ARG002
        """Stop waiting; the request gets no reply."""
        self.give_back()
        target.finish(None)

    def disconnect(self, target: ReplyTarget) -> None:  # noqa: ARG002
        """Stop waiting: its reply cannot be delivered any more."""
        self.give_back()


class Waiting(NamedTuple):
    """A message of the host that came before the server was reached; `request` is None unless it is a request."""

    envelope: Envelope[Received]
    outbox: Outbox[Envelope]
    request: WaitingRequest | None
    inbound: Inbound | None


class Opening:
    """The messages that wait.

    Attributes:
        waiting: in the order in which they came.
        shaken: set when the host has sent `initialize`, and the server has not rejected it.
    """

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.shaken = trio.Event()
        self._more = trio.Event()

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        held = sum([each.envelope.size for each in self.waiting])
        return len(self.waiting) >= MAX_WAITING or held >= MAX_WAITING_BYTES

    def keep(self, waiting: Waiting) -> None:
        """Add a message."""
        self.waiting.append(waiting)
        self._more.set()
        if waiting.request is not None and waiting.request.method == INITIALIZE:
            self.shaken.set()

    async def wait_any(self) -> None:
        """Wait until a message waits."""
        while not self.waiting:
            self._more = trio.Event()
            await self._more.wait()


# Opening the connection in the revision of the host.


class OtherEra(Exception):
    """The server speaks another era than the host; `mode` is that of `Client.connect`."""

    def __init__(self, mode: str) -> None:
        super().__init__(mode)
        self.mode = mode


class HandshakeRejected(Exception):
    """The server, or its connection, answered the handshake of the host with an error."""

    def __init__(self, detail: ErrorDetail) -> None:
        super().__init__(detail.message)
        self.detail = detail


class HostLink(Link):
    """The link to a server over which the messages of a host pass, opened as the first request of the host wants it.

    Args:
        first: that request.
        params: of it, with what the proxy answers.
        given_up: set when the host no longer waits to know whether the server is a modern one.
        last_id: of the requests that were sent over this connection before.
        lasts: a legacy session is opened again when the server has lost it.

    Attributes:
        watched: the channel.
        handshake: the params of `initialize` as the host sent them, and its result; None with a modern server.
    """

    def __init__(
        self,
        channel: WatchedChannel,
        forwarding: Forwarding,
        first: WaitingRequest,
        params: JsonObject,
        given_up: trio.Event,
        last_id: int,
        *,
        lasts: bool,
    ) -> None:
        options = ClientOptions(
            info=Implementation(name="unnamed", version="0"),
            handlers=UnreadQuestions(forwarding=forwarding),
            max_handlers=MAX_QUESTIONS,
            on_unknown=forwarding.take,
            unread=Unread.ALL,
            last_id=last_id,
        )
        super().__init__(nullcontext(channel), options)
        self.handshake: tuple[JsonObject, JsonObject] | None = None
        self.watched = channel
        self._forwarding = forwarding
        self._first, self._params, self._given_up = first, params, given_up
        self._lasts = lasts

    async def _opened_dialect(self, session: ClientSession) -> Dialect:
        try:
            return await self._opened(session)
        except (OtherEra, HandshakeRejected):
            # The connection goes on, and a message that is cut short would end it.
            await session.flush()  # noqa: ASYNC120  a cancel ends the connection, whatever the server said
            raise

    async def _opened(self, session: ClientSession) -> Dialect:
        if self._first.method == INITIALIZE:
            version = await self._shake_hands(session)
        elif await discovers(session, self._params, self._given_up):
            version = MODERN
        else:
            raise OtherEra("legacy")
        session.terms = SessionTerms(codec_for(version), {}, stateless=version == MODERN)
        session.connection.set_version(version)
        dialect = self._dialect_of_host(session)
        dialect.facts = ServerFacts(version, ServerCapabilities(), None, None)
        return dialect

    def _dialect_of_host(self, session: ClientSession) -> Dialect:
        if self.handshake is None or not self._lasts:
            return HostDialect(session, self._options)
        memory = SessionMemory(
            self, self._router.dispatch_change, self._params, self.handshake[1], self._forwarding.take
        )
        self._forwarding.memory = memory
        return LastingDialect(session, self._options, memory, self.watched.end)

    async def _shake_hands(self, session: ClientSession) -> str:
        """Send the handshake of the host, and return the revision that the server has chosen.

        Raises:
            OtherEra: the server is a modern one.
            HandshakeRejected: it has answered with an error, or not at all.
        """
        try:
            # What comes with the answer is of the session: its questions wait until the host knows that it is open.
            opens = partial(session.connection.set_version, NEWEST_LEGACY)
            result = await session.forward(INITIALIZE, self._params, ignore_notification, on_settled=opens).result()
        except McpError as error:
            if session.closed_because is not None:
                raise
            rejected = HandshakeRejected(detail_of(error))
        else:
            self.handshake = self._first.params, result
            version = result.get("protocolVersion")
            return version if is_legacy(version) else NEWEST_LEGACY
        if await discovers(session, self._params, trio.Event()):
            raise OtherEra("modern")
        raise rejected


def is_legacy(version: JsonValue) -> TypeGuard[str]:
    return isinstance(version, str) and version in REVISIONS and REVISIONS[version].era is Era.LEGACY


def detail_of(error: McpError) -> ErrorDetail:
    """Return the error for a host whose handshake the server, or its connection, has answered with this one."""
    match error:
        case PeerError():
            return ErrorDetail(error.code, error.message, error.data, error.more)
        case RemoteProtocolError():
            return ErrorDetail(INTERNAL_ERROR, failure_text(error, "the server did not answer initialize"))
        case _:
            return ErrorDetail(INTERNAL_ERROR, f"the server did not answer initialize: {error}")


async def discovers(session: ClientSession, params: JsonObject, given_up: trio.Event) -> bool:
    """Return whether the server speaks a modern revision (M-DUAL-5c).

    Args:
        params: of the first request of the host, with what the proxy answers. The server may be a proxy, too, which declares
            them to a legacy server.
        given_up: set when the host no longer waits for it; the answer is then False.
    """
    capabilities, info = declared_in(params)
    meta: JsonObject = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}
    # Only what is well-formed: a server's error about the rest would say nothing of its era.
    if is_valid(ClientCapabilities, capabilities):
        meta[CLIENT_CAPABILITIES] = capabilities
    if is_valid(Implementation, info):
        meta[CLIENT_INFO] = info
    session.terms = SessionTerms(codec_for(MODERN), {}, stateless=True)
    found = False

    async def stop() -> None:
        await given_up.wait()
        nursery.cancel_scope.cancel()

    with trio.move_on_after(PROBE_TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            found = await is_modern(session, {"_meta": meta})
            nursery.cancel_scope.cancel()
    return found


async def is_modern(session: ClientSession, params: JsonObject) -> bool:
    """Send `server/discover`, and return whether what comes back is of a modern server."""
    try:
        result = await session.request(DISCOVER, validated(UnknownParams, params, "params"))
    except PeerError as error:
        if error.code != UNSUPPORTED_VERSION:
            return error.code in MODERN_ERRORS
        supported = as_object(error.data).get("supported")
        return newest_version(Era.MODERN, supported if isinstance(supported, list) else []) is not None
    except McpError:
        if session.closed_because is not None:
            raise
        return False
    return "supportedVersions" in result.wire()


def is_valid(kind: type[Model], value: JsonValue) -> bool:
    try:
        validated(kind, value, "")
    except RemoteProtocolError:
        return False
    return True


def declared_in(params: JsonObject) -> tuple[JsonValue, JsonValue]:
    """Return the capabilities that a host declares in its first request, and who it is."""
    meta = params.get("_meta")
    if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
        return meta.get(CLIENT_CAPABILITIES), meta.get(CLIENT_INFO)
    return params.get("capabilities"), params.get("clientInfo")


def with_offers(offers: Offers, params: JsonObject) -> JsonObject:
    """Return the params of the first request of a host with what the proxy answers."""
    declared, _ = declared_in(params)
    added = offers.added_to(declared, host_of(declared))
    if added is None:
        return params
    meta = params.get("_meta")
    if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
        return (
            {**params, "_meta": {**meta, CLIENT_CAPABILITIES: added}}
            if is_valid(ClientCapabilities, declared)
            else params
        )
    return {**params, "capabilities": added}


def terms_problem(inbound: Inbound | None) -> RemoteProtocolError | None:
    """Return the error for a modern request with malformed `_meta`, which has a specific HTTP status (M-META-1s), or None.

    Args:
        inbound: a request that was classified before, as over HTTP; None for others, which the session rejects.
    """
    if inbound is None or inbound.meta is None:
        return None
    try:
        modern_terms(inbound.meta)
    except RemoteProtocolError as error:
        # A revision that is unknown here is for the session to know.
        return without_traceback(error) if error.code == INVALID_PARAMS else None
    return None
