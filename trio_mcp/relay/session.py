"""The proxy's end of a connection to a host: one connection to the server for each, and what passes between them.

The first message of the host decides. `initialize` and modern requests are offered to the server as they are; if it speaks that
revision, everything passes unread from then on (`forwarding.py`). If not, the proxy speaks to each side in its own era
(`translating.py`). In both cases the messages of the host are those of an inner session, whose calls call the server as a client.
"""

# The phases of a session:
#
#     phase         messages of the host                       leaves it by
#     opening       wait in `_opening`, in order               the server's answer to the first of them (serving)
#     serving       go to `_inner`, a session of a server      the end of either connection (over); not that of the
#                                                              server's if the proxy keeps the session
#     over          requests get an error                      -

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from typing import Final, TypeAlias

import trio

from ..base.groups import single_exception
from ..base.logs import peer_logger
from ..base.named_tuples import NamedTuple
from ..errors import AuthorizationError, Disconnected, LimitExceeded, RemoteProtocolError
from ..protocol.codec.reading import Inbound, classify
from ..protocol.connection import Rejected
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    SERVER_BUSY,
    Batch,
    Encoded,
    ErrorDetail,
    Malformed,
    Request,
    error_response,
)
from ..protocol.revisions import Era
from ..protocol.strict_json import dumps
from ..runtime import Account, CancelReason, Outbox
from ..session import Envelope, MessageChannel, OpenBatch, Received, ReplyTarget, ServerSession, Service, make_session
from ..session.calls.services import CallOffers
from ..session.pump import CLEAN_UP
from ..session.service import Offers
from ..types import ServerCapabilities
from .answers import Answers
from .bindings import Bindings, PrincipalSessions, without_task_list
from .forwarding import INITIALIZE, Forwarding
from .offers import HandedOver
from .opening import (
    IDS,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    HandshakeRejected,
    HostLink,
    Opening,
    OtherEra,
    Waiting,
    WaitingRequest,
    declared_in,
    terms_problem,
    with_offers,
)
from .translating import WatchedChannel, open_translation

logger = peer_logger("trio_mcp.relay")

GONE: Final = "{} has gone: {}"
EMPTY: Final = Encoded(b"{}")

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[MessageChannel]]
"""Opens a connection to the server."""


class Reached(NamedTuple):
    """A server that speaks the revision of the host."""

    link: HostLink
    forwarding: Forwarding


