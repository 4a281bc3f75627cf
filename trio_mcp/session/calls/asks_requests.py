"""Calls whose questions are requests (legacy): each is sent immediately, on the channel of the request that is being served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import trio

from ...errors import Disconnected, LimitExceeded, MalformedAnswer, PeerError, QuestionRejected, RemoteProtocolError
from ...protocol.connection import Connection
from ...protocol.jsonrpc import Notification, Request, RequestId
from ...runtime import CALL_OVER_MESSAGE, Lane, Mailbox, Slot
from ...types import Model
from ..envelope import Envelope, content_size
from .call import Call
from .facts import Question
from .failures import check_capabilities

T = TypeVar("T", bound=Model)

EXPECTED: Final[Mapping[str, str]] = {
    "elicit": "its user's answer",
    "sample": "its model's answer",
    "roots": "its folders",
}
"""What a question asks a client for, by its kind, in the words of an error."""


@dataclass(slots=True, eq=False, repr=False)
class PendingAsks:
    """The requests that the calls of one connection have sent to its client, and the mailboxes that wait for the answers."""

    _connection: Connection
    mailboxes: dict[RequestId, Mailbox] = field(default_factory=dict[RequestId, Mailbox])
    prompting: dict[Call, trio.lowlevel.ParkingLot | None] = field(default_factory=dict)
    """The calls that have put a question to the user, and the lanes of each that wait for their turn."""

    def new_request(self, question: Question[T], mailbox: Mailbox) -> Request:
        """Return a request that asks the question; its answer goes to the mailbox, under the request's id."""
        request = self._connection.new_request(question.method, question.params)
        self.mailboxes[request.id] = mailbox
        return request

    def settle(self, request_id: RequestId) -> Notification | None:
        """Stop waiting for an answer; the notification tells the client, if it still owes one."""
        if self.mailboxes.pop(request_id, None) is None:
            return None
        return self._connection.withdraw(request_id, "the call no longer needs the answer")

    def deliver(self, request_id: RequestId, result: Model | Exception) -> None:
        """Hand an answer to the call that asked."""
        mailbox = self.mailboxes.pop(request_id, None)
        if mailbox is not None:
            mailbox.post(str(request_id), result)


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
        finally:
            if in_turn:
                self._pass_turn()

    def _open_request(self, question: Question[T]) -> tuple[Request, Slot[T]]:
        """Return the request that asks, and the slot that its answer will be in."""
        mailbox = self.actor.mailbox
        request = self._origin.new_request(question, mailbox)
        try:
            slot = mailbox.open(str(request.id), question.answer_type, partial(self._on_settled, request.id))
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
