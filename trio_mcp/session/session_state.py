"""What a session keeps between its requests: what was agreed in `initialize`, and the changes that the client subscribed to."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from .. import session, types
from ..base.logs import peer_logger
from ..errors import LocalProtocolError, RemoteProtocolError
from ..protocol.connection import Connection
from ..protocol.json_limits import held_size
from ..protocol.jsonrpc import INVALID_PARAMS, Encoded, Notification, Request
from ..protocol.revisions import NEWEST_LEGACY, REVISIONS, SUPPORTED, Era
from ..protocol.uri.uris import check_uri
from ..runtime import Account, CancelReason, Outbox
from ..types import EmptyResult, InitializeRequestParams, InitializeResult, Model, ServerCapabilities
from .calls.asks_requests import CallByRequests
from .calls.call import Body, Plan
from .calls.facts import Asking, RequestFacts, SessionFacts
from .calls.pending_asks import PendingAsks
from .envelope import SUBSCRIPTION_SIZE, Caller, Envelope
from .replies import OwnTarget
from .service import Service
from .subscriptions import PROMPTS, RESOURCES, TOOLS, Subscriber

if TYPE_CHECKING:
    from ..protocol.codec.tasks import TaskState
    from .recovery.session_record import SessionSnapshot

logger = peer_logger("trio_mcp.session")

LISTEN_METHOD: Final = "subscriptions/listen"

MAX_INITIALIZE = 64 * 1024
"""Bytes of what a client says of itself: a session keeps it for as long as it lives."""


class SessionState:
    """The state that a legacy session keeps between its requests, and the methods that change it; see also `SessionTerms`."""

    __slots__ = (
        "_account",
        "_connection",
        "_declared",
        "_facts",
        "_outbox",
        "_own_targets",
        "_service",
        "_subscriber",
        "asks",
        "changes",
        "is_alone",
        "opened_at",
    )

    def __init__(self, service: Service, connection: Connection, account: Account | None = None) -> None:
        self._service = service
        self._connection = connection
        self.asks = PendingAsks(connection, self.post, account)
        """The requests of the session to its client."""
        self._account = account
        self._subscriber: Subscriber | None = None
        self.opened_at: float | None = None
        """When the handshake was made, in seconds of `time.perf_counter`; None before, and after the end."""
        self._outbox: Outbox[Envelope] | None = None
        self._declared: ServerCapabilities | None = None
        """What `initialize` was answered with: a repeated one gets the same. None before the first."""
        self._facts: SessionFacts | None = None
        self._own_targets = set[OwnTarget]()
        """Those of the calls that ask on the session's channel."""
        self.changes = 0
        """Counts what changes the snapshot."""
        self.is_alone = False
        """Whether nothing of it outlives the request."""

    @property
    def facts(self) -> SessionFacts:
        """The session as what outlives a request knows it; made when the first such thing needs it."""
        if self._facts is None:
            self._facts = self._new_facts(secrets.token_urlsafe(16))
            self.changes += 1
        return self._facts

    def _new_facts(self, owner: str) -> SessionFacts:
        return SessionFacts(owner, self.notify, self._notify_task, self._ask, self._is_reachable)

    # over a restart

    def snapshot(self) -> SessionSnapshot:
        """Return what the next process needs to go on with the session, which is open."""
        terms, subscriber = self._connection.terms, self._subscriber
        assert terms.proposed_version is not None
        assert terms.client_info is not None
        return session.recovery.session_record.SessionSnapshot(
            revision=terms.codec.revision.name,
            proposed=terms.proposed_version,
            capabilities=terms.client_capabilities.wire(),
            client_info=terms.client_info.wire(),
            log_level=terms.log_threshold.level,
            initialized=subscriber is not None,
            watched=() if subscriber is None else tuple(subscriber.uris),
            owner=None if self._facts is None else self._facts.owner,
        )

    def restore(self, snapshot: SessionSnapshot) -> None:
        """Go on with a session of an earlier process.

        Raises:
            LimitExceeded: the memory budget has no room for it.
            RemoteProtocolError: its revision is not supported any more.
            ValueError: another version of this package wrote the snapshot.
        """
        self._declared = self._open(snapshot.handshake, snapshot.revision)
        self._connection.terms.log_threshold.level = snapshot.log_level
        if snapshot.initialized:
            self.initialized()
        # Who the caller is, its next request says; until then it gets no news of resources that need scopes.
        for uri in snapshot.watched:
            self._watch(uri, None)
        if snapshot.owner is not None:
            self._facts = self._new_facts(snapshot.owner)

    # messages that belong to no request

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Send such messages there from now on; with None they are kept, each once, until there is an outbox again."""
        self._outbox = outbox
        self._send_changes()
        if outbox is not None and self._facts is not None:
            self._service.tasks.reached(self._facts)

    def notify(self, method: str, params: Model) -> None:
        """Send a notification, or drop it if the client cannot be reached now, or is slow to read."""
        self.post(Notification(method, self._connection.terms.codec.encode_notification(method, params)))

    def post(self, message: Notification | Request) -> None:
        """Send a message that belongs to no request and whose answer is not needed; it is dropped as by `notify`."""
        outbox = self._outbox
        if outbox is None or outbox.is_full:
            logger.debug("%s was dropped: the client does not read", message.method)
            return
        outbox.post(Envelope(message), unasked=True)

    def _notify_task(self, state: TaskState) -> None:
        """Send the news that a task has changed, as `notify` does."""
        outbox = self._outbox
        if outbox is not None and not outbox.is_full:
            news = Notification(*self._connection.terms.codec.encode_task_notification(state))
            outbox.post(Envelope(news), unasked=True)

    def _is_reachable(self) -> bool:
        return self._outbox is not None

    def _ask(self, asking: Asking) -> Callable[[], None] | None:
        """Start a call that asks on the session's own channel; return what cancels it, None if the client does not read now."""
        outbox = self._outbox
        if outbox is None or outbox.is_full:
            return None
        target = OwnTarget(outbox)
        plan = Plan(cast("Body", asking.run), asking.facts.method)
        call = CallByRequests(self._service.calls, self._service.offers.calls, plan, asking.facts, target, self.asks)
        self._own_targets.add(target)
        target.on_closed = partial(self._own_ended, asking)
        return partial(call.actor.cancel, CancelReason.EXPIRED)

    def _own_ended(self, asking: Asking, target: OwnTarget) -> None:
        self._own_targets.discard(target)
        asking.ended()

    def initialized(self) -> None:
        """The client is ready: from now on it is notified of changes (L-LC-5s)."""
        if self._subscriber is None:
            self.changes += 1
            lists = (TOOLS, PROMPTS, RESOURCES)
            caller = None if self._account is None else self._account.caller
            self._subscriber = Subscriber(lists, self._service.options.watched, self._send_changes, caller)
            self._service.subscriptions.add(self._subscriber)
            self._service.sessions += 1
            self.opened_at = time.perf_counter()

    def close(self, reason: CancelReason) -> None:
        if self._subscriber is not None:
            self._service.subscriptions.discard(self._subscriber)
            self._service.sessions -= 1
        self._subscriber = self._outbox = self.opened_at = None
        for target in list(self._own_targets):
            if target.work is not None:
                target.work.withdraw(target, reason)
        if self._facts is not None:
            facts = self._facts
            facts.notify = facts.notify_task = facts.ask = facts.is_reachable = None
            # A session that only its process gives up goes on in the next one, and so do its tasks.
            if reason is not CancelReason.SHUTDOWN:
                self._service.tasks.end_session(self._facts)
            self._facts = None

    def _send_changes(self) -> None:
        """Send notifications of changes; if the reader is too slow, one task waits for it."""
        outbox, subscriber = self._outbox, self._subscriber
        if outbox is None or subscriber is None:
            return
        # To post above the limit would let changes pile up for a client that does not read. They are kept by the subscriber
        # meanwhile, which holds each change once.
        if outbox.is_full:
            if not subscriber.is_waiting:
                subscriber.is_waiting = True
                self._service.supervisor.spawn(self._send_changes_when_ready, outbox, subscriber)
            return
        for change in subscriber.take():
            try:
                params = self._connection.terms.codec.encode_notification(change.method, change.params())
            except LocalProtocolError as error:
                logger.debug("a change was not announced: %s", error)
                continue
            outbox.post(Envelope(Notification(change.method, params)), unasked=True)

    async def _send_changes_when_ready(self, outbox: Outbox[Envelope], subscriber: Subscriber) -> None:
        try:
            await outbox.wait_not_full()
        finally:
            subscriber.is_waiting = False
        self._send_changes()

    # its own methods

    def initialize(self, params: Model, _facts: RequestFacts) -> Encoded:
        """Open the session, or answer an equal handshake once more; the connection rejects any other.

        The result is written in the revision that was negotiated here.
        """
        assert isinstance(params, InitializeRequestParams)
        if self._declared is None:
            self._declared = self._open(params, negotiated_version(params.protocol_version))
        codec = self._connection.terms.codec
        result = InitializeResult(
            protocol_version=codec.revision.name,
            capabilities=self._declared,
            server_info=self._service.identity,
            instructions=self._service.offers.instructions,
        )
        return codec.encode_result("initialize", result)

    def _open(self, params: InitializeRequestParams, version: str) -> ServerCapabilities:
        """Open the session; return what the server offers now."""
        if (size := len(params.encode())) > MAX_INITIALIZE:
            raise RemoteProtocolError(
                f"the params of initialize have {size} bytes; the limit is {MAX_INITIALIZE}", code=INVALID_PARAMS
            )
        held = held_size(params.encode())
        self._check(held)
        self._connection.accept_handshake(params, version)
        self._draw(held)
        return without_session(self._service.capabilities) if self.is_alone else self._service.capabilities

    def _check(self, size: int) -> None:
        """Raise `LimitExceeded` unless the memory budget has room for what the session is to keep."""
        if self._account is not None:
            self._account.check(size)

    def _draw(self, size: int) -> None:
        if self._account is not None:
            self._account.draw(size)

    def ping(self, _params: Model, _facts: RequestFacts) -> Model:
        return EmptyResult()

    def discover(self, _params: Model, _facts: RequestFacts) -> Model:
        return types.DiscoverResult(
            supported_versions=list(SUPPORTED),
            capabilities=self._service.capabilities,
            instructions=self._service.offers.instructions,
        )

    def set_level(self, params: Model, _facts: RequestFacts) -> Model:
        assert isinstance(params, types.SetLevelRequestParams)
        self._connection.terms.log_threshold.level = params.level
        self.changes += 1
        return EmptyResult()

    def subscribe(self, params: Model, facts: RequestFacts) -> Model:
        """Subscribe to a resource. It may come before `notifications/initialized`, which it then implies."""
        assert isinstance(params, types.SubscribeRequestParams)
        self._service.check_subscription(facts.caller, params.uri)
        self._watch(params.uri, facts.caller)
        self.changes += 1
        return EmptyResult()

    def _watch(self, uri: str, caller: Caller | None) -> None:
        self.initialized()
        assert self._subscriber is not None
        self._subscriber.sees = partial(self._service.sees, caller)
        size = 0 if uri in self._subscriber.uris else SUBSCRIPTION_SIZE + len(uri)
        self._check(size)
        self._service.subscriptions.subscribe(self._subscriber, uri)
        self._draw(size)

    def unsubscribe(self, params: Model, _facts: RequestFacts) -> Model:
        assert isinstance(params, types.UnsubscribeRequestParams)
        check_uri(params.uri)
        if self._subscriber is not None and params.uri in self._subscriber.uris:
            self._service.subscriptions.unsubscribe(self._subscriber, params.uri)
            self._draw(-SUBSCRIPTION_SIZE - len(params.uri))
            self.changes += 1
        return EmptyResult()

    def listen(self, params: Model, facts: RequestFacts) -> Plan:
        assert isinstance(params, types.SubscriptionsListenRequestParams)
        return session.listen_requests.listen_plan(self._service, facts, params)


SESSION_METHODS: Mapping[str, Callable[[SessionState, Model, RequestFacts], Model | Encoded | Plan]] = {
    "initialize": SessionState.initialize,
    "ping": SessionState.ping,
    "server/discover": SessionState.discover,
    "logging/setLevel": SessionState.set_level,
    "resources/subscribe": SessionState.subscribe,
    "resources/unsubscribe": SessionState.unsubscribe,
    LISTEN_METHOD: SessionState.listen,
}


def without_session(offered: ServerCapabilities) -> ServerCapabilities:
    """Return the capabilities without those that need a session."""
    lists = {
        "tools": offered.tools and types.ToolsCapability(),
        "prompts": offered.prompts and types.PromptsCapability(),
        "resources": offered.resources and types.ResourcesCapability(),
    }
    return offered.model_copy(update={"logging": None, "tasks": None, **lists})


def negotiated_version(wanted: str) -> str:
    """Return the revision of a session: the one the client wants if it is supported, else the newest legacy one (L-LC-2s)."""
    revision = REVISIONS.get(wanted)
    return wanted if revision is not None and revision.era is Era.LEGACY else NEWEST_LEGACY
