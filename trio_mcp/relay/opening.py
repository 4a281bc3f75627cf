"""What a host sends until it is known whether its server speaks the same revision."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import trio

from ..base.named_tuples import NamedTuple
from ..client.dialects import MODERN_ERRORS, newest_version
from ..errors import RemoteProtocolError, without_traceback
from ..protocol.codec.models import validated
from ..protocol.codec.reading import Inbound, classify, modern_terms
from ..protocol.connection import Connection
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    UNSUPPORTED_VERSION,
    Encoded,
    ErrorDetail,
    ErrorResponse,
    Malformed,
    Response,
    Unanswered,
    decoded,
)
from ..protocol.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, PROTOCOL_VERSION, REVISIONS, Era
from ..protocol.strict_json import dumps
from ..session import Envelope, Received
from ..types import ClientCapabilities, Implementation, JsonObject, JsonValue, Model
from .offers import HostRequest
from .passing import Passage
from .rounds import as_object
from .upstream import Reply, Upstream, failure_text

# Finding out which era a server speaks, for a host that has chosen one.

PROBE_TIMEOUT: Final = 15.0
"""Seconds that a server may take to start and to answer `server/discover` before it is taken for a legacy one. It is longer than
that of a client: a host that gives up earlier sends `initialize`, which ends the wait."""


async def discovers(upstream: Upstream, given_up: trio.Event, capabilities: JsonValue, info: JsonValue) -> bool:
    """Return whether the server speaks a modern revision (M-DUAL-5c).

    Args:
        given_up: set when the host no longer waits for it; the answer is then False.
        capabilities, info: what the host declares, with what the proxy answers, and who it is. The server may be a proxy, too,
            which declares them to a legacy server.
    """
    meta: JsonObject = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}
    # Only what is well-formed: a server's error about the rest would say nothing of its era.
    if is_valid(ClientCapabilities, capabilities):
        meta[CLIENT_CAPABILITIES] = capabilities
    if is_valid(Implementation, info):
        meta[CLIENT_INFO] = info
    reply: Reply | None = None

    async def stop() -> None:
        await given_up.wait()
        nursery.cancel_scope.cancel()

    with trio.move_on_after(PROBE_TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            reply = await upstream.request("server/discover", {"_meta": meta}, stateless=True)
            nursery.cancel_scope.cancel()
    return is_modern(reply)


def is_valid(kind: type[Model], value: JsonValue) -> bool:
    try:
        validated(kind, value, "")
    except RemoteProtocolError:
        return False
    return True


def is_modern(reply: Reply | None) -> bool:
    """Return whether what came back to `server/discover` is of a modern server; None is silence."""
    match reply:
        case Response(_, result):
            return "supportedVersions" in decoded(result)
        case ErrorResponse(_, error) if error.code == UNSUPPORTED_VERSION:
            supported = as_object(error.data).get("supported")
            return newest_version(Era.MODERN, supported if isinstance(supported, list) else []) is not None
        case ErrorResponse(_, error):
            return error.code in MODERN_ERRORS
        case _:
            return False


def declared_in(params: JsonObject) -> tuple[JsonValue, JsonValue]:
    """Return the capabilities that a host declares in its first request, and who it is."""
    meta = params.get("_meta")
    if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
        return meta.get(CLIENT_CAPABILITIES), meta.get(CLIENT_INFO)
    return params.get("capabilities"), params.get("clientInfo")


MAX_WAITING: Final = 256
"""Messages of a host that wait until the server has been reached."""
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024

PassOn: TypeAlias = Callable[[Envelope[Received], HostRequest | None], None]
"""Sends a message of the host on."""


class Waiting(NamedTuple):
    """A message of the host that came before the server's era was known."""

    envelope: Envelope[Received]
    request: HostRequest | None
    inbound: Inbound | None


