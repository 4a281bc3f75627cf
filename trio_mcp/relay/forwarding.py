"""Passing the messages of hosts on to a server that speaks their revision, and back, and answering what a host cannot.

Nothing is read but what the proxy answers, and what it binds to principals: requests are sent with the members that they came
with, and results come back with theirs. Ids and progress tokens are those of each connection.
"""

# Where a message of the server goes:
#
#     names a request of the host, as its subscription   the stream of that request
#     progress                                           one channel: as it is; over HTTP the request that has the token
#     a log message over HTTP                            the stream of the only request that it may be about
#     any other notification                             the channel of the session; over HTTP kept until its stream is open
#     a request                                          the proxy, or over HTTP the stream of the request that has run longest

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias, cast

import trio

from ..client.handlers import Handlers
from ..client.link import Link
from ..client.unread_requests import UnreadRequest
from ..errors import (
    Disconnected,
    LimitExceeded,
    LocalProtocolError,
    PeerError,
    ProtocolError,
    RemoteProtocolError,
    RequestRejected,
    SessionLost,
    Unreachable,
)
from ..protocol.codec import codec_for
from ..protocol.codec.models import validated
from ..protocol.codec.unknown import UnknownParams, UnknownResult, Unread
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    SERVER_BUSY,
    Encoded,
    ErrorDetail,
    Notification,
    Request,
    RequestId,
    as_integer,
    is_request_id,
)
from ..protocol.revisions import CLIENT_CAPABILITIES, MODERN, PROGRESS_TOKEN, SUBSCRIPTION_ID
from ..protocol.strict_json import dumps
from ..runtime import Actor, Lane, Outbox
from ..session import Call, Envelope, Plan, RequestFacts, RequestHandler, ServerSession
from ..session.forwarded import ForwardedRequest
from ..session.service import UnknownMethods
from ..types import JsonObject, Model, ProgressToken
from .answers import Answers
from .bindings import TASK_LIST, Bindings, no_task_list
from .offers import NOTHING, STRAY_SECONDS, Host, host_of
from .rounds import ASKING, INTERIM, MAX_ROUNDS, Round, as_object, read_round, retried
from .session_memory import SessionMemory
from .streams import MAX_UNREAD, MAX_UNREAD_BYTES, HostStream, RepeatedArguments, notification

SentRequest: TypeAlias = ForwardedRequest | UnreadRequest

PROGRESS: Final = "notifications/progress"
LOG: Final = "notifications/message"
INITIALIZE: Final = "initialize"
MAX_UNSENT: Final = 4096
"""Messages that wait for a server that does not read."""
MAX_UNSENT_BYTES: Final = 16 * 1024 * 1024


