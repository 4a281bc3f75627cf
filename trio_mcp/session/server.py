"""The server's end of a conversation: messages in, actors started, answers out.

A session owns no task. `receive` works out what a message means and acts on it at once: it answers, cancels, posts a reply to
the mailbox that waits for it, or starts an actor in the service's supervisor. So a reader is never held up by a tool, and a
cancellation overtakes all work.
"""

from __future__ import annotations

import logging

import trio

from ..errors import InvalidRequestState, RemoteProtocolError
from ..protocol.connection import (
    BatchIn,
    CancelIn,
    Connection,
    Event,
    Ignored,
    NotificationIn,
    Phase,
    Refused,
    ReplyIn,
    RequestIn,
    Stray,
)
from ..protocol.jsonrpc import METHOD_NOT_FOUND, Encoded, RequestId, error_response, is_request_id
from ..protocol.revisions import Side
from ..protocol.sealing.request_state import Claims, digest
from ..runtime import CancelReason, Mailbox, Outbox
from ..types import (
    CallToolRequestParams,
    GetPromptRequestParams,
    InputResponseRequestParams,
    JsonObject,
    Model,
    RequestParams,
    ResourceRequestParams,
    declares,
)
from .backchannel import LiveBackchannel
from .batch import OpenBatch
from .call import Call, error_detail
from .conversation import LISTEN, OWN_METHODS, Conversation
from .envelope import Envelope, Received
from .leg import Leg, Listener, RequestFacts, Threshold
from .replay import Recollection
from .revival import Revival
from .service import Plan, Service

logger = logging.getLogger("trio_mcp.session")


