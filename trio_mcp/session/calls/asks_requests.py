"""Calls whose questions are requests (legacy): each is sent immediately, on the channel of the request that is being served."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import trio

from ...errors import (
    CapabilityError,
    Disconnected,
    LimitExceeded,
    LocalProtocolError,
    MalformedAnswer,
    PeerError,
    QuestionRejected,
    RemoteProtocolError,
    without_traceback,
)
from ...protocol.connection import Connection
from ...protocol.jsonrpc import INVALID_PARAMS, Notification, Request, RequestId
from ...runtime import CALL_OVER_MESSAGE, Account, Actor, Lane, Slot
from ...types import ClientCapabilities, ElicitationCompleteNotificationParams, Model
from ...types.capabilities import lacks
from ..envelope import Envelope, content_size
from ..replies import ReplyTarget
from .call import Call
from .facts import Question, RequestFacts
from .failures import check_capabilities
from .url_elicitations import SessionPages, UrlElicitations

T = TypeVar("T", bound=Model)

EXPECTED: Final[Mapping[str, str]] = {
    "elicit": "its user's answer",
    "sample": "its model's answer",
    "roots": "its folders",
}
"""What a question asks a client for, by its kind, in the words of an error."""


ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"


@dataclass(slots=True, eq=False, repr=False)
class PendingAsks:
    """The requests that the calls of one connection have sent to its client, and the actors that wait for the answers.

    Args:
        notify: sends the client a notification that belongs to no request, if it can be reached now.
        account: counts what the session keeps; None counts nothing.
    """

    _connection: Connection
    _notify: Callable[[str, Model], None]
    _account: Account | None = None
    actors: dict[RequestId, Actor] = field(default_factory=dict[RequestId, Actor])
    prompting: dict[Call, trio.lowlevel.ParkingLot | None] = field(default_factory=dict)
    """The calls that have put a question to the user, and the lanes of each that wait for their turn."""
    _pages: SessionPages | None = None
    """The pages whose completion the client is notified of; None before the first."""
    _closed: bool = False

    def expect_completion(self, elicitations: UrlElicitations, elicitation_id: str) -> None:
        """Notify the client when its user has finished at a page, unless the session ends before. Raises as `add` does."""
        if self._closed:
            return
        if self._pages is None:
            self._pages = SessionPages(elicitations, self._account, self._notify_completed)
        self._pages.add(elicitation_id)

    def close(self) -> None:
        """Wait for no answer and no page any more: the session has ended."""
        self._closed = True
        self.actors.clear()
        if self._pages is not None:
            self._pages.close()
            # It refers to this object.
            self._pages = None

    def _notify_completed(self, elicitation_id: str) -> None:
        self._notify(ELICITATION_COMPLETE, ElicitationCompleteNotificationParams(elicitation_id=elicitation_id))

    def new_request(self, question: Question[T], actor: Actor) -> Request:
        """Return a request that asks the question; its answer goes to the actor's mailbox, under the request's id."""
        request = self._connection.new_request(question.method, question.params)
        self.actors[request.id] = actor
        return request

    def settle(self, request_id: RequestId) -> Notification | None:
        """Stop waiting for an answer; the notification tells the client, if it still owes one."""
        if self.actors.pop(request_id, None) is None:
            return None
        return self._connection.withdraw(request_id, "the call no longer needs the answer")

    def deliver(self, request_id: RequestId, result: Model | Exception, size: int) -> None:
        """Hand an answer of `size` bytes to the call that asked, which keeps it; without room for it, the `LimitExceeded`."""
        actor = self.actors.pop(request_id, None)
        if actor is None:
            return
        try:
            actor.keep(size)
        except LimitExceeded as error:
            result = without_traceback(error)
        actor.mailbox.post(str(request_id), result)


class AskAgain(Exception):
    """Raised where a call waits for an answer, when its question has to be sent again."""


class CallByRequests(Call[PendingAsks]):
    """A call that asks by requests. Its origin is the connection that they go out on, with those that have no answer yet.

    Those for the user go out one at a time, in the order in which they were asked, unless the service says otherwise: a user
    sees one prompt, and a second one would lie on top of it. Questions to a model or to the client itself are not held back.
    """

    __slots__ = ()

    async def ask(self, lane: Lane, question: Question[T]) -> T:  # noqa: ARG002  lanes matter in rounds
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_can_ask(sends_requests=True)
        check_capabilities(self.facts, question)
        in_turn = question.kind == "elicit" and not self.services.options.parallel_prompts
        if in_turn:
            await self._wait_turn()
        try:
            # Only a call with a key may have to ask again. See `_ask_once` for the others.
            kept, asking = None if self.keyed is None else question, self._ask_once(question)
            del question
            while True:  # noqa: ASYNC913  it raises `AskAgain` only after a wait
                try:
                    return await asking
                except AskAgain:
                    assert kept is not None
                    asking = self._ask_once(kept)
        finally:
            if in_turn:
                self._pass_turn()

    async def _ask_once(self, question: Question[T]) -> T:
        """Ask on the channel of the request that is being served; raise `AskAgain` if another one has taken its place."""
        target = self.target
        if target is None:
            raise Disconnected(CALL_OVER_MESSAGE)
        request, slot = self._open_request(question)
        try:
            target.check_room(content_size(request))
            await target.outbox.send(Envelope(request, about=target.request_id))
        except BaseException:
            # Not sent: `Outbox.send` queues nothing when it is cancelled, so the client must not be told to forget it.
            self._origin.settle(request.id)
            slot.give_up()
            raise
        expected = EXPECTED.get(question.kind, "an answer")
        # A person may take an hour, and a thousand calls may wait: a kilobyte each.
        del question, request, target
        try:
            return await slot.take()
        except PeerError as error:
            raise QuestionRejected(expected, error) from None
        except RemoteProtocolError as error:
            raise MalformedAnswer(expected, error) from None

    def take_over_on(self, asks: PendingAsks, facts: RequestFacts, target: ReplyTarget) -> None:
        """Answer a repeat of the request, perhaps on another connection: open questions are asked again there.

        The client has lost the response that brought them, and with it the prompts that its user saw.
        """
        self.take_over(facts, target)
        earlier = self._origin
        open_asks = [request_id for request_id, actor in earlier.actors.items() if actor is self.actor]
        for request_id in open_asks:
            # Withdrawn by `_on_settled` on the same connection; on another one its id means nothing.
            if asks is not earlier:
                earlier.settle(request_id)
            self.actor.mailbox.post(str(request_id), AskAgain())
        if asks is not earlier and self in earlier.prompting:
            asks.prompting[self] = earlier.prompting.pop(self)
        self._origin = asks

    def notify_completed(self, elicitation_id: str) -> None:
        codec = self.facts.terms.codec
        if self.is_answering and not self.cancelled_by_client and codec.can_notify(ELICITATION_COMPLETE):
            params = ElicitationCompleteNotificationParams(elicitation_id=elicitation_id)
            self.post(Notification(ELICITATION_COMPLETE, codec.encode_notification(ELICITATION_COMPLETE, params)))

    def expect_completion(self, elicitation_ids: Iterable[str]) -> None:
        if self.facts.terms.codec.can_notify(ELICITATION_COMPLETE):
            for name in elicitation_ids:
                self._origin.expect_completion(self.services.url_elicitations, name)

    def _open_request(self, question: Question[T]) -> tuple[Request, Slot[T]]:
        """Return the request that asks, and the slot that its answer will be in."""
        try:
            request = self._origin.new_request(question, self.actor)
        except LocalProtocolError as error:
            # With this code the codec says that the client's revision has no such form or message. The tool may ask otherwise.
            if error.code != INVALID_PARAMS:
                raise
            needed = lacks(ClientCapabilities(), question.needs) or {}
            revision = self.facts.terms.codec.revision.name
            raise CapabilityError(f"a client that speaks {revision} cannot be asked this: {error}", needed) from None
        try:
            slot = self.actor.mailbox.open(str(request.id), question.answer_type, partial(self._on_settled, request.id))
        except (LimitExceeded, Disconnected):
            self._origin.settle(request.id)
            raise
        return request, slot

    def _on_settled(self, request_id: RequestId) -> None:
        """A question has its answer, or the call stopped waiting for it; the client gets a cancellation if it still owes one.

        This runs in the step in which that happens: for a stuck call, before the call is answered for.
        """
        notice = self._origin.settle(request_id)
        if notice is not None:
            self.post(notice)

    async def _wait_turn(self) -> None:
        """Wait until the user has answered what was asked before. A cancel while waiting gives the turn up."""
        prompting = self._origin.prompting
        if self not in prompting:
            prompting[self] = None
            return
        turn = prompting[self] = prompting[self] or trio.lowlevel.ParkingLot()
        self.actor.mailbox.admit(len(turn))
        await turn.park()
        try:
            # The call may have been cancelled since it was given its turn.
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            self._pass_turn()
            raise

    def _pass_turn(self) -> None:
        turn = self._origin.prompting[self]
        if turn:
            turn.unpark()
        else:
            del self._origin.prompting[self]