class Opening:
    """The messages that wait, and the decision that they wait for.

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
        if waiting.request is not None and waiting.request.method == "initialize":
            self.shaken.set()

    def pass_all(self, pass_on: PassOn) -> None:
        """Send everything on that still waits."""
        while self.waiting:
            envelope, request, _ = self.waiting.popleft()
            # Over HTTP a host may have gone meanwhile.
            if request is None or not request.target.finished:
                pass_on(envelope, request)
            else:
                request.give_back()

    async def decide(self, upstream: Upstream, passage: Passage, connection: Connection, pass_on: PassOn) -> str | None:
        """Send on what the host sends until the server's era is known.

        Args:
            connection: the host's; it learns the revision of a session.

        Returns:
            None if it speaks the revision of the host, and everything passes; else the era to open it in, for `Client`.
        """
        while True:  # noqa: ASYNC913  each turn takes a message off the queue, or waits
            while not self.waiting:
                self._more = trio.Event()
                await self._more.wait()
            # Left in the queue until it is known what becomes of it: it is translated, perhaps.
            envelope, request, _ = self.waiting[0]
            agreed = False
            if classify(envelope.message).era is Era.MODERN:
                agreed = await discovers(upstream, self.shaken, *declared_by(passage, request))
                # A host that has given up waiting speaks both eras, and goes on in the other one.
                if not agreed and not self.shaken.is_set():
                    return "legacy"
            elif request is not None and request.method == "initialize":
                accept = partial(accept_handshake, passage, connection, request)
                params = passage.with_offers(request.own_params)
                reply = await upstream.request("initialize", params, accept, stateless=False)
                agreed = isinstance(reply, Response)
                if not agreed and await discovers(upstream, trio.Event(), *declared_by(passage, request)):
                    return "modern"
                if not agreed:
                    self.shaken = trio.Event()
                    reject_handshake(request, reply)
            self.waiting.popleft()
            if request is None or not request.target.finished:
                pass_on(envelope, request)
            else:
                request.give_back()
            if agreed:
                return None


def declared_by(passage: Passage, request: HostRequest | None) -> tuple[JsonValue, JsonValue]:
    """Return what a host declares in its first request, with what the proxy answers, and who it is; None if that is malformed."""
    capabilities, info = declared_in({} if request is None else request.own_params)
    if not is_valid(ClientCapabilities, capabilities):
        return None, info
    return passage.with_offers({"capabilities": capabilities})["capabilities"], info


def accept_handshake(passage: Passage, connection: Connection, request: HostRequest, reply: Reply) -> None:
    """Pass on the server's answer to the handshake, if it is not an error."""
    if isinstance(reply, Response):
        result = as_object(decoded(reply.result))
        version = result.get("protocolVersion")
        passage.open_session(request.principal, request.own_params.get("capabilities"), version)
        if isinstance(version, str) and version in REVISIONS and REVISIONS[version].era is Era.LEGACY:
            connection.set_version(version)
        request.finish(Encoded(dumps(passage.initialized(request.principal, result))))


def reject_handshake(request: HostRequest, reply: Reply) -> None:
    """Pass on the error with which the server, or its connection, answered the handshake."""
    match reply:
        case ErrorResponse(_, error):
            request.finish(error)
        case Malformed(error):
            request.finish(ErrorDetail(INTERNAL_ERROR, failure_text(error, "the server did not answer initialize")))
        case Unanswered(_, why):
            request.finish(ErrorDetail(INTERNAL_ERROR, f"the server did not answer initialize: {why}"))


def terms_problem(inbound: Inbound | None) -> RemoteProtocolError | None:
    """Return the error for a modern request with malformed `_meta`, which has a specific HTTP status (M-META-1s), or None.

    Args:
        inbound: a request that was classified before, as over HTTP; None for others, which the server rejects.
    """
    if inbound is None or inbound.meta is None:
        return None
    try:
        modern_terms(inbound.meta)
    except RemoteProtocolError as error:
        # A revision that is unknown here is for the server to know.
        return without_traceback(error) if error.code == INVALID_PARAMS else None
    return None
