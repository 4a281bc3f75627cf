"""What belongs to the conversation itself and to no call: the handshake, what was agreed in it, and what the client watches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ..errors import LocalProtocolError, RemoteProtocolError
from ..protocol.connection import Connection
from ..protocol.jsonrpc import INVALID_PARAMS, Notification
from ..protocol.revisions import NEWEST_LEGACY, REVISIONS, SUPPORTED, Era
from ..protocol.uri.uris import check_uri
from ..runtime import Outbox
from ..types import (
    ClientCapabilities,
    DiscoverResult,
    EmptyResult,
    Implementation,
    InitializeRequestParams,
    InitializeResult,
    Model,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from .envelope import Envelope
from .leg import Threshold
from .listening import listening
from .service import Plan, Service
from .subscriptions import PROMPTS, RESOURCES, TOOLS, Subscriber

logger = logging.getLogger("trio_mcp.session")

LISTEN: Final = "subscriptions/listen"

MAX_INITIALIZE = 64 * 1024
"""Bytes of what a client says of itself: a session keeps it for as long as it lives."""


class Conversation:
    """The state that a handshake-era session keeps between its requests; a modern one keeps none (M-ST-1s)."""

    __slots__ = ("_attached", "_connection", "_service", "_subscriber", "capabilities", "client", "threshold")

    def __init__(self, service: Service, connection: Connection) -> None:
        self._service = service
        self._connection = connection
        self._subscriber: Subscriber | None = None
        self._attached: Outbox[Envelope] | None = None
        self.threshold = Threshold("info")
        self.capabilities = ClientCapabilities()
        self.client: Implementation | None = None

    # messages that belong to no request

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Where such messages go from now on; None: nowhere, they are kept, each once, until there is a place again."""
        self._attached = outbox
        self._tell()

    def initialized(self) -> None:
        """The client has said so; from now on it hears of changes (L-LC-5s)."""
        if self._subscriber is None:
            lists = (TOOLS, PROMPTS, RESOURCES)
            self._subscriber = Subscriber(lists, self._service.options.watched, self._tell)
            self._service.subscriptions.add(self._subscriber)

    def close(self) -> None:
        if self._subscriber is not None:
            self._service.subscriptions.discard(self._subscriber)
        self._subscriber = self._attached = None

    def _tell(self) -> None:
        """Pass on what has changed; a reader that is too slow for it is waited for by one task."""
        outbox, subscriber = self._attached, self._subscriber
        if outbox is None or subscriber is None:
            return
        if outbox.full:
            if not subscriber.held:
                subscriber.held = True
                self._service.supervisor.spawn(self._tell_later, outbox, subscriber)
            return
        for change in subscriber.take():
            try:
                params = self._connection.codec.encode_notification(change.method, change.params())
            except LocalProtocolError as error:
                logger.debug("a change was not told of: %s", error)
                continue
            outbox.post(Envelope(Notification(change.method, params)))

    async def _tell_later(self, outbox: Outbox[Envelope], subscriber: Subscriber) -> None:
        try:
            await outbox.room()
        finally:
            subscriber.held = False
        self._tell()

    # its own methods

    def initialize(self, params: Model) -> Model:
        assert isinstance(params, InitializeRequestParams)
        if (size := len(params.encode())) > MAX_INITIALIZE:
            raise RemoteProtocolError(
                f"the params of initialize have {size} bytes; the limit is {MAX_INITIALIZE}", code=INVALID_PARAMS
            )
        version = agreed(params.protocol_version)
        self._connection.agree(version)
        self.capabilities = params.capabilities
        self.client = params.client_info
        return InitializeResult(
            protocol_version=version,
            capabilities=self._service.capabilities,
            server_info=self._service.identity,
            instructions=self._service.instructions,
        )

    def ping(self, _params: Model) -> Model:
        return EmptyResult()

    def discover(self, _params: Model) -> Model:
        return DiscoverResult(
            supported_versions=list(SUPPORTED),
            capabilities=self._service.capabilities,
            instructions=self._service.instructions,
        )

    def set_level(self, params: Model) -> Model:
        assert isinstance(params, SetLevelRequestParams)
        self.threshold.level = params.level
        return EmptyResult()

    def subscribe(self, params: Model) -> Model:
        """A client may subscribe before it has said that it is initialized; it is told from then on."""
        assert isinstance(params, SubscribeRequestParams)
        self.initialized()
        assert self._subscriber is not None
        self._service.subscriptions.watch(self._subscriber, params.uri)
        return EmptyResult()

    def unsubscribe(self, params: Model) -> Model:
        assert isinstance(params, UnsubscribeRequestParams)
        check_uri(params.uri)
        if self._subscriber is not None:
            self._service.subscriptions.forget(self._subscriber, params.uri)
        return EmptyResult()

    def listen(self, params: Model) -> Plan:
        assert isinstance(params, SubscriptionsListenRequestParams)
        return listening(params, self._service.capabilities, self._service.options.watched)


OWN_METHODS: Mapping[str, Callable[[Conversation, Model], Model | Plan]] = {
    "initialize": Conversation.initialize,
    "ping": Conversation.ping,
    "server/discover": Conversation.discover,
    "logging/setLevel": Conversation.set_level,
    "resources/subscribe": Conversation.subscribe,
    "resources/unsubscribe": Conversation.unsubscribe,
    LISTEN: Conversation.listen,
}


def agreed(wanted: str) -> str:
    """The revision of a session: the one the client wants if we speak it, else our newest legacy one (L-LC-2s)."""
    revision = REVISIONS.get(wanted)
    return wanted if revision is not None and revision.era is Era.LEGACY else NEWEST_LEGACY
