"""The proxy's end of a connection to a host: one connection to the server for each, and what passes between them.

The first message of the host decides. `initialize` and modern requests are offered to the server as they are; if it speaks that
revision, everything passes from then on (`passing.py`). If not, the proxy speaks to each side in its own era (`translating.py`).
"""

# The phases of a session:
#
#     phase         messages of the host                       leaves it by
#     opening       wait in `_waiting`, in order               the server's answer to the first of them (passing, translating)
#     passing       go to `_passage`                           the end of either connection (over); not that of the
#                                                              server's if the proxy keeps the session
#     translating   go to `_inner`, a session of a server      the end of either connection (over)
#                   whose routes call the real one
#     over          requests get an error                      -

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from typing import Final, TypeAlias

import trio

from ..base.groups import single_exception
from ..base.logs import RepeatedRecords, peer_logger
from ..errors import AuthorizationError, LimitExceeded, RemoteProtocolError
from ..protocol.codec.reading import Inbound
from ..protocol.connection import Rejected
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    SERVER_BUSY,
    Batch,
    ErrorDetail,
    Malformed,
    Notification,
    Request,
    decoded,
    error_response,
    is_request_id,
)
from ..runtime import Account, CancelReason, Outbox
from ..runtime.quota import Quota
from ..session import (
    Envelope,
    MessageChannel,
    OpenBatch,
    Received,
    ReplyTarget,
    ServerSession,
    Service,
    make_session,
)
from ..types import JsonObject
from .answers import Answers
from .bindings import Bindings, PrincipalSessions
from .carrying import end_with, read_server, write_server
from .lasting_session import LastingSession
from .offers import CountedRequests, HandedOver, HostRequest
from .opening import MAX_WAITING, MAX_WAITING_BYTES, Opening, Waiting, declared_in, terms_problem
from .passing import CANCELLED, Passage
from .streams import carried_size
from .translating import Translation, open_translation
from .upstream import Upstream

logger = peer_logger("trio_mcp.relay")

GONE: Final = "{} has gone: {}"

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[MessageChannel]]
"""Opens a connection to the server."""


