"""How a question leaves a call: as a live request in the handshake era, as part of a round in the modern one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from ..errors import CapabilityError, Disconnected, LimitExceeded, LocalProtocolError
from ..protocol.capabilities import lacks
from ..protocol.jsonrpc import Request, RequestId
from ..runtime import Lane, Slot
from ..types import ClientCapabilities, Model
from .envelope import Envelope
from .leg import UNHEARD, Leg

if TYPE_CHECKING:
    from .call import Call
    from .server import ServerSession


T = TypeVar("T", bound=Model)

NOBODY = "the call is over, or was answered for: nobody can be asked about it any more"


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """Something a call asks of its client.

    Attributes:
        kind: `elicit`, `sample` or `roots`; the first part of the question's key.
        answer_type: the model that a valid answer decodes to.
        needs: the client capabilities it takes, such as `elicitation.form`.
        name: what its author calls it, an identifier; the key of the question where a call asks it once, outside of branches.
    """

    kind: str
    method: str
    params: Model
    answer_type: type[T]
    needs: tuple[str, ...]
    name: str | None = None


class Backchannel(Protocol):
    """The way from a call to the client that made it."""

    async def ask(self, call: Call, lane: Lane, question: Question[T]) -> T:
        """Put a question to the client and return its answer. A cancel withdraws the question.

        Raises:
            CapabilityError: the client did not declare that it can answer; nothing was sent.
            LimitExceeded: the call has too many open questions; nothing was sent.
            LocalProtocolError: the call was cancelled, nobody would answer, and its clean-up asks behind a shield; nothing was
                sent.
            Disconnected: the call is over (a thread of it may not be), or took too long to clean up and was answered for.
            PeerError: the client answered with an error (handshake era only).
        """
        ...


def require(declared: ClientCapabilities, question: Question[T]) -> None:
    """Check a question against what the client declared for the current request."""
    missing = lacks(declared, question.needs)
    if missing is not None:
        names = ", ".join(missing)
        raise CapabilityError(f"this needs a client that supports {names}, which this one did not declare", missing)


def still_asking(call: Call, *, live: bool) -> None:
    """A call that was cancelled asks nothing where nobody would answer: behind a shield it would wait until it is given up.

    A live question can be answered when only the time of the call is up, say; in rounds none comes after a cancel.
    """
    reason = call.actor.reason
    if reason in UNHEARD or (reason is not None and not live):
        raise LocalProtocolError("the call was cancelled, and can ask nothing more")


class LiveBackchannel:
    """Questions travel as requests of their own, about the call they belong to.

    Those for the user go out one at a time, in the order in which they were asked, unless the service says otherwise: a user
    sees one prompt, and what came meanwhile would lie on top of it. What a model or the client itself answers is not held back.
    """

    __slots__ = ("_prompting", "_session", "_waiting")

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._prompting = False
        self._waiting: trio.lowlevel.ParkingLot | None = None

    async def ask(self, call: Call, lane: Lane, question: Question[T]) -> T:  # noqa: ARG002  lanes matter in rounds
        await trio.lowlevel.checkpoint_if_cancelled()
        still_asking(call, live=True)
        leg = call.leg
        if leg is None:
            raise Disconnected(NOBODY)
        require(leg.facts.client_capabilities, question)
        in_turn = question.kind == "elicit" and not call.service.options.parallel_prompts
        if in_turn:
            await self._turn(call)
        try:
            request, slot = self._opened(call, leg, question)
            try:
                await leg.listeners[0].outbox.send(Envelope(request, about=leg.listeners[0].request_id))
            except BaseException:
                self._forget(request.id)
                slot.give_up()
                raise
            del question, request  # a person may take an hour, and a thousand calls may wait: a kilobyte each
            try:
                return await slot.take()
            finally:
                slot.give_up()
        finally:
            if in_turn:
                self._pass_turn()

    def _opened(self, call: Call, leg: Leg, question: Question[T]) -> tuple[Request, Slot[T]]:
        """The request that asks, and the slot in which its answer will be."""
        if leg.ended or not leg.listeners:
            raise Disconnected(NOBODY)
        session, mailbox = self._session, call.actor.mailbox
        request = session.connection.ask(question.method, question.params)
        settled = partial(self._settled, request.id, leg)
        try:
            slot = mailbox.open(str(request.id), question.answer_type, settled)
        except (LimitExceeded, Disconnected):
            self._forget(request.id)
            raise
        session.awaited[request.id] = mailbox
        return request, slot

    def _forget(self, request_id: RequestId) -> None:
        """A request that was not sent."""
        self._session.awaited.pop(request_id, None)
        self._session.connection.withdraw(request_id, "never sent")

    def _settled(self, request_id: RequestId, leg: Leg) -> None:
        """A question has its answer, or nobody waits for it any more; the client is told so if it still owes one.

        In the very step in which that happens: of a stuck call, before it is answered for.
        """
        session = self._session
        if session.awaited.pop(request_id, None) is not None:
            notice = session.connection.withdraw(request_id, "the call no longer needs the answer")
            if notice is not None:
                leg.post(notice)

    async def _turn(self, call: Call) -> None:
        """Wait until the user has answered what was asked before. A cancel while waiting gives the place up."""
        if not self._prompting:
            self._prompting = True
            return
        if self._waiting is None:
            self._waiting = trio.lowlevel.ParkingLot()
        call.actor.mailbox.admit(len(self._waiting))
        await self._waiting.park()
        try:
            await trio.lowlevel.checkpoint_if_cancelled()  # it may have been cancelled since it was given its turn
        except BaseException:
            self._pass_turn()
            raise

    def _pass_turn(self) -> None:
        if self._waiting:
            self._waiting.unpark()
        else:
            self._prompting = False