class ServerSession:
    """One conversation with a client.

    On a pipe it lives as long as the connection; over HTTP a legacy session lives across requests, and a modern request has a
    session of its own.

    Args:
        shared: see `Connection`.
    """

    def __init__(self, service: Service, *, shared: bool = True) -> None:
        self.service = service
        self.connection = Connection(Side.CLIENT, shared=shared)
        self.awaited: dict[RequestId, Mailbox] = {}
        """The mailboxes that wait for answers to our live requests."""
        self._calls: dict[Listener, Call] = {}
        self._fetching: set[Listener] = set()
        """Those whose call is not here yet: its journal comes out of the store."""
        self._conversation = Conversation(service, self.connection)
        self._idle: trio.Event | None = None

    def receive(
        self, envelope: Envelope[Received], outbox: Outbox[Envelope], *, exclusive: bool = False
    ) -> Listener | OpenBatch | Refused | None:
        """Act on one message; what there is to say about it goes to `outbox`.

        Args:
            exclusive: the outbox serves nothing but this message; it is closed when the message has had its answer.

        Returns:
            the listener of a request, for `disconnect`, or the batch of several; what was wrong with a message that was
            refused unread; else None.
        """
        event = self.connection.receive(envelope.message)
        match event:
            case RequestIn():
                listener = Listener(event.id, outbox, exclusive, self._finished)
                self._serve(event, listener, envelope)
                return listener
            case Refused(error, answer=True):
                outbox.post(Envelope(error_response(error), about=error.request_id))
                return event
            case BatchIn():
                return self._receive_batch(event, envelope, OpenBatch(outbox, exclusive=exclusive))
            case _:
                return self._take(event)

    def _receive_batch(self, event: BatchIn, envelope: Envelope[Received], batch: OpenBatch) -> OpenBatch | None:
        for message in event.messages:
            match self.connection.receive(message):
                case RequestIn() as request:
                    self._serve(request, batch.listener(request.id, self._finished), envelope)
                case Refused(error, answer=True):
                    batch.answer(error_response(error))
                case other:
                    self._take(other)
        return batch if batch.all_read() else None

    def _take(self, event: Event) -> Refused | None:
        """Act on what needs no answer."""
        match event:
            case CancelIn(request_id):
                self._cancel(request_id)
            case ReplyIn(request_id, result):
                self._reply(request_id, result)
            case NotificationIn(method):
                if method == "notifications/initialized":
                    self._conversation.initialized()
            case Refused(error):
                logger.warning("a message was dropped: %s", error)
                return event
            case Ignored(why):
                if isinstance(event, Stray):
                    self.service.strays[event.kind] += 1
                logger.debug("a message was ignored: %s", why)
        return None

    def disconnect(self, listener: Listener | OpenBatch) -> None:
        """Whoever waited for this answer is gone. The call is cancelled unless somebody else waits for it too."""
        if isinstance(listener, OpenBatch):
            for each in listener.listeners:
                if not each.finished:
                    self.disconnect(each)
            return
        call = self._calls.pop(listener, None)
        self._fetching.discard(listener)
        listener.finished = True
        listener.pause = None
        self.connection.answered(listener.request_id)
        if call is not None and call.leg is not None and call.leg.leave(listener):
            call.cancel(CancelReason.DISCONNECT)

    def close(self, reason: CancelReason) -> None:
        """The connection is over: everything that runs for it is cancelled. Parked calls belong to no connection (M-ST-2c)."""
        self.connection.close()
        self._conversation.close()
        self.awaited.clear()
        for listener in list(self._fetching):
            listener.finish(None)
        for listener, call in list(self._calls.items()):
            give_up(listener, call, reason)

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Where messages go that belong to no request, such as changes of lists: on a pipe with everything else, over HTTP
        on the stream that was opened for them. Without one, changes are kept, each once, until there is a place again."""
        self._conversation.attach(outbox)

    @property
    def initialized(self) -> bool:
        """A handshake has been made."""
        return self.connection.phase is Phase.OPEN

    @property
    def busy(self) -> bool:
        """Some request of the client has no answer yet."""
        return bool(self._calls or self._fetching)

    @property
    def working(self) -> bool:
        """Some request of the client that is more than listening has no answer yet."""
        heard = (call.leg for call in self._calls.values())
        return bool(self._fetching) or any(leg is None or leg.facts.method != LISTEN for leg in heard)

    async def idle(self) -> None:
        """Wait until every request of the client has been answered or given up."""
        if self.busy:
            if self._idle is None or self._idle.is_set():
                self._idle = trio.Event()
            await self._idle.wait()

    def __repr__(self) -> str:
        client = self._conversation.client.name if self._conversation.client else "?"
        return f"<ServerSession with {client} calls={len(self._calls)} {self.connection!r}>"

    # one step each

    def _serve(self, request: RequestIn, listener: Listener, envelope: Envelope[Received]) -> None:
        facts = self._facts(request, envelope)
        try:
            self._serve_by_route(request, facts, listener)
        except Exception as error:  # noqa: BLE001  one bad answer must not end the session
            listener.finish(error_detail(facts, error))

    def _facts(self, request: RequestIn, envelope: Envelope[Received]) -> RequestFacts:
        params, meta = request.params, request.meta
        return RequestFacts(
            id=request.id,
            method=request.method,
            codec=request.codec,
            client_capabilities=self._conversation.capabilities if meta is None else meta.client_capabilities,
            client_info=self._conversation.client if meta is None else meta.client_info,
            principal=envelope.peer.principal,
            headers=envelope.peer.headers,
            meta=(params.meta or {}) if isinstance(params, RequestParams) else {},
            size=envelope.size,
        )

    def _serve_by_route(self, request: RequestIn, facts: RequestFacts, listener: Listener) -> None:
        params = request.params
        self._admit(facts, params)
        if (
            request.meta is not None
            and isinstance(params, InputResponseRequestParams)
            and "request_state" in params.model_fields_set
        ):
            self._carry_on(request, params, self._leg(request, facts, listener), listener)
            return
        own = OWN_METHODS.get(request.method)
        answer = self._routed(request, facts) if own is None else own(self._conversation, params)
        if isinstance(answer, Plan):
            self._start(answer, request, facts, listener)
        elif isinstance(answer, Encoded):
            listener.finish(answer)
        else:
            codec = self.connection.codec if request.meta is None else facts.codec  # `initialize` agreed on one
            listener.finish(codec.encode_result(request.method, answer, self.service.signature))

    def _admit(self, facts: RequestFacts, params: Model) -> None:
        gate = facts.codec.gate(facts.method)
        if gate is not None and not declares(self.service.capabilities, gate):
            raise RemoteProtocolError(f"this server does not offer {facts.method}", code=METHOD_NOT_FOUND)
        guard = self.service.guards.get(facts.method)
        if guard is not None:
            guard(facts, params)

    def _routed(self, request: RequestIn, facts: RequestFacts) -> Model | Encoded | Plan:
        route = self.service.routes.get(request.method)
        if route is None:
            raise RemoteProtocolError(f"this server does not offer {request.method}", code=METHOD_NOT_FOUND)
        return route(facts, request.params)

    def _leg(self, request: RequestIn, facts: RequestFacts, listener: Listener) -> Leg:
        meta = request.meta
        if meta is None:
            return Leg(facts, [listener], progress_token(facts.meta), self._conversation.threshold)
        return Leg(facts, [listener], meta.progress_token, Threshold(meta.log_level))

    def _start(self, plan: Plan, request: RequestIn, facts: RequestFacts, listener: Listener) -> None:
        leg = self._leg(request, facts, listener)
        if request.meta is None:
            call = Call(self.service, plan, leg, "")
            call.start_live(LiveBackchannel(self))
        else:
            call = Call(self.service, plan, leg, salient(request.params))
            call.start_rounds()
        self._calls[listener] = call

    def _carry_on(self, request: RequestIn, params: InputResponseRequestParams, leg: Leg, listener: Listener) -> None:
        """A request that brings a `requestState` carries a call forward: the parked one, or one that is to run again."""
        facts = leg.facts
        claims = self.service.sealer.open(params.request_state, facts.principal, facts.method, salient(params))
        recollection = Recollection.read(claims.journal)
        if self._join(claims, recollection, params, leg, listener):
            return
        ours = recollection.node == self.service.node and not self.service.options.always_replay
        if ours or self.service.directory.adopted(claims.call_id, recollection.node, claims.leg):
            raise InvalidRequestState("the call ended, and its outcomes are no longer kept")
        plan = self._routed(request, facts)
        if not isinstance(plan, Plan):
            raise InvalidRequestState("what is called now is not what was called then")
        revived = Revival(self.service, plan, claims, recollection, params, leg)
        if recollection.reference is None:
            self._calls[listener] = revived.start()
        else:
            self._fetching.add(listener)
            self.service.supervisor.spawn(self._fetch_and_revive, revived, listener)

    def _join(
        self,
        claims: Claims,
        recollection: Recollection,
        params: InputResponseRequestParams,
        leg: Leg,
        listener: Listener,
    ) -> bool:
        """Carry on the call that lives here, or get the outcome that it left; False when it is to be run again."""
        call = self.service.directory.find(claims.call_id)
        if call is None or call.rounds is None:
            return False
        if recollection.node != self.service.node and call.rounds.overtaken(claims.leg, recollection.asked):
            call.rounds.forget()
            return False
        self._calls[listener] = call  # before its leg can end: finishing takes it out again
        call.rounds.carry_on(claims.leg, leg, listener, params.input_responses or {})
        return True

    async def _fetch_and_revive(self, revival: Revival, listener: Listener) -> None:
        """The journal is in the store. When it has come, who asked may be gone, or a copy of the request may have been first."""
        try:
            fetched = await revival.fetched()
            if listener.finished or self._join(
                fetched.claims, fetched.recollection, fetched.params, fetched.leg, listener
            ):
                return
            if self.service.directory.adopted(fetched.claims.call_id, fetched.recollection.node, fetched.claims.leg):
                raise InvalidRequestState("the call ended, and its outcomes are no longer kept")
            self._calls[listener] = fetched.start()
        except Exception as error:  # noqa: BLE001  nobody else is there to answer it
            if not listener.finished:
                listener.finish(error_detail(revival.leg.facts, error))
        finally:
            self._fetching.discard(listener)

    def _cancel(self, request_id: RequestId) -> None:
        for listener in self._fetching:
            if listener.request_id == request_id:
                listener.finish(None)
                return
        for listener, call in self._calls.items():
            if listener.request_id == request_id:
                self.connection.answered(request_id)
                give_up(listener, call, CancelReason.CLIENT)
                if call.leg is not None and listener in call.leg.listeners:  # nobody else waits for it
                    call.leg.unwanted = True
                return
        logger.debug("a cancellation of %r, which is not running", request_id)

    def _reply(self, request_id: RequestId, result: Model | Exception) -> None:
        mailbox = self.awaited.pop(request_id, None)
        if mailbox is None:
            return
        if isinstance(result, Exception):
            mailbox.fail(str(request_id), result)
        else:
            mailbox.post(str(request_id), result)

    def _finished(self, listener: Listener) -> None:
        self._calls.pop(listener, None)
        self._fetching.discard(listener)
        self.connection.answered(listener.request_id)
        if self._idle is not None and not self.busy:
            self._idle.set()


def give_up(listener: Listener, call: Call, reason: CancelReason) -> None:
    """Nobody wants this answer any more. The call is cancelled unless somebody else waits for it too."""
    if call.leg is not None and len(call.leg.listeners) > 1:
        call.leg.leave(listener)
        listener.finish(None)
    else:
        call.cancel(reason)


def progress_token(meta: JsonObject) -> RequestId | None:
    token = meta.get("progressToken")
    return token if is_request_id(token) else None


def salient(params: Model) -> str:
    """A digest of what a request is about: a retry may change nothing of it (M-MRTR-6s)."""
    match params:
        case CallToolRequestParams(name=name, arguments=arguments):
            return digest(name, arguments or {})
        case GetPromptRequestParams(name=name, arguments=texts):
            return digest(name, dict(texts or {}))
        case ResourceRequestParams(uri=uri):
            return digest(uri, {})
        case _:
            return digest("", {})