class RelaySession(ServerSession):
    """One host. Transports use it as they use the session of a server.

    Args:
        connect: opens the connection to the server; called at the first message.
        start: runs a function in a task of the proxy.
        on_lost: called with the reason when the server has gone first.
        name: what errors call the server.
        keeps_session: the session of a legacy host goes on in another one of the server, when that has lost it.
        max_sessions: how many principals of modern hosts over HTTP may have a connection to the server.
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
        service: Service,
        *,
        shared_channel: bool = True,
        account: Account | None = None,
    ) -> None:
        super().__init__(service, shared_channel=shared_channel, account=account)
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
        self._started = False
        self._lost: str | None = None
        self._watched: WatchedChannel | None = None
        self._inner: ServerSession | None = None
        self._forwarding: Forwarding | None = None
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
        made._caller = principal  # noqa: SLF001  it is of this class
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
        if self._inner is not None and self._watched is not None and not self._watched.lost.is_set():
            return self._inner.receive(envelope, outbox, owns_outbox=owns_outbox, inbound=inbound)
        message = envelope.message
        if self._shared:
            self._standalone = outbox
        if isinstance(message, Malformed) and message.answers is None:
            return self._rejected(message.error, outbox, answer=not message.is_answer)
        if isinstance(message, Batch) and not self._shared:
            return self._rejected(RemoteProtocolError("a batch came before initialize", code=INVALID_REQUEST), outbox)
        if not isinstance(message, Request):
            self._keep(Waiting(envelope, outbox, None, inbound))
            return None
        target = ReplyTarget(message.id, outbox, owns_outbox, self.requests)
        request = WaitingRequest(message, target)
        problem = self._problem_of(message) or terms_problem(inbound)
        try:
            if problem is None:
                request.draw(envelope.size)
        except LimitExceeded as error:
            problem = RemoteProtocolError(str(error), code=SERVER_BUSY)
        if problem is not None:
            problem.request_id = message.id
            return self._rejected(problem, outbox)
        self.connection.open_ids.add(message.id)
        self.requests.add(target)
        target.work = request
        self._keep(Waiting(envelope, outbox, request, inbound))
        return target

    def _rejected(self, error: RemoteProtocolError, outbox: Outbox[Envelope], *, answer: bool = True) -> Rejected:
        if answer:
            outbox.post(Envelope(error_response(error), about=error.request_id))
        return Rejected(error, answer=answer)

    def _problem_of(self, message: Request) -> RemoteProtocolError | None:
        """Return why a request is rejected at once; None if it is not."""
        if self._shared and message.id in self.connection.open_ids:
            return RemoteProtocolError(f"the id {message.id!r} is in use", code=INVALID_REQUEST)
        if self._lost is not None:
            return RemoteProtocolError(self._lost, code=INTERNAL_ERROR)
        if self._opening.is_full:
            return RemoteProtocolError(
                f"{MAX_WAITING} messages, or {MAX_WAITING_BYTES} bytes, wait for the server to start, and no more",
                code=SERVER_BUSY,
            )
        return None

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Set where messages go that belong to no request."""
        self._standalone = outbox
        if self._forwarding is not None:
            self._forwarding.attach(outbox)
        if self._inner is not None:
            self._inner.attach(outbox)
        # A host with one channel is connected for good: it learns at once of a server that ends before it has said anything.
        if self._shared and outbox is not None:
            self._begin()

    def close(self, reason: CancelReason, reply: ErrorDetail | None = None) -> None:
        """End the connection to the server, and with it all that the proxy answers."""
        self._lost = self._lost or GONE.format(self._name, "the session has ended")
        self._principals.close_all(reason)
        self._scope.cancel()
        if self._inner is not None:
            self._inner.close(reason, reply)
        super().close(reason, reply)

    @property
    def initialized(self) -> bool:
        """Whether the host has begun a session, which the server has not rejected so far, and has not ended."""
        return self._opening.shaken.is_set() and self._lost is None

    @property
    def busy(self) -> bool:
        return super().busy or self._principals.busy or (self._inner is not None and self._inner.busy)

    @property
    def working(self) -> bool:
        return super().working or self._principals.working or (self._inner is not None and self._inner.working)

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
        # Modern requests over HTTP belong to no session: the next one connects again.
        connects_again = not self._shared and not self._opening.shaken.is_set()
        was_reached = self._inner is not None
        self._inner = self._forwarding = self._watched = None
        self._started = not connects_again
        if connects_again and was_reached and self._opening.waiting:
            self._begin()
            return
        # The text of an `AuthorizationError` names the server, and what its user has to do.
        text = GONE.format(self._name, why) if isinstance(why, str) else str(why)
        for target in list(self.requests):
            target.finish(ErrorDetail(INTERNAL_ERROR, text))
        self._opening.waiting.clear()
        self._on_lost(why)
        if not connects_again:
            self._lost = text
            if self.on_over is not None:
                self.on_over()

    async def _relay(self, channel: MessageChannel) -> str:
        """Relay over a connection until it ends; return why it has ended."""
        # A host that does not read is waited for if it has one channel for everything.
        watched = self._watched = WatchedChannel(channel, self._standalone if self._shared else None)
        try:
            async with self._serving(watched) as session:
                await self._hand_over_all(session)
                await watched.lost.wait()
        except Disconnected:
            if watched.why is None:
                raise
        assert watched.why is not None
        return watched.why

    @asynccontextmanager
    async def _serving(self, watched: WatchedChannel) -> AsyncIterator[ServerSession]:
        """Open the connection as the host wants it, and yield the session that takes the messages of the host."""
        for last_id in itertools.count(step=IDS):  # noqa: ASYNC119  it is a context manager
            first = await self._first_request(watched)
            reached = await self._reach(watched, first, last_id)
            if isinstance(reached, Reached):
                async with self._passing(reached, first) as session:
                    yield session
                return
            if reached is not None:
                async with self._translating(watched, first, reached, last_id + IDS) as session:
                    yield session
                return

    async def _reach(self, watched: WatchedChannel, first: WaitingRequest, last_id: int) -> Reached | str | None:
        """Open the connection in the revision of the host.

        Returns:
            what passes messages; or the era of the server, as `Client.connect` takes it; or None if the host has got an error,
            and may send another first request.
        """
        forwarding = self._new_forwarding(first, watched)
        try:
            return Reached(await self._opened(watched, forwarding, first, last_id), forwarding)
        except HandshakeRejected as rejected:
            self._reject_first(rejected.detail)
        except OtherEra as other:
            # A host that has given up waiting speaks both eras, and goes on in the other one.
            if first.method == INITIALIZE or not self._opening.shaken.is_set():
                return other.mode
            self._reject_first(ErrorDetail(METHOD_NOT_FOUND, f"Method not found: {first.method}"))
        return None

    @asynccontextmanager
    async def _translating(
        self, watched: WatchedChannel, first: WaitingRequest, mode: str, last_id: int
    ) -> AsyncIterator[ServerSession]:
        """Yield a session whose routes call a server of the other era."""
        opened = open_translation(
            watched,
            last_id,
            mode,
            self._answers,
            self._caller,
            self._bindings,
            *declared_in(first.params),
            shared_channel=self._shared,
            name=self._name,
        )
        async with opened as session:
            session.attach(self._standalone)
            yield session
            with trio.move_on_after(CLEAN_UP):
                await session.requests.wait_none_left()

    async def _first_request(self, watched: WatchedChannel) -> WaitingRequest:
        """Return the first waiting request that opens the connection; answer those before it.

        Raises:
            Disconnected: the server has gone first.
        """
        while True:  # noqa: ASYNC913  each turn takes a message off the queue, or waits
            if not self._opening.waiting:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watched.read_early, nursery.cancel_scope)
                    await self._opening.wait_any()
                    nursery.cancel_scope.cancel()
            if watched.why is not None:
                raise Disconnected(watched.why)
            envelope, _, request, _ = self._opening.waiting[0]
            is_modern = classify(envelope.message).era is Era.MODERN
            if request is not None and not request.target.finished and (is_modern or request.method == INITIALIZE):
                return request
            self._opening.waiting.popleft()
            if request is not None:
                self._answer_early(request)

    def _answer_early(self, request: WaitingRequest) -> None:
        """Answer a request before the handshake."""
        try:
            self.connection.terms.check_phase(request.method)
        except RemoteProtocolError as error:
            request.finish(ErrorDetail(error.code, str(error)))
        else:
            request.finish(EMPTY)

    def _reject_first(self, detail: ErrorDetail) -> None:
        """Answer the first waiting request with an error; the host may send another one."""
        request = self._opening.waiting.popleft().request
        assert request is not None
        if request.method == INITIALIZE:
            self._opening.shaken = trio.Event()
        request.finish(detail)

    def _new_forwarding(self, first: WaitingRequest, watched: WatchedChannel) -> Forwarding:
        made = Forwarding(self._answers, self._caller, self._bindings, self._name, shared_channel=self._shared)
        made.why_lost = lambda: watched.why
        made.attach(self._standalone)
        if self._shared or first.method == INITIALIZE:
            made.principal = self._opening.waiting[0].envelope.peer.principal
        return made

    async def _opened(
        self, watched: WatchedChannel, forwarding: Forwarding, first: WaitingRequest, last_id: int
    ) -> HostLink:
        """Open the connection in the revision of the host. Raises as `HostLink.open`."""
        params = with_offers(self._answers.backfill.offers, first.params)
        given_up = trio.Event() if first.method == INITIALIZE else self._opening.shaken
        link = forwarding.link = HostLink(
            watched, forwarding, first, params, given_up, last_id, lasts=self._keeps_session
        )
        await link.open()
        return link

    @asynccontextmanager
    async def _passing(self, reached: Reached, first: WaitingRequest) -> AsyncIterator[ServerSession]:
        """Yield a session whose messages pass over a link, and close both."""
        link, forwarding = reached
        offers = Offers(
            CallOffers({}), self.service.identity, capabilities=ServerCapabilities(), unknown=forwarding.unread
        )
        outer = self.service
        service = Service(outer.supervisor, offers, outer.options, None, outer.store)
        service.turn = outer.turn
        try:
            with closing(service):
                session = make_session(service, shared_channel=self._shared)
                self._forwarding = forwarding
                self._welcome(session, link, forwarding, first)
                try:
                    yield session
                    await link.aclose()
                    with trio.move_on_after(CLEAN_UP):
                        await session.requests.wait_none_left()
                finally:
                    session.close(CancelReason.DISCONNECT)
                    # Its calls withdraw their requests at the server.
                    with trio.move_on_after(CLEAN_UP, shield=True):
                        await session.requests.wait_none_left()
        finally:
            await link.aclose()  # noqa: ASYNC102  it is shielded and bounded itself

    def _welcome(self, session: ServerSession, link: HostLink, forwarding: Forwarding, first: WaitingRequest) -> None:
        """Answer the handshake of the host, and begin to pass on what the server sends."""
        watched = link.watched
        if link.handshake is None:
            forwarding.open(session, None, is_private=False)
            return
        params, result = link.handshake
        # Else the link opens another one.
        watched.has_session = not link.dialect.can_reopen
        for connection in (session.connection, self.connection):
            connection.set_version(link.facts.protocol_version)
        if forwarding.principal is not None and not watched.is_private:
            result = without_task_list(result)
        self._opening.waiting.popleft()
        first.finish(Encoded(dumps(result)))
        forwarding.open(session, (params, result), is_private=watched.is_private)

    async def _hand_over_all(self, session: ServerSession) -> None:
        """Give what has waited to the session that serves it, and all that comes from then on."""
        while self._opening.waiting:
            envelope, outbox, request, inbound = self._opening.waiting.popleft()
            if request is None:
                taken = session.receive(envelope, outbox)
                if isinstance(taken, OpenBatch):
                    await taken.read_rest(self.service.turn)
            elif not request.target.finished:
                self._hand_over(session, envelope, request, inbound)
        if self._shared and self._standalone is not None:
            # As for every session: the replies to several requests share a write.
            self._standalone.queue_while = session.connection.open_ids
        self._inner = session

    def _hand_over(
        self, session: ServerSession, envelope: Envelope[Received], request: WaitingRequest, inbound: Inbound | None
    ) -> None:
        """Give a request that has waited to the session that serves it; the transport still knows it by its first target."""
        target = request.target
        request.give_back()
        target.close()
        taken = session.receive(envelope, target.outbox, owns_outbox=target.owns_outbox, inbound=inbound)
        if isinstance(taken, ReplyTarget):
            target.work = HandedOver(session, taken)
