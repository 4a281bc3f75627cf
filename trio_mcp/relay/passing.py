"""Passing messages between a host and a server that speak one revision, and answering what the host cannot.

Where both sides are lines, a message that the proxy need not change goes on as the bytes that it came in. Elsewhere it is written
again, with every member of its params or its result.
"""

# Ids. The two directions count separately (JSON-RPC), so on a shared channel ids pass as they are. Over HTTP several clients may
# share one connection to the server, and some number every request 1: there each request gets an id of the proxy, and a progress
# token too. The host's own id is in its `ReplyTarget`.
#
# A request of the host:
#
#     state       sent_as   scope   leaves it by
#     at server   its id    None    the reply (done, or answering), a cancel of the host or the end of the connection (done)
#     answering   None      set     the answers (at server again, or done with a round for the host), a failure or a cancel (done)

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Final, cast

import trio

from ..base.logs import RepeatedRecords, peer_logger
from ..errors import LimitExceeded, McpError, ProtocolError, RemoteProtocolError, ResourceNotFound
from ..protocol.codec import Codec, codec_for
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    SERVER_BUSY,
    Batch,
    Encoded,
    ErrorDetail,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    Unanswered,
    decoded,
    error_response,
)
from ..protocol.revisions import CLIENT_CAPABILITIES, MODERN, NEWEST_LEGACY, PROTOCOL_VERSION, REVISIONS
from ..protocol.strict_json import dumps
from ..runtime import CancelReason
from ..session import Envelope, Received
from ..session.replies import OpenRequests, ReplyTarget
from ..types import JsonObject, JsonValue
from .answers import Answers, Asked
from .bindings import TASK_LIST, Bindings, no_task_list, without_task_list
from .offers import NOTHING, STRAY_SECONDS, HostRequest, host_of
from .rounds import ASKING, MAX_ROUNDS, Round, as_object, read_round, retried
from .streams import HostStreams, id_in
from .upstream import Upstream, failure_text

logger = peer_logger("trio_mcp.relay")

CANCELLED: Final = "notifications/cancelled"