class RelaySession(ServerSession):
    """One host. Transports use it as they use the session of a server.

    Args:
        connect: opens the connection to the server; called at the first message.
        start: runs a function in a task of the proxy.
        on_lost: called with the reason when the server has gone first.
        name: what errors call the server.
        keeps_session: the session of a legacy host goes on in another one of the server, when that has lost it.
        max_sessions: how many principals of modern hosts over HTTP may have a connection to the server.
        running: counts the requests of all hosts.
    """

    def __init__(
        self,
        answers: Answers,
        bindings: Bindings,
        connect: Connect,
        start: Callable[..., None],
        on_lost: Callable[[str | AuthorizationError], None],
        name: str,
        keeps_session: bool,
        max_sessions: int,
        running: Quota,
        service: Service,
        *,
        shared_channel: bool = True,
        account: Account | None = None,
    ) -> None:
        super().__init__(service, shared_channel=shared_channel, account=account)
        self.requests = CountedRequests(self.connection.open_ids, running)
        self._running = running
        self._answers, self._bindings = answers, bindings
        self._connect, self._start, self._on_lost = connect, start, on_lost
        self._shared = shared_channel
        self._caller: Hashable | None = None if account is None else account.caller
        if account is None and not shared_channel:
            # Modern hosts over HTTP share the session. What is of no known request counts for all of them together.
            self._caller = object()
        self._name = name
        self._keeps_session = keeps_session
        self._principals = PrincipalSessions(partial(self._for_principal, service), max_sessions)
        self._opening = Opening()
        self._scope = trio.CancelScope()
        self._serves_principal = False
        """It is one of `PrincipalSessions`."""
        self._started = False
        self._lost: str | None = None
        self._passage: Passage | None = None
        self._passes = False
        self._translation: Translation | None = None
        self._standalone: Outbox[Envelope] | None = None

    # the interface to transports

    def receive(
        self,
        envelope: Envelope[Received],
        outbox: Outbox[Envelope],
        *,
        owns_outbox: bool = False,
        inbound: Inbound | None = None,
    ) -> ReplyTarget | OpenBatch | Rejected | None:
        """Take one message of the host; see `ServerSession.receive`."""
        # Over HTTP what belongs to no session is classified before it comes here.
        if inbound is not None and envelope.peer.principal is not None:
            return self._principals.receive(envelope.peer.principal, envelope, outbox, inbound)
        return self.receive_own(envelope, outbox, owns_outbox=owns_outbox, inbound=inbound)

    @staticmethod
    def _for_principal(service: Service, principal: str) -> RelaySession:
        """Return a session for a principal, with a separate connection to the server."""
        # A method of the session would be a reference cycle, since its `PrincipalSessions` keep it.
        made = make_session(service, shared_channel=False)
        assert isinstance(made, RelaySession)
        made._serves_principal, made._caller = True, principal  # noqa: SLF001  it is of this class
        return made

    def receive_own(
        self,
        envelope: Envelope[Received],
        outbox: Outbox[Envelope],
        *,
        owns_outbox: bool,
        inbound: Inbound | None,
    ) -> ReplyTarget | OpenBatch | Rejected | None:
        """Take one message of the host of this session."""
        if self._translation is not None:
            return self._translation.session.receive(envelope, outbox, owns_outbox=owns_outbox, inbound=inbound)
        message = envelope.message
        if self._shared:
            self._standalone = outbox
        if isinstance(message, Batch):
            return self._receive_batch(message, envelope, outbox, owns_outbox=owns_outbox)
        if isinstance(message, Malformed) and message.answers is None:
            rejected = Rejected(message.error, answer=not message.is_answer)
            if rejected.answer:
                outbox.post(Envelope(error_response(message.error)))
            return rejected
        if not isinstance(message, Request):
            self._keep(Waiting(envelope, None, inbound)) if not self._passes else self._pass(envelope, None)
            return None
        problem = self._problem_of(message) or terms_problem(inbound)
        if problem is not None:
            problem.request_id = message.id
            outbox.post(Envelope(error_response(problem), about=message.id))
            return Rejected(problem, answer=True)
        target = ReplyTarget(message.id, outbox, owns_outbox, self.requests)
        problem = self._receive_request(envelope, message, target, inbound)
        if problem is not None:
            outbox.post(Envelope(error_response(problem), about=message.id))
            return Rejected(problem, answer=True)
        return target

    def _problem_of(self, message: Request) -> RemoteProtocolError | None:
        """Return why a request is rejected at once; None if it is not."""
        problem: RemoteProtocolError | None = None
        if self._shared and message.id in self.connection.open_ids:
            problem = RemoteProtocolError(f"the id {message.id!r} is in use", code=INVALID_REQUEST)
        elif self._lost is not None:
            problem = RemoteProtocolError(self._lost, code=INTERNAL_ERROR)
        elif self._opening.is_full:
            problem = RemoteProtocolError(
                f"{MAX_WAITING} messages, or {MAX_WAITING_BYTES} bytes, wait for the server to start, and no more",
                code=SERVER_BUSY,
            )
        if problem is not None:
            problem.request_id = message.id
        return problem

    def _receive_request(
        self, envelope: Envelope[Received], message: Request, target: ReplyTarget, inbound: Inbound | None
    ) -> RemoteProtocolError | None:
        """Take a request; return why it is rejected if there are too many, or the memory budget has no room for it."""
        peer = envelope.peer
        request = HostRequest(message, target, self._on_withdrawn, peer.headers, peer.principal)
        try:
            self._running.check(target.caller)
            request.draw(envelope.size)
        except LimitExceeded as error:
            problem = RemoteProtocolError(str(error), code=SERVER_BUSY)
            problem.request_id = message.id
            return problem
        target.outbox.size_of = carried_size
        self.connection.open_ids.add(message.id)
        self.requests.add(target)
        target.work = request
        if self._passes:
            self._pass(envelope, request)
        else:
            self._keep(Waiting(envelope, request, inbound))
        return None

    def _receive_batch(
        self, message: Batch, whole: Envelope[Received], outbox: Outbox[Envelope], *, owns_outbox: bool
    ) -> OpenBatch | Rejected | None:
        """Take the messages of an array one by one; their answers go back in one (2025-03-26)."""
        try:
            members = message.messages()
        except RemoteProtocolError as error:
            outbox.post(Envelope(error_response(error)))
            return Rejected(error, answer=True)
        batch = OpenBatch(outbox, owns_outbox=owns_outbox)
        for member in members:
            envelope: Envelope[Received] = Envelope(member, peer=whole.peer, size=whole.size // len(members))
            problem = self._problem_of(member) if isinstance(member, Request) else None
            if isinstance(member, Malformed) and member.answers is None:
                problem = member.error
            if problem is not None:
                batch.expect()
                batch.settle(error_response(problem))
            elif isinstance(member, Request):
                target = batch.reply_target(member.id, self.requests)
                problem = self._receive_request(envelope, member, target, None)
                if problem is not None:
                    target.finish(ErrorDetail(problem.code, str(problem)))
            else:
                self._keep(Waiting(envelope, None, None)) if not self._passes else self._pass(envelope, None)
        batch.all_read()
        return None if batch.finished and not batch.expects_reply else batch

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Set where messages go that belong to no request."""
        self._standalone = outbox
        if outbox is not None:
            outbox.size_of = carried_size
        if self._passage is not None:
            self._passage.streams.attach(outbox)
        if self._translation is not None:
            self._translation.session.attach(outbox)
        # A host with one channel is connected for good: it learns at once of a server that ends before it has said anything.
        if self._shared and outbox is not None:
            self._begin()

    def close(self, reason: CancelReason, reply: ErrorDetail | None = None) -> None:
        """End the connection to the server, and with it all that the proxy answers."""
        self._lost = self._lost or GONE.format(self._name, "the session has ended")
        self._principals.close_all(reason)
        self._scope.cancel()
        if self._translation is not None:
            self._translation.session.close(reason)
        super().close(reason, reply)

    @property
    def initialized(self) -> bool:
        """Whether the host has begun a session, which the server has not rejected so far, and has not ended."""
        return self._opening.shaken.is_set() and self._lost is None

    @property
    def busy(self) -> bool:
        return (
            super().busy or self._principals.busy or (self._translation is not None and self._translation.session.busy)
        )

    @property
    def working(self) -> bool:
        return (
            super().working
            or self._principals.working
            or (self._translation is not None and self._translation.session.working)
        )

    # opening

    def _keep(self, waiting: Waiting) -> None:
        """Keep a message until the server's era is known."""
        if waiting.request is not None or (self._lost is None and not self._opening.is_full):
            self._opening.keep(waiting)
            self._begin()

    def _begin(self) -> None:
        if not self._started:
            self._started = True
            self._scope = trio.CancelScope()
            self._start(self._run)

    def _pass(self, envelope: Envelope[Received], request: HostRequest | None) -> None:
        """Send a message of the host on."""
        passage = self._passage
        assert passage is not None
        message = envelope.message
        if request is not None:
            passage.forward_request(request, envelope)
        elif isinstance(message, Notification) and message.method == CANCELLED:
            self._cancel_for(passage, decoded(message.params), envelope)
        else:
            passage.forward(envelope)

    def _cancel_for(self, passage: Passage, params: JsonObject, envelope: Envelope[Received]) -> None:
        request_id = params.get("requestId")
        target = self.requests.take(request_id) if is_request_id(request_id) else None
        if target is not None and isinstance(target.work, HostRequest):
            passage.withdraw(target.work, CancelReason.CLIENT, params)
            target.finish(None)
        elif self._shared:
            # It has been answered, or never was open: the server ignores it (L-CAN-2b).
            passage.forward(envelope)

    def _on_withdrawn(self, request: HostRequest, reason: CancelReason) -> None:
        if self._passage is not None:
            self._passage.withdraw(request, reason)

    async def _run(self) -> None:
        """Connect to the server, and stay connected until either side leaves."""
        why: str | AuthorizationError = "the connection was closed"
        with self._scope:
            try:
                async with self._connect() as channel:
                    why = await self._relay(channel)
            except Exception as error:  # noqa: BLE001  every host gets it as an error, and the proxy goes on
                failure = single_exception(error)
                why = failure if isinstance(failure, AuthorizationError) else str(failure)
                logger.info("the server could not be reached: %s", failure)
        if not self._scope.cancelled_caught:
            self._end(why)

    def _end(self, why: str | AuthorizationError) -> None:
        # The text of an `AuthorizationError` names the server, and what its user has to do.
        self._lost = text = GONE.format(self._name, why) if isinstance(why, str) else str(why)
        if self._passage is not None:
            self._passage.fail_all(text)
        for target in list(self.requests):
            target.finish(ErrorDetail(INTERNAL_ERROR, text))
        self._opening.waiting.clear()
        self._on_lost(why)
        # Modern requests over HTTP belong to no session: the next one connects again.
        if not self._shared and not self._opening.shaken.is_set():
            self._started = self._passes = False
            self._lost = self._passage = self._translation = None
        elif self.on_over is not None:
            self.on_over()

    async def _relay(self, channel: MessageChannel) -> str:
        """Relay over a connection until it ends; return why it has ended."""
        gone = partial(GONE.format, self._name)
        lasting = LastingSession(channel, gone) if self._keeps_session else None
        upstream = Upstream(lasting or channel)
        lost: list[str] = []
        mode: str | None = None
        with closing(RepeatedRecords(logger)) as records:
            async with trio.open_nursery() as nursery:
                ended = partial(end_with, lost, nursery.cancel_scope)
                self._passage = Passage(
                    upstream,
                    self._answers,
                    self._caller,
                    self._bindings,
                    nursery,
                    records,
                    self.requests,
                    ended,
                    gone,
                    shared_channel=self._shared,
                )
                self._passage.streams.attach(self._standalone)
                # A host that does not read is waited for if it has one channel for everything.
                outbox = self._standalone if self._shared and self._standalone is not None else Outbox[Envelope]()
                nursery.start_soon(read_server, upstream.channel, self._passage, outbox, self.service.turn, ended)
                if lasting is not None:
                    nursery.start_soon(lasting.keep_open)
                nursery.start_soon(write_server, upstream, nursery.cancel_scope)
                mode = await self._opening.decide(upstream, self._passage, self.connection, self._pass)
                if mode is None:
                    self._passes = True
                    self._opening.pass_all(self._pass)
                    await trio.sleep_forever()
                nursery.cancel_scope.cancel()
        if lost or mode is None:
            return lost[0] if lost else "it does not read what it is sent"
        self._passage = None
        await self._translate(channel, upstream, mode)
        return channel.close_reason or "it closed the connection"

    async def _translate(self, channel: MessageChannel, upstream: Upstream, mode: str) -> None:
        """Speak to each side in its own era, until the server has gone."""
        first = self._opening.waiting[0].request
        assert first is not None
        declared = declared_in(first.own_params)
        opened = open_translation(
            channel,
            upstream.is_own_id,
            mode,
            self._answers,
            self._caller,
            self._bindings,
            *declared,
            shared_channel=self._shared,
            name=self._name,
        )
        async with opened as translation:
            translation.session.attach(self._standalone)
            self._translation = translation
            for envelope, request, inbound in self._opening.waiting:
                if request is None:
                    if self._standalone is not None:
                        translation.session.receive(envelope, self._standalone)
                elif not request.target.finished:
                    self._hand_over(translation.session, envelope, request.target, inbound)
            self._opening.waiting.clear()
            await translation.wait_lost()

    def _hand_over(
        self, session: ServerSession, envelope: Envelope[Received], target: ReplyTarget, inbound: Inbound | None
    ) -> None:
        """Give a request that has waited to the session that serves it; the transport still knows it by its first target."""
        if isinstance(target.work, HostRequest):
            target.work.give_back()
        target.close()
        taken = session.receive(envelope, target.outbox, owns_outbox=target.owns_outbox, inbound=inbound)
        if isinstance(taken, ReplyTarget):
            target.work = HandedOver(session, taken)
