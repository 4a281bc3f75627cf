"""How a question leaves a call: as a live request in the handshake era, as part of a round in the modern one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ..errors import CapabilityError, Disconnected, LimitExceeded
from ..protocol.capabilities import lacks
from ..protocol.jsonrpc import RequestId
from ..runtime import Lane
from ..types import ClientCapabilities, Model
from .envelope import Envelope
from .leg import Leg

if TYPE_CHECKING:
    from .call import Call
    from .server import ServerSession

__all__ = ["Backchannel", "LiveBackchannel", "Question", "require"]

T = TypeVar("T", bound=Model)


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


class LiveBackchannel:
    """Questions travel as requests of their own, about the call they belong to."""

    __slots__ = ("_session",)

    def __init__(self, session: ServerSession) -> None:
        self._session = session

    async def ask(self, call: Call, lane: Lane, question: Question[T]) -> T:  # noqa: ARG002  lanes matter in rounds
        leg = call.leg
        if leg is None:
            raise Disconnected("the call is over, or was answered for: nobody can be asked about it any more")
        require(leg.facts.client_capabilities, question)
        session = self._session
        request = session.connection.ask(question.method, question.params)
        request_id = request.id
        try:
            slot = call.actor.mailbox.open(
                str(request_id), question.answer_type, partial(self._withdraw, request_id, leg)
            )
        except (LimitExceeded, Disconnected):
            session.connection.withdraw(request_id, "never sent")
            raise
        session.awaited[request_id] = call.actor.mailbox
        try:
            listener = leg.listeners[0]
            await listener.outbox.send(Envelope(request, about=listener.request_id))
        except BaseException:
            session.awaited.pop(request_id, None)
            session.connection.withdraw(request_id, "never sent")
            slot.give_up()
            raise
        del question, request  # a person may take an hour, and a thousand calls may wait: a kilobyte each
        try:
            return await slot.take()
        finally:
            slot.give_up()

    def _withdraw(self, request_id: RequestId, leg: Leg) -> None:
        """The question was settled: by its answer, or else the client is told that none is wanted any more."""
        if self._session.awaited.pop(request_id, None) is not None:
            notice = self._session.connection.withdraw(request_id, "the call no longer needs the answer")
            if notice is not None:
                leg.post(notice)