class Passage:
    """Both directions of one connection.

    Args:
        caller: what answers to requests of the server count for, see `Quota`.
        nursery: runs what the proxy answers; the end of the connection cancels it.
        shared_channel: the host has one channel for all its messages. Else it is HTTP, and each reply has an outbox.
        records: for what peers can make the proxy log.
        requests: those of the host that wait for a reply.
        on_session_lost: called with the reason when the server no longer knows the session.
        gone: returns the error for requests that the server does not answer any more, for a reason.
    """

    def __init__(
        self,
        upstream: Upstream,
        answers: Answers,
        caller: Hashable | None,
        bindings: Bindings,
        nursery: trio.Nursery,
        records: RepeatedRecords,
        requests: OpenRequests,
        on_session_lost: Callable[[str], None],
        gone: Callable[[str], str],
        *,
        shared_channel: bool,
    ) -> None:
        self.upstream = upstream
        self._on_session_lost = on_session_lost
        self._gone = gone
        self._answers = answers
        self._offers = answers.backfill.offers
        self._bindings = bindings
        self._principal: str | None = None
        """That of the session, or of the connection; None over HTTP without a session, where each request has one."""
        self._nursery = nursery
        self._records = records
        self._requests = requests
        self._shared = shared_channel
        self.streams = HostStreams(bindings, shared_channel=shared_channel)
        self._host = NOTHING
        self._codec: Codec | None = None
        """That of the session; None while there is none."""
        self._sent: dict[RequestId, HostRequest] = {}
        """The requests of the host that are at the server, by their id there."""
        self._asked = Asked(upstream, answers, caller, nursery)
        self._strays_until = -math.inf
        """Until then the server may send something about a request that was cancelled."""

    # from the host

    def open_session(self, principal: str | None, capabilities: JsonValue, version: JsonValue) -> None:
        """Note whose session it is, what the legacy host declared, and the revision that the server answered with."""
        self._principal = principal
        self._host = host_of(capabilities)
        self._codec = codec_for(version if isinstance(version, str) and version in REVISIONS else NEWEST_LEGACY)

    def forward_request(self, request: HostRequest, envelope: Envelope[Received]) -> None:
        """Send a request of the host on, or answer it with the error that stops it here."""
        try:
            self._forward_request(request, envelope)
        except ProtocolError as error:
            self._forget(request)
            request.finish(ErrorDetail(error.code, str(error), error.data))
        except ResourceNotFound as error:
            self._forget(request)
            revision = codec_for(MODERN).revision if self._codec is None else self._codec.revision
            request.finish(ErrorDetail(revision.missing_resource, str(error), {"uri": error.uri}))

    def _forward_request(self, request: HostRequest, envelope: Envelope[Received]) -> None:
        message = request.message
        if self.upstream.is_full:
            raise RemoteProtocolError(
                "the server does not read what it is sent, and too much waits for it", code=SERVER_BUSY
            )
        params = own = request.own_params
        meta = own.get("_meta")
        if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
            params = self._prepare_modern(request, own, meta)
        elif message.method == "initialize":
            params = self.with_offers(own)
        if request.principal is not None:
            params = self._bound(request.principal, message.method, params)
            if request.params is not None:
                request.params = params
        if self._shared:
            self._principal = request.principal
        request.sent_as = message.id if self._shared else self.upstream.new_id()
        if not self._shared:
            params = self.streams.with_own_token(request, params)
        self._sent[request.sent_as] = request
        if params is own and self._shared and self.upstream.carries:
            self.upstream.post(cast("Envelope", envelope))
        else:
            again = message._replace(id=request.sent_as, params=params)
            self.upstream.send(again, params, request.headers, stateless=request.stateless, size=request.size)

    def _bound(self, principal: str, method: str, params: JsonObject) -> JsonObject:
        """Return the params of a request for a principal. Raises as `Bindings.request`."""
        if method == TASK_LIST and not self._is_private:
            raise no_task_list()
        return self._bindings.request(principal, method, params)

    @property
    def _is_private(self) -> bool:
        """Whether no other principal uses the connection: it is that of a session, and leads to a process for it alone."""
        channel = self.upstream.channel
        return self._codec is not None and (self.upstream.carries or channel.in_process)

    def initialized(self, principal: str | None, result: JsonObject) -> JsonObject:
        """Return the result of `initialize` as the host gets it."""
        return result if principal is None or self._is_private else without_task_list(result)

    def with_offers(self, params: JsonObject) -> JsonObject:
        """Return the params of `initialize` with what the proxy answers."""
        added = self._offers.added_to(params.get("capabilities"))
        return params if added is None else {**params, "capabilities": added}

    def _prepare_modern(self, request: HostRequest, params: JsonObject, meta: JsonObject) -> JsonObject:
        request.stateless = True
        declared = meta.get(CLIENT_CAPABILITIES)
        asking = request.method in ASKING
        if asking and "requestState" in params:
            params = self._bindings.states.joined(request.principal, request.method, params)
        added = self._offers.added_to(declared)
        # Malformed ones are for the server to reject.
        if added is not None and isinstance(declared, dict):
            params = {**params, "_meta": {**meta, CLIENT_CAPABILITIES: added}}
        if asking:
            request.host, request.params = host_of(declared), params
        return params

    def forward(self, envelope: Envelope[Received]) -> None:
        """Send anything else of the host on: a notification, or the answer to a request of the server."""
        message = envelope.message
        if self._asked.are_answered_by(message):
            self._records.log("an answer of the host to a question that the proxy answers was dropped")
        elif self.upstream.is_full:
            self._records.log("a message for a server that does not read was dropped")
        elif isinstance(message, Malformed) and message.answers is not None:
            # Its sender waits for an answer, and gets none that can be read.
            detail = ErrorDetail(INTERNAL_ERROR, "the host sent something that is no answer")
            self.upstream.answer(ErrorResponse(message.answers, detail))
        elif not isinstance(message, Notification | Response | ErrorResponse):
            return
        elif self._principal is not None and isinstance(message, Response):
            answer = self._bindings.answer(self._principal, decoded(message.result))
            self.upstream.post(Envelope(message._replace(result=answer), size=envelope.size))
        elif self.upstream.carries and self._shared:
            self.upstream.post(cast("Envelope", envelope))
        else:
            self.upstream.post(Envelope(message, size=envelope.size))

    def withdraw(self, request: HostRequest, reason: CancelReason, notice: JsonObject | None = None) -> None:
        """Stop a request that its host no longer wants.

        Args:
            notice: the params of the host's cancellation.
        """
        if request.scope is not None:
            request.scope.cancel()
        sent_as = request.sent_as
        self._forget(request)
        if sent_as is not None:
            self._strays_until = trio.current_time() + STRAY_SECONDS
            why: JsonObject = {"reason": f"the host has cancelled the request ({reason.value})"}
            self.upstream.cancel(sent_as, why if notice is None else notice, stateless=request.stateless)

    def _forget(self, request: HostRequest) -> None:
        if request.sent_as is not None:
            self._sent.pop(request.sent_as, None)
            request.sent_as = None
        self.streams.forget(request)
        request.give_back()

    # from the server

    def take(self, envelope: Envelope[Received]) -> None:
        """Act on a message of the server: send it on, or answer it."""
        message = envelope.message
        match message:
            case Response(id, result):
                request = self._sent.pop(id, None)
                if request is None:
                    self._pass_unknown(id, message, envelope)
                elif request.params is None or not self._answer_round(request, as_object(decoded(result))):
                    self._reply(request, envelope, message)
            case ErrorResponse(id):
                request = None if id is None else self._sent.pop(id, None)
                if request is None:
                    self._pass_unknown(id, message, envelope)
                else:
                    self._reply(request, envelope, message)
            case Notification():
                self._take_notification(message, envelope)
            case Request():
                self._take_request(message, envelope)
            case Unanswered(None, why, session_lost=True):
                self._on_session_lost(why)
            case Unanswered(None, why, connection_lost=True):
                self._take_lost_connection(message, why)
            case Unanswered(id, why):
                self._fail(id, message, why)
            case Batch():
                self._take_batch(message, envelope)
            case Malformed(error, answers):
                self._fail(answers, message, failure_text(error, "the answer of the server is malformed"))

    def _take_batch(self, batch: Batch, whole: Envelope[Received]) -> None:
        """Take the messages of an array one by one (2025-03-26); elsewhere it fails the requests that it answers."""
        if self._codec is not None and self._codec.revision.batches:
            try:
                members = batch.messages()
            except RemoteProtocolError as error:
                self.upstream.answer(error_response(error))
                return
            for member in members:
                self.take(Envelope(member, peer=whole.peer, size=whole.size // len(members)))
            return
        self._records.log("an array of the server was dropped: %s", batch.error)
        for item in batch.items:
            if isinstance(item, dict) and "method" not in item and (answered := id_in(item.get("id"))) is not None:
                self._fail(answered, Malformed(batch.error, answered), "the server answered with an array")

    def _take_lost_connection(self, message: Unanswered, why: str) -> None:
        """Answer what was open on a connection that broke off; the next request of a modern host opens another one."""
        if self._codec is not None:
            # The server would know nothing of the session in another one.
            self._on_session_lost(why)
            return
        self.upstream.fail_all(message)
        self.fail_all(self._gone(why))

    def fail_all(self, why: str) -> None:
        """Answer every open request with an error: the server has gone."""
        for request in list(self._sent.values()):
            self._forget(request)
            request.finish(ErrorDetail(INTERNAL_ERROR, why))

    def _fail(self, id: RequestId | None, message: Malformed | Unanswered, why: str) -> None:
        if self.upstream.take_reply(id, message):
            return
        request = None if id is None else self._sent.pop(id, None)
        if request is not None:
            self._forget(request)
            request.finish(ErrorDetail(INTERNAL_ERROR, why))
        elif isinstance(message, Malformed) and message.error.request_id is not None:
            # A request that cannot be read: its sender must not wait.
            if not self.upstream.is_full:
                self.upstream.answer(error_response(message.error))
        else:
            self._records.log("a message of the server was dropped: %s", why)

    def _reply(self, request: HostRequest, envelope: Envelope[Received], message: Response | ErrorResponse) -> None:
        """Pass the server's reply on."""
        self._forget(request)
        target = request.target
        if request.method == "initialize" and isinstance(message, Response):
            version = as_object(decoded(message.result)).get("protocolVersion")
            self.open_session(request.principal, request.own_params.get("capabilities"), version)
        if request.method == "tools/list" and request.stateless and isinstance(message, Response):
            self.upstream.learn_headers(as_object(decoded(message.result)))
        if request.principal is not None and isinstance(message, Response):
            try:
                bound = self._bound_result(request.principal, request, as_object(decoded(message.result)))
            except LimitExceeded as error:
                request.finish(ErrorDetail(INTERNAL_ERROR, str(error)))
                return
            if bound is not None:
                target.finish(Encoded(dumps(bound)), message.more)
                return
        # The answers of a batch are collected (`BatchReplyTarget`).
        if envelope.raw is None or message.id != target.request_id or type(target) is not ReplyTarget:
            target.finish(
                message.error if isinstance(message, ErrorResponse) else Encoded(dumps(decoded(message.result))),
                message.more,
            )
            return
        target.close()
        passed: Envelope = Envelope(message, target.request_id, size=envelope.size, raw=envelope.raw)
        target.outbox.post(passed, last=target.owns_outbox)

    def _bound_result(self, principal: str, request: HostRequest, result: JsonObject) -> JsonObject | None:
        """Return what a principal gets of the server's result; None if that is all of it. Raises as `Bindings.result`."""
        if request.method == "initialize":
            bound = self.initialized(principal, result)
        else:
            bound = self._bindings.result(principal, request.method, request.own_params, result)
        return None if bound is result else bound

    def _pass_unknown(
        self, id: RequestId | None, message: Response | ErrorResponse, envelope: Envelope[Received]
    ) -> None:
        """Pass on a reply that the proxy does not know: to a request that the host has cancelled, or one without an id."""
        if self.upstream.take_reply(id, message) or self.upstream.is_own_id(id):
            return
        # A second answer to a request whose questions are being answered, or which the host has sent again.
        if self._shared and (id is None or not self._requests.is_open(id)):
            self.streams.post(cast("Envelope", envelope))

    def _take_notification(self, message: Notification, envelope: Envelope[Received]) -> None:
        params = decoded(message.params)
        if message.method == CANCELLED and self._asked.cancel(id_in(params.get("requestId"))):
            return
        if self._shared:
            bound = params
            if self._principal is not None:
                bound = self._bindings.notification(self._principal, message.method, params)
            if bound is not params:
                envelope = envelope._replace(message=message._replace(params=bound), raw=None)
            self.streams.post(cast("Envelope", envelope))
        elif not self.streams.route(message, params, envelope.size, self._sent, self._only_host(), self._principal):
            self._records.log("%s was dropped: it belongs to no request, or its host does not read", message.method)

    def _take_request(self, message: Request, envelope: Envelope[Received]) -> None:
        """Answer a request of a legacy server, or pass it on."""
        if self._principal is not None:
            params = decoded(message.params)
            bound = self._bindings.question(self._principal, params)
            if bound is not params:
                message = message._replace(params=bound)
                envelope = envelope._replace(message=message, raw=None)
        if self._codec is None and not self._shared:
            # A modern server, which asks in results. Its connection may be that of several hosts.
            why = f"{message.method} came while no session is open"
            self.upstream.answer(ErrorResponse(message.id, ErrorDetail(INVALID_REQUEST, why)))
        elif self.upstream.is_full:
            self._records.log("%s of a server that does not read was dropped", message.method)
        elif self._offers.answers(self._host, message.method, decoded(message.params)):
            self._asked.take(message, self._codec)
        # Over HTTP on a stream of the request that it is most likely about: a standalone one is for nothing like it.
        elif not self.streams.post(cast("Envelope", envelope), None if self._shared else self._only_host()):
            why = (
                f"{message.method} cannot be passed on: the host does not read, or it is not known which host it is for"
            )
            self.upstream.answer(ErrorResponse(message.id, ErrorDetail(SERVER_BUSY, why)))

    def _only_host(self) -> HostRequest | None:
        """Return the request that a message most likely belongs to which names none; None if it may be that of another host."""
        # Modern requests of several hosts share a connection over HTTP.
        several = self._codec is None and (self._requests.count > 1 or trio.current_time() < self._strays_until)
        return None if several else next(iter(self._sent.values()), None)

    # what the proxy answers

    def _answer_round(self, request: HostRequest, result: JsonObject) -> bool:
        """Begin to answer the questions of an interim result; False if the proxy answers none of them."""
        asked = read_round(self._offers, request.host, result)
        if asked is None:
            return False
        request.sent_as = None
        request.scope = trio.CancelScope()
        self._nursery.start_soon(self._run_round, request, asked, result, request.scope)
        return True

    async def _run_round(self, request: HostRequest, asked: Round, result: JsonObject, scope: trio.CancelScope) -> None:
        """Answer our part of a round, then send the request again, or the host its part."""
        with scope:
            try:
                answers = await self._answers.answer_round(codec_for(MODERN), asked.ours, request.target.caller)
                request.scope = None
                if asked.theirs or not asked.ours:
                    states = self._bindings.states
                    state = states.split(request.principal, request.method, request.own_params, asked, answers)
                    interim: JsonObject = {**result, "inputRequests": asked.theirs, "requestState": state}
                    if not asked.theirs:
                        del interim["inputRequests"]
                    if request.principal is not None:
                        interim = self._bindings.of_call(request.principal, interim)
                    self._forget(request)
                    request.finish(Encoded(dumps(interim)))
                else:
                    self._retry(request, answers, asked.state)
            except McpError as error:
                request.scope = None
                self._forget(request)
                code = error.code if isinstance(error, ProtocolError) else INTERNAL_ERROR
                request.finish(ErrorDetail(code, f"a question of the server has no answer: {error}"))

    def _retry(self, request: HostRequest, answers: JsonObject, state: str | None) -> None:
        request.rounds += 1
        if request.rounds > MAX_ROUNDS:
            raise RemoteProtocolError(
                f"the server asked in more than {MAX_ROUNDS} rounds (MAX_ROUNDS)", code=INTERNAL_ERROR
            )
        assert request.params is not None
        params = retried(request.params, answers, state)
        request.sent_as = self.upstream.new_id()
        self._sent[request.sent_as] = request
        again = request.message._replace(id=request.sent_as, params=params)
        self.upstream.send(again, params, request.headers, stateless=True, size=request.size)
