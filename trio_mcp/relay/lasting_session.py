"""A connection to a server that reopens a lost legacy session transparently.

The proxy of one host on a pipe uses it: such a host cannot open another session, and takes the end of the pipe for the end of
the server. Messages are inspected, and modified only after the session was reopened.
"""

# The states, and what becomes of a request of the host in each:
#
#     state      a request of the host                     leaves it by
#     passive    is sent                                   the answer to `initialize` (open)
#     open       is sent                                   the news that the session or the connection is lost (opening)
#     opening    waits                                     an answer to `initialize` (open; closed if it is of another revision);
#                                                          an error, or no answer (pausing; what waits is answered with that)
#     pausing    opens the session at once, and waits; or  a request, or the end of the pause (opening; an `initialize` that has
#                is answered with an error if the last     no answer yet is waited for, and not sent again)
#                attempt was just now
#     closed     is sent                                   -
#
# What was open when the connection was lost may have been processed: it is sent again if it is repeatable, else answered with an
# error. The server did nothing for a request that it answered with the news that the session is lost: that is sent again.

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, TypeAlias, cast

import trio

from ..base.backoff import RECONNECT_BACKOFF, STABLE_AFTER
from ..base.logs import peer_logger
from ..protocol.jsonrpc import (
    Batch,
    Encoded,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    Unanswered,
    decoded,
)
from ..session import Envelope, MessageChannel, Received, Sent
from ..types import JsonObject
from .session_memory import CANCELLED, QuestionIds, SentRequests, SessionMemory, accepted, id_in

logger = peer_logger("trio_mcp.relay")

ATTEMPT_SECONDS: Final = 30.0
"""Seconds that the server may take to open the session again."""
ASK_AGAIN_SECONDS: Final = 300.0
"""Seconds after which a server that has not answered is asked a second time; many take a second `initialize` for an error."""
LEAST_PAUSE: Final = 1.0
"""Seconds after a failed attempt in which requests are answered with its error, and begin no other one."""

Reply: TypeAlias = Response | ErrorResponse | Malformed | Unanswered


class State(Enum):
    """See above."""

    PASSIVE = auto()
    OPEN = auto()
    OPENING = auto()
    PAUSING = auto()
    CLOSED = auto()


