"""Where the messages of a server go at its host: one channel for everything, or over HTTP the stream of each request."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping
from typing import Final

from ..protocol.jsonrpc import Notification, Request, RequestId
from ..protocol.meta import PROGRESS_TOKEN, SUBSCRIPTION_ID
from ..runtime import Outbox
from ..session import Envelope
from ..types import JsonObject, JsonValue, ProgressToken
from .requests import HostRequest
from .rounds import as_object

MAX_UNREAD: Final = 100
"""Messages of the server that belong to no request and wait for a stream of the host (HTTP); older ones are dropped."""


class HostStreams:
    """The streams of one host.

    Attributes:
        outbox: where messages go that belong to no request; over HTTP None while the host reads no stream.
    """

    def __init__(self, *, shared_channel: bool) -> None:
        self.outbox: Outbox[Envelope] | None = None
        # A host on one channel has always one; before it is attached nothing comes.
        self._unread: deque[Envelope] = deque(maxlen=0 if shared_channel else MAX_UNREAD)
        self._tokens: dict[ProgressToken, HostRequest] = {}
        self._new_tokens = itertools.count(1)

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Set where messages go that belong to no request."""
        self.outbox = outbox
        while outbox is not None and self._unread:
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

    def route(self, message: Notification, params: JsonObject, sent: Mapping[RequestId, HostRequest]) -> None:
        """Send a notification on the stream of the request that it belongs to (HTTP).

        Args:
            sent: the requests that are at the server, by their id there.
        """
        token, meta = params.get(PROGRESS_TOKEN), as_object(params.get("_meta"))
        request: HostRequest | None = None
        if message.method == "notifications/progress" and isinstance(token, str | int):
            request = self._tokens.get(token)
            if request is None:
                return
            params = {**params, PROGRESS_TOKEN: request.token}
        elif SUBSCRIPTION_ID in meta:
            request = sent.get(id_in(meta[SUBSCRIPTION_ID]))
            if request is None:
                return
            params = {**params, "_meta": {**meta, SUBSCRIPTION_ID: request.message.id}}
        elif message.method == "notifications/message":
            # Which request it is about is not said: the one that has waited longest.
            request = next(iter(sent.values()), None)
        self.post(Envelope(Notification(message.method, params)), request)

    def post(self, envelope: Envelope, request: HostRequest | None = None) -> None:
        """Send a message on the stream of a request, or where messages go that belong to none."""
        if request is None:
            if self.outbox is None:
                self._unread.append(envelope)
            else:
                self.outbox.post(envelope)
        # A host that does not read one of its streams must not hold up the others.
        elif not request.target.outbox.is_full or isinstance(envelope.message, Request):
            request.target.outbox.post(envelope._replace(about=request.target.request_id))


def id_in(value: JsonValue) -> RequestId:
    """Return an id that a message names; one that no request has if it is malformed."""
    return value if isinstance(value, str | int) else ""
