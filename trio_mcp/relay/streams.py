"""Where the messages of a server go at its host: one channel for everything, or over HTTP the stream of each request."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from typing import Final

from ..protocol.jsonrpc import Notification, RequestId, is_request_id
from ..protocol.revisions import PROGRESS_TOKEN, SUBSCRIPTION_ID
from ..runtime import Outbox
from ..session import Envelope
from ..session.envelope import sent_size
from ..types import JsonObject, JsonValue, ProgressToken
from .bindings import Bindings
from .offers import HostRequest
from .rounds import as_object

MAX_UNREAD: Final = 100
"""Messages of the server that belong to no request and wait for a stream of the host (HTTP); further ones are dropped."""
MAX_UNREAD_BYTES: Final = 1024 * 1024


class HostStreams:
    """The streams of one host.

    Args:
        bindings: for hosts with a principal.

    Attributes:
        outbox: where messages go that belong to no request; over HTTP None while the host reads no stream.
    """

    def __init__(self, bindings: Bindings, *, shared_channel: bool) -> None:
        self._bindings = bindings
        self.outbox: Outbox[Envelope] | None = None
        self._shared = shared_channel
        self._unread: deque[Envelope] = deque()
        self._unread_bytes = 0
        self._tokens: dict[ProgressToken, HostRequest] = {}
        self._new_tokens = itertools.count(1)

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Set where messages go that belong to no request."""
        self.outbox = outbox
        if outbox is not None:
            self._unread_bytes = 0
            while self._unread:
                outbox.post(self._unread.popleft())

    def with_own_token(self, request: HostRequest, params: JsonObject) -> JsonObject:
        """Return the params of a request with a progress token that no other host uses."""
        meta = params.get("_meta")
        token = meta.get(PROGRESS_TOKEN) if isinstance(meta, dict) else None
        if not isinstance(meta, dict) or not isinstance(token, str | int):
            return params
        request.token, request.sent_token = token, next(self._new_tokens)
        self._tokens[request.sent_token] = request
        params = {**params, "_meta": {**meta, PROGRESS_TOKEN: request.sent_token}}
        if request.params is not None:
            request.params = params
        return params

    def forget(self, request: HostRequest) -> None:
        """Drop further reports about a request."""
        if request.sent_token is not None:
            self._tokens.pop(request.sent_token, None)

    def route(
        self,
        message: Notification,
        params: JsonObject,
        size: int,
        sent: Mapping[RequestId, HostRequest],
        only_host: HostRequest | None,
        session_principal: str | None,
    ) -> bool:
        """Send a notification on the stream of the request that it belongs to (HTTP); False if it was dropped.

        Args:
            size: bytes of memory that it takes.
            sent: the requests that are at the server, by their id there.
            only_host: takes what names no request; None if that may be for several hosts.
            session_principal: of the session; None without one.
        """
        token, meta = params.get(PROGRESS_TOKEN), as_object(params.get("_meta"))
        request: HostRequest | None = None
        if message.method == "notifications/progress":
            request = self._tokens.get(token) if is_request_id(token) else None
            if request is None:
                return False
            params = {**params, PROGRESS_TOKEN: request.token}
        elif SUBSCRIPTION_ID in meta:
            named = id_in(meta[SUBSCRIPTION_ID])
            request = None if named is None else sent.get(named)
            if request is None:
                return False
            params = {**params, "_meta": {**meta, SUBSCRIPTION_ID: request.message.id}}
        elif message.method == "notifications/message":
            # Which request it is about is not said.
            request = only_host
        principal = session_principal if request is None else request.principal
        if principal is not None:
            params = self._bindings.notification(principal, message.method, params)
        return self.post(Envelope(message._replace(params=params), size=size), request)

    def post(self, envelope: Envelope, request: HostRequest | None = None) -> bool:
        """Send a message on the stream of a request, or where messages go that belong to none; False if it was dropped."""
        if request is not None:
            envelope, outbox = envelope._replace(about=request.target.request_id), request.target.outbox
        elif self.outbox is not None:
            outbox = self.outbox
        else:
            return self._keep(envelope)
        # A host that does not read one of its streams must not hold up the others. If it has only one, the server waits.
        if outbox.is_full and not self._shared:
            return False
        outbox.post(envelope)
        return True

    def _keep(self, envelope: Envelope) -> bool:
        """Keep a message for the stream that the host may open."""
        if len(self._unread) >= MAX_UNREAD or self._unread_bytes + envelope.size > MAX_UNREAD_BYTES:
            return False
        self._unread.append(envelope)
        self._unread_bytes += envelope.size
        return True


def carried_size(envelope: Envelope) -> int:
    """Return the bytes of memory that a message takes until the host has read it."""
    return sent_size(envelope) + envelope.size + (0 if envelope.raw is None else len(envelope.raw))


def id_in(value: JsonValue) -> RequestId | None:
    """Return an id that a message names; None if it is malformed."""
    return value if is_request_id(value) else None
