"""The server's end of a connection: messages in, actors started, answers out.

A session owns no task. `receive` decides what a message means and acts on it immediately: it answers, cancels, posts a reply to
the mailbox that waits for it, or starts an actor in the service's supervisor. So a reader is never held up by a tool, and a
cancellation overtakes all work.
"""

# What a session keeps, and who changes it:
#
#     connection     ids and revisions (`protocol.connection`)     every message
#     _state         subscriptions of a legacy session             its own methods (SESSION_METHODS)
#     _asks          requests that our calls have sent             CallByRequests, and the replies to them
#     requests       the client's requests without a reply         added here; removed by `ReplyTarget.close`
#
# A request is added before it is served, and served at once: when `receive` returns it has been answered, or its target has
# `work`, the call that will answer it. Between the two is only a retry whose journal is still in the store: a target without
# work, which is closed without a reply if its client goes away.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from .. import session
from ..base.logs import RepeatedRecords, peer_logger
from ..base.values import make_tuple
from ..errors import LimitExceeded, RemoteProtocolError
from ..protocol.codec.models import Params, PlainCall, model_of
from ..protocol.codec.reading import Inbound, Phase
from ..protocol.codec.unknown import UnknownParams
from ..protocol.connection import (
    BatchIn,
    CancelIn,
    Connection,
    Event,
    Ignored,
    NotificationIn,
    Rejected,
    ReplyIn,
    RequestIn,
    StrayReply,
)
from ..protocol.jsonrpc import (
    METHOD_NOT_FOUND,
    Encoded,
    ErrorDetail,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Unanswered,
    error_response,
)
from ..protocol.revisions import IDEMPOTENCY_KEY, KEYED_METHOD, Side
from ..protocol.sealing.request_state import RequestDigest
from ..runtime import Account, CancelReason, Journal, Outbox
from ..types import InputResponseRequestParams, JsonObject, Model
from . import calls, recovery
from .calls.asks_requests import CallByRequests, resume_request
from .calls.call import Call, Plan
from .calls.facts import NEVER_A_TASK, RequestFacts, TaskSupport
from .calls.failures import error_detail, told_error
from .calls.services import CallOffers
from .channel import MESSAGE_COST, NO_NETWORK, OVER_HTTP
from .envelope import Envelope, Peer, Received
from .replies import OpenRequests, ReplyTarget
from .service import Service
from .session_state import LISTEN_METHOD, SESSION_METHODS, SessionState

logger = peer_logger("trio_mcp.session")

KEY_MARK: Final = IDEMPOTENCY_KEY.encode()
"""Without these bytes a `_meta` has no idempotency key."""