class Forwarding:
    """The messages of one host, or of several modern ones over HTTP.

    Args:
        caller: what answers to questions of the server count for, see `Quota`.
        name: what errors call the server.
        shared_channel: the host has one channel for all its messages. Else it is HTTP, and each request has a stream.

    Attributes:
        link: to the server; set before anything passes.
        why_lost: returns why the server has gone; None while it has not.
        principal: of the legacy session, or of the only host.
        memory: of the legacy session, if it is opened again when the server has lost it.
    """

    link: Link

    def __init__(
        self, answers: Answers, caller: Hashable | None, bindings: Bindings, name: str, *, shared_channel: bool
    ) -> None:
        self.why_lost: Callable[[], str | None] = lambda: None
        self.principal: str | None = None
        self.memory: SessionMemory | None = None
        self._answers, self._offers = answers, answers.backfill.offers
        self._caller = caller
        self._bindings = bindings
        self._name = name
        self._shared = shared_channel
        self._streams = HostStream(shared_channel=shared_channel)
        self._session: ServerSession | None = None
        self._opened = trio.Event()
        self._early: list[Callable[[], None]] = []
        """What the server has sent before its host could be answered that the session is open."""
        self._early_bytes = 0
        self._handshake: tuple[JsonObject, JsonObject] | None = None
        """The params of `initialize`, and its result; None for a modern server."""
        self._is_private = False
        self._host = NOTHING
        self._running: dict[Call, None] = {}
        self._tokens: dict[RequestId, tuple[Call, ProgressToken]] = {}
        """The calls that reports of progress are for, by the token at the server; over HTTP."""
        self._new_tokens = itertools.count(1)
        self._headers = RepeatedArguments()
        self._unsent_bytes = 0
        """Of requests, since nothing waited for the server."""
        self._strays_until = -math.inf
        """Until then the server may send something about a modern request that was cancelled."""

    def error_of(self, error: PeerError | Disconnected, method: str) -> ErrorDetail:
        """Return the error for a host whose request the server has answered with an error, or not at all."""
        if isinstance(error, PeerError):
            return ErrorDetail(error.code, error.message, error.data, error.more)
        why = self.why_lost()
        text = f"{self._name} has gone: {why or error}"
        if why is None and self.memory is not None:
            if isinstance(error, Unreachable):
                text += "" if self.link.has_session else ". The proxy goes on trying to reach it"
            elif method == "tools/call" and not isinstance(error, SessionLost):
                text += ". The tool may or may not have run"
        return ErrorDetail(INTERNAL_ERROR, text)

    @property
    def unread(self) -> UnknownMethods:
        """What passes the messages of the host on."""
        return UnknownMethods(self._serve, self._notify, Unread.ALL)

    def open(
        self, session: ServerSession, handshake: tuple[JsonObject, JsonObject] | None, *, is_private: bool
    ) -> None:
        """Pass messages from now on.

        Args:
            session: the host's.
            handshake: the params of `initialize` and its result; None for a modern server.
            is_private: no other principal uses the connection.
        """
        self._session, self._handshake, self._is_private = session, handshake, is_private
        if handshake is not None:
            self._host = host_of(handshake[0].get("capabilities"))
        self._opened.set()
        early, self._early = self._early, []
        for pass_on in early:
            pass_on()

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Set where messages go that belong to no request."""
        self._streams.attach(outbox)

    # from the host

    def _notify(self, method: str, params: UnknownParams) -> None:
        if self.memory is not None:
            self.memory.note_notification(method, params)
            if not self.link.has_session:
                return
        try:
            session = self.link.session
        except Disconnected:
            return
        session.pass_on(method, params)

    def _serve(self, facts: RequestFacts, params: UnknownParams) -> tuple[Plan, Callable[[Call], None]]:
        """Return how to pass a request on.

        Raises:
            ProtocolError, ResourceNotFound: the request is none that may pass.
        """
        self._check_room(facts.size)
        own = params.wire()
        sent, host = self._prepared(facts, own)
        if facts.principal is not None:
            sent = self._bound(facts.principal, facts.method, sent)
        exchange = Exchange(self, own, sent, host)
        return Plan(exchange.run, facts.method, delayed=True), exchange.begin

    def _check_room(self, size: int) -> None:
        """Raise `RemoteProtocolError` if too much waits for a server that does not read; `size` bytes are to be added."""
        unsent = 0 if self.why_lost() is not None else self.link.session.unsent
        self._unsent_bytes = size + (self._unsent_bytes if unsent else 0)
        if unsent >= MAX_UNSENT or self._unsent_bytes > MAX_UNSENT_BYTES:
            why = "the server does not read what it is sent, and too much waits for it"
            raise RemoteProtocolError(why, code=SERVER_BUSY)

    def repeated_handshake(self, params: JsonObject) -> JsonObject:
        """Return the result of a handshake that is sent once more, as a gateway does it."""
        if self._handshake is None:
            raise RemoteProtocolError("the server has no sessions", code=METHOD_NOT_FOUND)
        # What `_meta` says belongs to the request and not to the session.
        if without_meta(params) != without_meta(self._handshake[0]):
            raise RemoteProtocolError("this session is initialized already, with other params", code=INVALID_REQUEST)
        return self._handshake[1]

    def _prepared(self, facts: RequestFacts, params: JsonObject) -> tuple[JsonObject, Host]:
        """Return the params of a request with what the proxy answers, and what its host can answer in rounds."""
        method, meta = facts.method, params.get("_meta")
        if not facts.terms.asks_in_rounds or not isinstance(meta, dict):
            return params, NOTHING
        declared = meta.get(CLIENT_CAPABILITIES)
        if method in ASKING and "requestState" in params:
            params = self._bindings.states.joined(facts.principal, method, params)
        host = host_of(declared)
        added = self._offers.added_to(declared, host)
        if added is not None:
            params = {**params, "_meta": {**meta, CLIENT_CAPABILITIES: added}}
        return params, host

    def _bound(self, principal: str, method: str, params: JsonObject) -> JsonObject:
        """Return the params of a request for a principal. Raises as `Bindings.request`."""
        if method == TASK_LIST and not self._is_private:
            raise no_task_list()
        if self._shared:
            self.principal = principal
        return self._bindings.request(principal, method, params)

    def passed(self, facts: RequestFacts, own: JsonObject, params: JsonObject, result: JsonObject) -> JsonObject:
        """Return a result as the host gets it, and remember what it says of the server.

        Args:
            own, params: those of the request, as the host has sent them and as the server has got them.

        Raises:
            RemoteProtocolError: the server's state is too large to be sealed.
        """
        if self.memory is not None:
            self.memory.note_result(facts.method, params, result)
        elif facts.method == "tools/list" and facts.terms.asks_in_rounds:
            self._headers.learn(result)
        if facts.principal is None:
            return result
        try:
            return self._bindings.result(facts.principal, facts.method, own, result)
        except LimitExceeded as error:
            # No reason to try later.
            raise RemoteProtocolError(str(error), code=INTERNAL_ERROR) from None

    def read_round(self, facts: RequestFacts, host: Host, result: JsonObject) -> Round | None:
        """Return the questions of a result; None if the proxy answers none of them."""
        return read_round(self._offers, host, result) if facts.method in ASKING else None

    async def answered(self, asked: Round, call: Call) -> JsonObject:
        """Return the answers of the proxy to its part of a round. Raises `RemoteProtocolError` if one of them fails."""
        try:
            return await self._answers.answer_round(codec_for(MODERN), asked.ours, call.actor.caller)
        except ProtocolError as error:
            why = f"a question of the server has no answer: {error}"
            raise RemoteProtocolError(why, code=error.code) from None

    def interim(
        self, facts: RequestFacts, own: JsonObject, result: JsonObject, asked: Round, answers: JsonObject
    ) -> JsonObject:
        """Return the host's part of a round, with the answers to the others in its state."""
        try:
            state = self._bindings.states.split(facts.principal, facts.method, own, asked, answers)
        except LimitExceeded as error:
            why = f"a question of the server has no answer: {error}"
            raise RemoteProtocolError(why, code=INTERNAL_ERROR) from None
        interim: JsonObject = {**result, "inputRequests": asked.theirs, "requestState": state}
        if not asked.theirs:
            del interim["inputRequests"]
        return interim if facts.principal is None else self._bindings.of_call(facts.principal, interim)

    def send(self, call: Call, params: JsonObject, on_settled: Callable[[], None]) -> tuple[SentRequest, int | None]:
        """Send a request of a call to the server; return it, and the progress token that it has there.

        Args:
            on_settled: as for `Link.forward`.

        Raises:
            Disconnected: there is no connection.
            LimitExceeded: too many requests wait for the server.
        """
        method = call.facts.method
        own = None if self._shared else own_token(params)
        token = None if own is None else next(self._new_tokens)
        if token is not None:
            params = {**params, "_meta": {**as_object(params["_meta"]), PROGRESS_TOKEN: token}}
        headers = self._headers.of(method, params, call.facts.headers)
        is_repeatable = self.memory is not None and self.memory.is_repeatable(method, params)
        to_call = partial(self._to_call, call)
        sent = self.link.forward(method, params, to_call, headers, on_settled, is_repeatable=is_repeatable)
        # Only now: of what could not be sent, nothing is kept.
        self._running[call] = None
        if token is not None and own is not None:
            self._tokens[token] = (call, own)
        return sent, token

    async def wait(self, call: Call, sent: SentRequest, token: int | None) -> JsonObject:
        """Return the result of a request that was sent.

        Raises:
            PeerError, Disconnected: the server has answered with an error, or not at all.
            RemoteProtocolError: its answer is malformed.
        """
        try:
            return await sent.result()
        except RemoteProtocolError as error:
            why = failure_text(error, "the answer of the server is malformed")
            raise RemoteProtocolError(why, code=INTERNAL_ERROR) from None
        except trio.Cancelled:
            self._strays_until = trio.current_time() + STRAY_SECONDS
            raise
        finally:
            self.ended(call, token)

    def ended(self, call: Call, token: int | None) -> None:
        """Note that nothing more comes about a request that was sent."""
        del self._running[call]
        if token is not None:
            del self._tokens[token]

    # from the server

    def take(self, method: str, params: UnknownParams) -> None:
        """Pass on a notification that names no request by its id."""
        members = params.wire()
        if self._session is None:
            size = len(dumps(members)) if len(self._early) < MAX_UNREAD else MAX_UNREAD_BYTES
            if self._early_bytes + size < MAX_UNREAD_BYTES:
                self._early.append(partial(self.take, method, params))
                self._early_bytes += size
            return
        if method == PROGRESS and not self._shared:
            token = members.get(PROGRESS_TOKEN)
            found = self._tokens.get(token) if is_request_id(token) else None
            if found is not None:
                self._post(found[0], method, {**members, PROGRESS_TOKEN: found[1]})
            return
        call = self._likely_call if method == LOG and not self._shared else None
        if call is not None:
            self._post(call, method, members)
        elif self._handshake is not None or self._shared:
            principal = self.principal
            if principal is not None:
                members = self._bindings.notification(principal, method, members)
            self._streams.post(notification(method, members))

    def _to_call(self, call: Call, method: str, params: Model) -> None:
        """Pass on a notification that names the request of a call as its subscription."""
        assert isinstance(params, UnknownParams)
        members = params.wire()
        members = {**members, "_meta": {**as_object(members.get("_meta")), SUBSCRIPTION_ID: call.facts.id}}
        self._post(call, method, members)

    @property
    def _likely_call(self) -> Call | None:
        """The call that a message most likely belongs to which names none; None if it may be that of another host."""
        # Modern requests of several hosts share a connection over HTTP.
        is_open = self._handshake is None and (len(self._running) > 1 or trio.current_time() < self._strays_until)
        return None if is_open else next(iter(self._running), None)

    def _post(self, call: Call, method: str, members: JsonObject) -> None:
        """Send a notification on the stream of a request, or drop it if its host is slow to read."""
        target, principal = call.target, call.facts.principal
        if target is None or call.cancelled_by_client or (target.outbox.is_full and not self._shared):
            return
        if principal is not None:
            members = self._bindings.notification(principal, method, members)
        target.post(notification(method, members))

    # questions of a legacy server

    async def answer(self, method: str, params: Model) -> Model:
        """Answer a question of the server, or put it to the host.

        Raises:
            PeerError: there is no answer.
        """
        await self._opened.wait()
        wire = params.wire()
        if self._offers.answers(self._host, method, wire):
            try:
                return await self._answers.answer(method, wire, self._caller)
            except RemoteProtocolError as error:
                raise PeerError(error.code, str(error), error.data) from None
        try:
            return await self._asked(method, wire)
        except RemoteProtocolError:
            raise PeerError(INTERNAL_ERROR, "the host sent something that is no answer") from None
        except Disconnected as error:
            raise PeerError(INTERNAL_ERROR, f"the host has left: {error}") from None

    async def _asked(self, method: str, params: JsonObject) -> Model:
        """Put a question to the host, and return the answer."""
        principal = self.principal
        if principal is not None:
            params = self._bindings.question(principal, params)
        call = None if self._shared else self._likely_call
        target = None if call is None else call.target
        send = self._post_question if target is None else target.post
        assert self._session is not None
        answer = await self._session.forward(method, params, send)
        if principal is None:
            return answer
        return validated(UnknownResult, self._bindings.answer(principal, answer.wire()), "result")

    def _post_question(self, message: Notification | Request) -> None:
        if not self._streams.post(message) and isinstance(message, Request):
            why = (
                f"{message.method} cannot be passed on: the host does not read, or it is not known which host it is for"
            )
            raise PeerError(SERVER_BUSY, why)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request of a host, with all the rounds in which the proxy answers questions of the server.

    Args:
        own: the params as the host sent them.
        params: those that the server gets.
        host: what the host can answer.
    """

    _forwarding: Forwarding
    _own: JsonObject
    _params: JsonObject
    _host: Host
    _sent: tuple[SentRequest, int | None] | None = field(default=None, init=False)
    _failure: ErrorDetail | None = field(default=None, init=False)

    def begin(self, call: Call) -> None:
        """Send the request for a call."""
        try:
            if call.facts.method != INITIALIZE:
                self._sent = self._forwarding.send(call, self._params, partial(self._settled, call))
        except Disconnected as error:
            self._failure = self._forwarding.error_of(error, call.facts.method)
        except LimitExceeded:
            self._failure = ErrorDetail(SERVER_BUSY, "too many requests wait for the server")
        except LocalProtocolError as error:
            # Half of a character in a name.
            self._failure = ErrorDetail(INVALID_PARAMS, str(error))
        if self._sent is None or isinstance(self._sent[0], UnreadRequest):
            call.actor.wake()

    def _settled(self, call: Call) -> None:
        """Pass a result on in the step in which it came; what has to wait for more goes on in the task of the call."""
        sent, token = self._sent or (None, None)
        if isinstance(sent, ForwardedRequest) and call.actor.begin is not None:
            answer = sent.untaken
            if isinstance(answer, UnknownResult) and answer.result_type != INTERIM:
                sent.give_up()
                call.services.supervisor.end(call.actor, partial(self._reply, call, token, answer.wire()))
                return
        call.actor.wake()

    def _reply(self, call: Call, token: int | None, result: JsonObject) -> Encoded:
        """Return the reply to a request whose result has come and is no round."""
        self._forwarding.ended(call, token)
        return Encoded(dumps(self._forwarding.passed(call.facts, self._own, self._params, result)))

    async def run(self, call: Call, _place: Actor | Lane) -> Model:
        """Return the encoded reply; the body of the call."""
        try:
            reply = self._failure or Encoded(dumps(await self._result(call)))
        except (PeerError, Disconnected) as error:
            reply = self._forwarding.error_of(error, call.facts.method)
        return cast("Model", reply)

    async def _result(self, call: Call) -> JsonObject:
        """Return the result for the host.

        Raises:
            PeerError, Disconnected: the server has answered with an error, or not at all.
            RemoteProtocolError: its answer is malformed, or a question has no answer.
        """
        forwarding, params = self._forwarding, self._params
        if self._sent is None:
            await trio.lowlevel.checkpoint()
            return forwarding.repeated_handshake(self._own)
        sent = self._sent
        for _ in range(MAX_ROUNDS):
            result = await forwarding.wait(call, *sent)
            asked = forwarding.read_round(call.facts, self._host, result)
            if asked is None:
                return forwarding.passed(call.facts, self._own, params, result)
            answers = await forwarding.answered(asked, call)
            if asked.theirs or not asked.ours:
                return forwarding.interim(call.facts, self._own, result, asked, answers)
            params = retried(params, answers, asked.state)
            sent = forwarding.send(call, params, call.actor.wake)
        why = f"the server asked in more than {MAX_ROUNDS} rounds (MAX_ROUNDS)"
        raise RemoteProtocolError(why, code=INTERNAL_ERROR)


class EveryMethod(Mapping[str, RequestHandler]):
    """One handler for the requests of all methods."""

    def __init__(self, answer: Callable[[str, Model], object]) -> None:
        self._answer = answer

    def __getitem__(self, method: str) -> RequestHandler:
        return cast("RequestHandler", partial(self._answer, method))

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class UnreadQuestions(Handlers):
    """The handlers of a client that passes all questions on."""

    forwarding: Forwarding | None = field(default=None)

    def __post_init__(self) -> None:
        """Check nothing: these are not functions of a program."""

    @property
    def request_handlers(self) -> Mapping[str, RequestHandler]:
        """A handler for each kind of question."""
        assert self.forwarding is not None
        return EveryMethod(self.forwarding.answer)


def failure_text(error: Exception, what: str) -> str:
    """Return why there is no answer of the server: its rejection as it is, which names the server, or else what happened."""
    return str(error) if isinstance(error, RequestRejected) else f"{what}: {error}"


def own_token(params: JsonObject) -> ProgressToken | None:
    """Return the progress token of a host's request; None if the host wants no reports."""
    # 1.0 is 1 to many servers, which may be the token of another host.
    token = as_integer(as_object(params.get("_meta")).get(PROGRESS_TOKEN))
    return token if isinstance(token, str | int) else None


def without_meta(params: JsonObject) -> JsonObject:
    """Return params without what is about their request alone."""
    return {name: value for name, value in params.items() if name != "_meta"}