class LastingSession(MessageChannel):
    """The connection, as a proxy uses it.

    Args:
        inner: the connection, which connects again by itself when a handshake is sent.
        gone: returns the error for requests that the server does not answer any more, for a reason.
    """

    def __init__(self, inner: MessageChannel, gone: Callable[[str], str]) -> None:
        self._inner = inner
        self._gone = gone
        self._state = State.PASSIVE
        self._session = 0
        """How often the session was opened again."""
        self._memory = SessionMemory()
        self._offered: Request | None = None
        """The last `initialize`."""
        self._requests = SentRequests(self._memory, self._fail, gone)
        self._questions = QuestionIds(self._new_id)
        self._own: dict[RequestId, Callable[[Reply], None]] = {}
        """The requests of this object, and what takes their replies."""
        self._answer: Reply | None = None
        """To the last handshake of this object."""
        self._answered = trio.Event()
        self._is_asking = False
        """The last handshake has no answer yet."""
        self._asked_at = -math.inf
        self._prefix = f"again-{secrets.token_hex(8)}-"
        self._numbers = itertools.count(1)
        self._news: list[Envelope[Received]] = []
        self._reading: trio.CancelScope | None = None
        self._sending = trio.Lock()
        self._wanted = trio.Event()
        self._why = ""
        """Why there is no session."""
        self._failures = 0
        """Attempts since a session was last stable."""
        self._failed = False
        """The last attempt has failed."""
        self._failed_at = self._opened_at = -math.inf

    # the session

    async def keep_open(self) -> None:
        """Open the session again whenever it is lost; the connection is read and written by others. Return if it cannot go on."""
        while self._state is not State.CLOSED:
            if self._state in (State.PASSIVE, State.OPEN):
                await (self._send_waiting() if self._requests.are_waiting else self._wait_wanted())
                continue
            await self._pause()
            why = await self._attempt()
            self._failures += 1
            if why is not None:
                self._note_failed(why)

    async def _wait_wanted(self) -> None:
        self._wanted = trio.Event()
        await self._wanted.wait()

    async def _pause(self) -> None:
        """Wait before an attempt, the longer the more have failed; also before the next of a server that ends again and again."""
        if trio.current_time() - self._opened_at >= STABLE_AFTER and self._state is State.OPENING and not self._failed:
            self._failures = 0
        if self._failures:
            self._state = State.PAUSING
            with trio.move_on_after(RECONNECT_BACKOFF.delay(self._failures - 1)):
                await self._wait_wanted()
        self._state, self._failed = State.OPENING, False

    async def _attempt(self) -> str | None:
        """Open the session once, and send what waits; return why that failed."""
        with trio.move_on_after(ATTEMPT_SECONDS):
            # A server that was slow may have answered since the last attempt, or may still do so.
            is_slow = self._is_asking and trio.current_time() - self._asked_at < ASK_AGAIN_SECONDS
            if not is_slow and not isinstance(self._answer, Response):
                await self._ask()
            await self._answered.wait()
        answer, self._answer = self._answer, None
        match answer:
            case Response() as reply:
                self._own.clear()
                await self._reopen(reply)
                return None
            case ErrorResponse(_, error):
                return error.message
            case Malformed(error):
                return str(error)
            case Unanswered(_, why):
                return why
        return f"it did not open the session within {ATTEMPT_SECONDS:g} seconds"

    async def _ask(self) -> None:
        """Send a handshake."""
        handshake = self._memory.handshake
        assert handshake is not None
        self._own.clear()
        self._answer, self._answered, self._is_asking = None, trio.Event(), False
        self._asked_at = trio.current_time()
        async with self._sending:
            await self._inner.send_many([self._request("initialize", handshake.params, self._take_answer)])
        # Unless it was answered meanwhile; and one that could not be sent, because the server does not read, is sent again.
        self._is_asking = self._answer is None

    def _take_answer(self, reply: Reply) -> None:
        self._answer, self._is_asking = reply, False
        self._answered.set()

    async def _reopen(self, reply: Response) -> None:
        """Go on in a session that the server has opened."""
        version = accepted(reply).get("protocolVersion")
        if version != self._memory.version:
            self._close(
                f"it has come back with the revision {version!r:.40}, and the host speaks {self._memory.version}"
            )
            return
        async with self._sending:
            self._state, self._session = State.OPEN, self._session + 1
            self._opened_at = trio.current_time()
            await self._inner.send_many([*self._repeated(), *self._requests.take_waiting(self._session)])
        logger.info("the session was opened again")
        for notice in self._memory.changes():
            self._put(notice)

    async def _send_waiting(self) -> None:
        async with self._sending:
            if self._state is State.OPEN:
                await self._inner.send_many(self._requests.take_waiting(self._session))

    def _repeated(self) -> Iterator[Envelope]:
        for message in self._memory.messages():
            if isinstance(message, Notification):
                yield Envelope(message)
            else:
                yield self._request(*message, log_rejected)

    def _request(self, method: str, params: JsonObject | Encoded, take: Callable[[Reply], None]) -> Envelope:
        request_id = self._new_id()
        self._own[request_id] = take
        return Envelope(Request(request_id, method, params), about=request_id)

    def _new_id(self) -> RequestId:
        return f"{self._prefix}{next(self._numbers)}"

    def _lose(self, why: str, *, is_connection: bool) -> None:
        """Open the session again: the server no longer knows it."""
        if self._state is not State.OPEN:
            return
        self._state, self._why = State.OPENING, why
        logger.info("the session is opened again: %s", why)
        if is_connection:
            self._requests.lose_all(why)
        for notice in self._questions.end_session():
            self._put(notice)
        self._wanted.set()

    def _note_failed(self, why: str) -> None:
        self._why, self._failed, self._failed_at = why, True, trio.current_time()
        self._requests.fail_waiting(self._unreachable)

    @property
    def _unreachable(self) -> str:
        return f"{self._gone(self._why)}. The proxy goes on trying to reach it"

    def _fail(self, request_id: RequestId, why: str) -> None:
        self._put(Unanswered(request_id, why))

    def _close(self, why: str) -> None:
        """Let the session end: it cannot go on."""
        self._state = State.CLOSED
        self._put(Unanswered(None, why, session_lost=True))

    def _put(self, message: Received) -> None:
        """Let the reader have a message that the server has not sent."""
        self._news.append(Envelope(message))
        if self._reading is not None:
            self._reading.cancel()

    # from the host

    async def send(self, value: Envelope[Sent]) -> None:
        await self.send_many((value,))

    async def send_many(self, values: Sequence[Envelope[Sent]]) -> None:
        """Send several messages; a request that cannot be sent now waits, or is answered by `receive_many`."""
        async with self._sending:
            sendable = [passed for value in values if (passed := self._outgoing(value)) is not None]
            if sendable:
                await self._inner.send_many(sendable)

    def _outgoing(self, value: Envelope[Sent]) -> Envelope[Sent] | None:
        """Return what to send of a message of the host; None if nothing is sent now."""
        message = value.message
        if isinstance(message, Request) and message.method == "initialize":
            self._offered = message
        elif isinstance(message, Request | Notification):
            self._memory.note(message)
        if value.stateless or self._state in (State.PASSIVE, State.CLOSED):
            return value
        if isinstance(message, Response | ErrorResponse):
            return self._questions.answer(value, message) if self._state is State.OPEN else None
        if isinstance(message, Request):
            return value if self._take_request(message, value) else None
        if isinstance(message, Notification) and message.method == CANCELLED:
            cancelled = id_in(decoded(message.params).get("requestId"))
            if cancelled is not None:
                self._requests.cancel(cancelled)
        return value if self._state is State.OPEN else None

    def _take_request(self, request: Request, value: Envelope[Sent]) -> bool:
        """Return whether to send a request of the host now; else it waits, or is answered."""
        if self._state is State.OPEN:
            self._requests.add_sent(request.id, value, self._session)
            return True
        is_early = self._state is State.PAUSING and trio.current_time() - self._failed_at < LEAST_PAUSE
        if is_early or self._requests.is_full:
            self._fail(request.id, self._unreachable)
        else:
            self._requests.add_waiting(request.id, value)
            self._wanted.set()
        return False

    # from the server

    async def receive(self) -> Envelope[Received]:
        raise NotImplementedError("a proxy uses receive_many")

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        """Wait for messages of the server, or about it. Raises what the connection raises."""
        while not self._news:
            received: Iterable[Envelope[Received]] | None = None
            try:
                with trio.CancelScope() as self._reading:
                    received = await self._inner.receive_many()
            finally:
                self._reading = None
            if received is not None:
                return self._passed(received)
        news, self._news = self._news, []
        return news

    def _passed(self, received: Iterable[Envelope[Received]]) -> Iterator[Envelope[Received]]:
        """Yield what is passed on of some messages."""
        for envelope in received:
            message = envelope.message
            if isinstance(message, Batch) and (members := self._memory.members_of(message)) is not None:
                yield from self._passed(Envelope(member, peer=envelope.peer) for member in members)
            elif (passed := self._incoming(envelope)) is not None:
                yield passed

    def _incoming(self, envelope: Envelope[Received]) -> Envelope[Received] | None:
        """Return what to pass on of a message of the server; None for what is meant for this object."""
        message = envelope.message
        match message:
            case Response(id) | ErrorResponse(id) | Malformed(_, id) if id is not None:
                return self._take_reply(id, envelope)
            case Unanswered(None, why) if message.session_lost or message.connection_lost:
                if self._state in (State.PASSIVE, State.CLOSED):
                    return envelope
                self._lose(why, is_connection=message.connection_lost)
                self._fail_own(message)
                return None
            case Unanswered(id, why) if id is not None:
                return self._take_unanswered(id, message, envelope)
            case Request():
                return self._questions.ask(message, envelope)
            case Notification() if message.method == CANCELLED:
                return self._questions.withdraw(message, envelope)
        return envelope

    def _take_reply(self, request_id: RequestId, envelope: Envelope[Received]) -> Envelope[Received] | None:
        reply = envelope.message
        if self._take_own(request_id, cast("Reply", reply)):
            return None
        if isinstance(reply, Response) and self._offered is not None and request_id == self._offered.id:
            self._memory.handshake, self._offered = self._offered, None
            self._memory.result = accepted(reply)
            self._state = State.OPEN
        known = self._requests.take(request_id)
        if known is not None and isinstance(reply, Response):
            request = known.envelope.message
            if isinstance(request, Request) and request.method == "tools/list":
                self._memory.learn_tools(reply.result)
        return envelope

    def _take_unanswered(
        self, request_id: RequestId, news: Unanswered, envelope: Envelope[Received]
    ) -> Envelope[Received] | None:
        """Act on the news that a request gets no answer."""
        if self._take_own(request_id, news):
            return None
        lost = self._requests.take(request_id)
        if lost is None:
            # Its host has been answered, or it belongs to no session.
            return envelope if self._state in (State.PASSIVE, State.CLOSED) or not self._session else None
        if not news.session_lost:
            return envelope
        # The notice may refer to an earlier session.
        if lost.session == self._session:
            self._lose(news.why, is_connection=False)
        self._requests.lose(request_id, lost, news.why, was_ignored=True)
        self._wanted.set()
        return None

    def _take_own(self, request_id: RequestId, reply: Reply) -> bool:
        """Take a reply to a request of this object, which may have given up waiting for it; False if it is to another one."""
        if not isinstance(request_id, str) or not request_id.startswith(self._prefix):
            return False
        take = self._own.pop(request_id, None)
        if take is not None:
            take(reply)
        return True

    def _fail_own(self, news: Unanswered) -> None:
        """The connection has ended, and the requests of this object with it."""
        if news.connection_lost:
            if self._answer is not None:
                self._answer = news
            for request_id in [*self._own]:
                self._own.pop(request_id)(news)

    # as the connection does

    @property
    def close_reason(self) -> str | None:
        return self._inner.close_reason

    @property
    def ended_by_itself(self) -> bool:
        return self._inner.ended_by_itself

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __repr__(self) -> str:
        return f"<LastingSession {self._state.name.lower()} {self._inner!r}>"


def log_rejected(reply: Reply) -> None:
    """Note that the server does not take again what it took in an earlier session."""
    if not isinstance(reply, Response):
        logger.info("the server did not take again what was set in its earlier session: %r", reply)