class ServerSession:
    """The server's end of one connection.

    A transport uses it in one of two ways. If a connection lasts as long as its session, the transport passes a channel to
    `serve_channel`, which creates the session, reads in one task and writes in another. Over HTTP, a session outlives its
    connections or a connection carries one request, and every request already has a task; two more tasks and two queues for each
    would cost more than the call. So `http` and `sse` create the session and pass each message to `receive`. They also use
    `disconnect`, `attach`, `close`, `on_over`, `initialized`, `busy` and the revision of `connection`, and nothing else.

    On a shared channel it lasts as long as the connection. Over HTTP each legacy session has one, and all modern requests share
    one, since no state outlives a modern request.

    Args:
        shared_channel: see `Connection`.
        account: counts what the session keeps; its owner closes it. None counts nothing.
        snapshot: what an earlier process has kept of the session, which goes on here; see `SessionState.restore` for the errors.

    Attributes:
        on_over: set by the transport; called when the session ends by itself, as that of a proxy whose server has gone.
    """

    on_over: Callable[[], None] | None = None

    def __init__(
        self,
        service: Service,
        *,
        shared_channel: bool = True,
        account: Account | None = None,
        snapshot: session.recovery.session_record.SessionSnapshot | None = None,
    ) -> None:
        first_id = 1 if snapshot is None else snapshot.next_request_id
        self.service = service
        self.connection = Connection(
            Side.CLIENT,
            shared_channel=shared_channel,
            first_id=first_id,
            unread=service.offers.unread,
            takes_plain=service.takes_plain,
        )
        self.requests = OpenRequests(self.connection.open_ids)
        """The requests of the client that have no answer yet."""
        self._state = SessionState(service, self.connection, account)
        self._asks = self._state.asks
        self._owns_headers = not shared_channel
        self.network: Mapping[str, str | int] = NO_NETWORK if shared_channel else OVER_HTTP
        """Attributes of its spans that say how its client is connected."""
        self._records: RepeatedRecords | None = None
        if snapshot is not None:
            self._state.restore(snapshot)

    def receive(
        self,
        envelope: Envelope[Received],
        outbox: Outbox[Envelope],
        *,
        owns_outbox: bool = False,
        inbound: Inbound | None = None,
    ) -> ReplyTarget | session.OpenBatch | Rejected | None:
        """Process one message; what is sent in response goes to `outbox`.

        Of a batch it processes as many messages as the turn of the event loop has time for. The caller awaits
        `OpenBatch.read_rest` for the others before it passes the next message.

        Args:
            owns_outbox: the outbox is used for this message only; it is closed after the reply.
            inbound: the classified message of the envelope, if the caller has classified it.

        Returns:
            the reply target of a request, for `disconnect`, or the batch of several; the error of a message that was rejected
            before it was processed; else None.
        """
        peer, size = envelope.peer, envelope.size
        event = self.connection.receive(envelope.message, inbound)
        # Nearly every message; it costs less than a case of the statement below.
        if type(event) is RequestIn:
            target = ReplyTarget(event.id, outbox, owns_outbox, self.requests)
            self._serve(event, target, peer, size)
            return target
        match event:
            case Rejected(error, answer=True):
                outbox.post(Envelope(error_response(error), about=error.request_id))
                return event
            case BatchIn():
                batch = session.batch.OpenBatch(outbox, owns_outbox=owns_outbox)
                unread = iter(event.messages)
                batch.read_more = partial(self._read_batch, unread, peer, size)
                self._read_batch(unread, peer, size, batch)
                return None if batch.finished and not batch.expects_reply else batch
            case _:
                return self._take(event, size)

    def receive_ignored(self, envelope: Envelope[Received], version: str) -> None:
        """Take a notification that no revision of its era gives an effect; message middleware sees it.

        Args:
            version: the revision in which it was sent.
        """

    def _read_batch(
        self, unread: Iterator[Message | Malformed | Unanswered], peer: Peer, size: int, batch: session.OpenBatch
    ) -> None:
        """Process messages of a batch until the turn of the event loop is over, one at least."""
        turn = self.service.turn
        for message in unread:
            match self.connection.receive(message):
                case RequestIn() as request:
                    self._serve(request, batch.reply_target(request.id, self.requests), peer, size)
                case Rejected(error, answer=True):
                    batch.expect()
                    batch.settle(error_response(error))
                case other:
                    self._take(other, size)
            turn.spent += MESSAGE_COST
            if turn.is_over:
                return
        batch.all_read()

    def _take(self, event: Event, size: int) -> Rejected | None:
        """Act on what needs no answer, and came in a message of `size` bytes."""
        match event:
            case CancelIn(request_id):
                self._cancel(request_id)
            case ReplyIn(request_id, result):
                self._asks.deliver(request_id, result, size)
            case NotificationIn(method, params):
                self._notified(method, params)
            case Rejected(error):
                self._records = self._records or RepeatedRecords(logger, self.service.records)
                self._records.log("a message was dropped: %s", error)
                return event
            case Ignored(why):
                if isinstance(event, StrayReply):
                    self.service.calls.stray_replies[event.kind] += 1
                logger.debug("a message was ignored: %s", why)
        return None

    def _notified(self, method: str, params: Model) -> None:
        unknown, telemetry, operation = self.service.offers.unknown, self.service.calls.telemetry, None
        # The name of one that no revision has is the client's to choose.
        if telemetry is not None and not telemetry.is_idle and not isinstance(params, UnknownParams):
            operation = telemetry.taking(method, params, self.connection.terms.codec.revision.name, self.network)
        with operation or nullcontext():
            if unknown is not None and isinstance(params, UnknownParams):
                unknown.take(method, params)
            elif method == "notifications/initialized":
                self._state.initialized()

    def resume(
        self,
        request: Request,
        target: ReplyTarget,
        peer: Peer,
        run: calls.previous_run.PreviousRun,
        log: recovery.stored_journal.CallLog | None = None,
    ) -> None:
        """Serve a request that came before the server was restarted, and whose reply is still owed.

        The call runs again, with the steps that it had recorded, if its tool may be replayed; otherwise the reply is an error.

        Args:
            request: as it came, with decoded params.
            peer: who asks for the reply now.
            log: of the call, for what it does from now on.

        Raises:
            LimitExceeded: the server runs too many calls, or is shutting down; the call does not go on here.
        """
        match self.connection.receive(request):
            case RequestIn() as event:
                self._serve(event, target, peer, 0, (run, log))
            case Rejected(error):
                target.finish(error_response(error).error)
            case other:
                raise AssertionError(f"a request was received as {other!r}")

    def disconnect(self, target: ReplyTarget | session.OpenBatch) -> None:
        """Cancel the call whose reply cannot be delivered any more, unless another request still waits for it."""
        if not isinstance(target, ReplyTarget):
            for each in target.reply_targets:
                if not each.finished:
                    self.disconnect(each)
            return
        work = target.work
        target.close()
        if work is not None:
            work.disconnect(target)

    def close(self, reason: CancelReason, reply: ErrorDetail | None = None) -> None:
        """Cancel every running call of a connection that has ended. Parked calls belong to no connection (M-ST-2c).

        Args:
            reply: to the requests that get no other one and were not cancelled by the client; None where it cannot be reached.
        """
        self.connection.close()
        telemetry, opened_at = self.service.calls.telemetry, self._state.opened_at
        if telemetry is not None and opened_at is not None:
            telemetry.session_ended("server", opened_at, self.connection.terms.codec.revision.name, self.network)
        self._state.close(reason)
        # Before their questions are forgotten: a call that another connection waits for asks them again there.
        for target in list(self.requests):
            if not self.requests.was_cancelled(target):
                # The first end counts, as with the reason of a cancel: a call may not have ended before the next.
                target.fallback = target.fallback or reply
            withdraw(target, reason)
        self._asks.close()
        if self._records is not None:
            self._records.close()

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Set the outbox for messages that belong to no request, such as changes of lists; None removes it.

        On a shared channel it is the outbox of the channel, over HTTP that of the GET stream. Without one, changes are kept, each
        once, until there is one again.
        """
        self._state.attach(outbox)

    def snapshot(self) -> session.recovery.session_record.SessionSnapshot:
        """Return what the next process needs to go on with this session, which is initialized."""
        return self._state.snapshot()

    @property
    def changes(self) -> int:
        """Counts the changes of the snapshot."""
        return self._state.changes

    @property
    def has_answers(self) -> bool:
        """Whether answers have come that would not survive a crash, and should."""
        return self._asks.has_answers

    async def commit_answers(self) -> bool:
        """Return when the answers that have come would survive a crash; a store that fails is logged."""
        return await self._asks.commit_answers()

    @property
    def initialized(self) -> bool:
        """Whether the handshake has been made."""
        return self.connection.terms.phase is Phase.OPEN

    @property
    def busy(self) -> bool:
        """Whether a request of the client has no reply yet."""
        return self.requests.count > 0

    def serve_alone(self, version: str | None) -> None:
        """Serve a single request of a legacy client, whose session no process keeps.

        Args:
            version: the revision of the request; None for `initialize`, which negotiates one.
        """
        self._state.is_alone = True
        self.connection.terms.log_threshold.level = None
        if version is not None:
            self.connection.set_version(version)

    async def drain(self) -> None:
        """End the streams of changes, and wait until every other request was answered or given up."""
        for target in list(self.requests):
            if target.work is not None and target.work.method == LISTEN_METHOD:
                withdraw(target, CancelReason.DISCONNECT)
        await self.requests.wait_none_left()

    @property
    def working(self) -> bool:
        """Whether a request of the client, other than `subscriptions/listen`, has no reply yet."""
        return any(target.work is None or target.work.method != LISTEN_METHOD for target in self.requests)

    def __repr__(self) -> str:
        client = self.connection.terms.client_info
        name = client.name if client else "?"
        return f"<ServerSession with {name} calls={len(self.requests)} {self.connection!r}>"

    # one step each

    def _serve(
        self,
        request: RequestIn,
        target: ReplyTarget,
        peer: Peer,
        size: int,
        run: tuple[calls.previous_run.PreviousRun, recovery.stored_journal.CallLog | None] | None = None,
    ) -> None:
        request_id, method, params, terms = request
        principal, headers, _, caller = peer
        turn, session = self.service.turn, None if terms.asks_in_rounds else self._state
        owns_headers = self._owns_headers
        facts = make_tuple(
            RequestFacts, (request_id, method, terms, principal, headers, turn, size, caller, owns_headers, session)
        )
        self.requests.add(target)
        telemetry, operation = self.service.calls.telemetry, None
        if telemetry is not None:
            operation = target.operation = telemetry.serving(facts, params, self.network)
        try:
            answer = self._answer(facts, params, target) if run is None else self._resumed(facts, params, target, *run)
        except Exception as error:
            if run is not None and isinstance(error, LimitExceeded):
                # It has run before, and goes on when there is room: the error for a call that is not run would be wrong.
                raise
            failures = self.service.calls.failures
            visible = told_error(failures, facts, error, "") if self.service.options.tell_errors else error
            target.finish(error_detail(failures, facts, visible))
            # Its traceback holds this frame.
            del visible
        else:
            if answer is not None:
                target.finish(answer)
        finally:
            if operation is not None:
                operation.leave()

    def _answer(self, facts: RequestFacts, params: Params, target: ReplyTarget) -> Encoded | None:
        """Return the answer to a request, or None if a call was started or carried on that will answer it."""
        if type(params) is UnknownParams:
            self._start_unread(facts, params, target)
            return None
        service, terms, method = self.service, facts.terms, facts.method
        codec, asks_in_rounds = terms.codec, terms.asks_in_rounds
        if method not in service.offered[codec.name]:
            raise not_offered(facts)
        # The terms are asked too: `model_fields_set` has unknown members, and a legacy client may send one of that name.
        if (
            asks_in_rounds
            and type(params) is not PlainCall
            and isinstance(params, InputResponseRequestParams)
            and "request_state" in params.model_fields_set
        ):
            check = service.offers.request_checks.get(method)
            if check is not None:
                check(facts, params)
            calls.next_leg.carry_on(service.calls, service.offers.calls, facts, params, target, self._route)
            return None
        key = keyed = None
        if method == KEYED_METHOD and terms.meta.raw.find(KEY_MARK) >= 0:
            params = model_of(params)
            key = session.idempotency.read_key(facts, params)
            keyed = session.keyed_calls.KeyedRequest(self._asks, self._start_call, facts, params, target)
            if key is not None and service.idempotency_keys.repeat(
                key, keyed, service.offers.request_checks.get(method)
            ):
                return None
        own_method = SESSION_METHODS.get(method)
        answer = self._route(facts, params) if own_method is None else own_method(self._state, model_of(params), facts)
        if not isinstance(answer, Plan):
            if isinstance(answer, Encoded):
                return answer
            return codec.encode_result(method, answer, service.calls.server_info_json)
        makes_task = as_task = False
        if answer.task is not NEVER_A_TASK and service.tasks.is_wanted(facts, model_of(params)):
            makes_task = True
            # A modern caller takes whatever it gets; one of 2025-11-25 has asked for a task, and gets it at once.
            as_task = not (answer.task is TaskSupport.LATER and asks_in_rounds)
        if key is not None and keyed is not None:
            new = session.idempotency.NewCall(service.offers.calls, answer, as_task)
            service.idempotency_keys.start(key, new, keyed, makes_task=makes_task)
        elif as_task:
            service.tasks.start(answer, facts, model_of(params), target)
        else:
            self._start_call(service.offers.calls, answer, facts, params, target)
        return None

    def _start_unread(self, facts: RequestFacts, params: UnknownParams, target: ReplyTarget) -> None:
        """Start the call that passes a request on unread."""
        assert self.service.offers.unknown is not None
        plan, begin = self.service.offers.unknown.serve(facts, params)
        # In this step, and not in that of its actor: messages are passed on in the order in which they came.
        begin(self._start_call(self.service.offers.calls, plan, facts, params, target))

    def _resumed(
        self,
        facts: RequestFacts,
        params: Params,
        target: ReplyTarget,
        run: calls.previous_run.PreviousRun,
        log: recovery.stored_journal.CallLog | None,
    ) -> Encoded | None:
        """Return the answer to a request from before a restart, or None if a call was started that will answer it."""
        answer = self._route(facts, params)
        if isinstance(answer, Encoded):
            return answer
        if not isinstance(answer, Plan):
            return facts.terms.codec.encode_result(facts.method, answer, self.service.calls.server_info_json)
        resume_request(self.service.calls, self.service.offers.calls, answer, facts, target, self._asks, run, log)
        target.params = model_of(params)
        return None

    def _start_call(
        self,
        offers: CallOffers,
        plan: Plan,
        facts: RequestFacts,
        params: Params,
        target: ReplyTarget,
        run: calls.previous_run.PreviousRun | None = None,
    ) -> Call:
        """Start a call; once more if an earlier run has left something, with what that has recorded.

        Args:
            offers: those that the plan is of.
        """
        services = self.service.calls
        if facts.terms.asks_in_rounds:
            journal = None if run is None else Journal(run.entries)
            return calls.asks_rounds.CallInRounds(
                services, offers, plan, facts, target, RequestDigest(params), None, journal
            )
        if run is None:
            call = CallByRequests(services, offers, plan, facts, target, self._asks)
        else:
            # What it asked on another connection has lost its prompt there.
            call = resume_request(services, offers, plan, facts, target, self._asks, replace(run, requests={}), None)
        if services.is_durable:
            target.params = model_of(params)
        return call

    def _route(self, facts: RequestFacts, params: Params) -> Model | Encoded | Plan:
        service = self.service
        route = service.routes.get(facts.method)
        if route is None:
            raise not_offered(facts)
        # A `PlainCall` came only where the route takes one (`Service.takes_plain`).
        return route(facts, params)  # type: ignore[arg-type]

    async def forward(self, method: str, params: JsonObject, send: Callable[[Notification | Request], None]) -> Model:
        """Send the client a request unread, and return its answer; see `PendingAsks.forward`."""
        return await self._asks.forward(method, params, send)

    def notify(self, method: str, params: Model) -> None:
        """Send a notification that belongs to no request, or drop it if the client cannot be reached now, or is slow to read."""
        self._state.notify(method, params)

    def _cancel(self, request_id: RequestId) -> None:
        target = self.requests.take(request_id)
        if target is None:
            logger.debug("a cancellation of %r, which is not running", request_id)
            return
        withdraw(target, CancelReason.CLIENT)


def not_offered(facts: RequestFacts) -> RemoteProtocolError:
    return RemoteProtocolError(f"this server does not offer {facts.method}", code=METHOD_NOT_FOUND)


def withdraw(target: ReplyTarget, reason: CancelReason) -> None:
    """Stop working for a request."""
    if target.work is None:
        target.finish(None)
    else:
        target.work.withdraw(target, reason)
