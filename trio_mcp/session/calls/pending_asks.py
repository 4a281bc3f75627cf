"""The requests that the calls of one connection have sent to its client, and which call gets each answer."""

# A question of a call that keeps a journal, across a restart of the server (request id 7, key `elicit-1`):
#
#     the call asks                 add(7)            sent; `actors` and `recorded` know it
#     the process ends
#     the session is restored       resume(...)       7 is waited for again, by the call that runs once more: `earlier`
#     the body asks `elicit-1`      earlier_request   not sent: it waits for the answer to 7
#     the answer to 7 comes         deliver(7)        recorded, then the lane that waits gets it
#
# The last two may come in the other order: then the body finds the answer in its journal.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeGuard, TypeVar

import trio

from ... import types
from ...base.named_tuples import NamedTuple
from ...errors import Disconnected, LimitExceeded, PeerError, RemoteProtocolError, without_traceback
from ...protocol.connection import Connection
from ...protocol.jsonrpc import Notification, Request, RequestId
from ...runtime import Account, Actor, EntryKind, JournalEntry
from ...types import JsonObject, Model
from .. import calls, recovery
from .call import Call
from .facts import Question
from .url_elicitations import SessionPages, UrlElicitations

if TYPE_CHECKING:
    from ..recovery.stored_journal import CallLog
    from .client_tasks import ClientTasks
    from .memory import CallMemory
    from .previous_run import PreviousRequest

T = TypeVar("T", bound=Model)

ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"


class AskedQuestion(NamedTuple):
    """A question of a call that keeps a journal.

    Attributes:
        fingerprint: tells it from another question under the same key.
        in_turn: it is for the user, who gets one at a time.
    """

    call: Call
    key: str
    fingerprint: str
    in_turn: bool


ENDED: Final = "the session has ended"


def drop(_message: Notification | Request) -> None:
    """Send nothing: the session has ended."""


class PendingAsks:
    """The requests that the calls of one connection have sent to its client, and the actors that wait for the answers.

    Args:
        post: sends the client a message that belongs to no request, if it can be reached now.
        account: counts what the session keeps; None counts nothing.
    """

    __slots__ = (
        "_account",
        "_answered",
        "_closed",
        "_connection",
        "_pages",
        "_tasks",
        "actors",
        "earlier",
        "forwarded",
        "post",
        "prompting",
        "recorded",
    )

    def __init__(
        self,
        connection: Connection,
        post: Callable[[Notification | Request], None],
        account: Account | None = None,
    ) -> None:
        self._connection = connection
        self.post = post
        self._account = account
        self.actors: dict[RequestId, Actor] = {}
        self.recorded: dict[RequestId, AskedQuestion] = {}
        """Those of calls that keep a journal."""
        self.earlier: dict[Call, dict[str, PreviousRequest]] = {}
        """What an earlier run of a call has asked and has no answer yet, by key. Together they hold the turn of the call."""
        self.prompting: dict[Call, trio.lowlevel.ParkingLot | None] = {}
        """The calls that have put a question to the user, and the lanes of each that wait for their turn."""
        self._tasks: ClientTasks | None = None
        """Those of the requests that run as tasks; None before the first."""
        self._answered: list[CallMemory] | None = None
        """The calls that have got answers which are not in their logs yet."""
        self._pages: SessionPages | None = None
        """The pages whose completion the client is notified of; None before the first."""
        self._closed = False
        self.forwarded: dict[RequestId, Callable[[Model | Exception], None]] = {}
        """Those that pass unread, and what takes their answers."""

    async def forward(self, method: str, params: JsonObject, send: Callable[[Notification | Request], None]) -> Model:
        """Send the client a request unread, for a proxy, and return its answer. A cancel withdraws it.

        Args:
            params: its members.
            send: sends the request, and its cancellation.

        Raises:
            PeerError, RemoteProtocolError: the client answered with an error, or with something else.
            Disconnected: the session has ended.
        """
        if self._closed:
            raise Disconnected(ENDED)
        request, answers, answered = (
            self._connection.new_request(method, params),
            list[Model | Exception](),
            trio.Event(),
        )

        def take(answer: Model | Exception) -> None:
            answers.append(answer)
            answered.set()

        self.forwarded[request.id] = take
        try:
            send(request)
            await answered.wait()
        finally:
            if self.forwarded.pop(request.id, None) is not None:
                notice = self._connection.withdraw(request.id, calls.client_tasks.NO_LONGER_NEEDED)
                if notice is not None:
                    send(notice)
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

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
        while self.forwarded:
            self.forwarded.popitem()[1](Disconnected(ENDED))
        self.actors.clear()
        self.recorded.clear()
        self.earlier.clear()
        if self._tasks is not None:
            self._tasks.clear()
        if self._pages is not None:
            self._pages.close()
            # It refers to this object.
            self._pages = None
        # It refers to the state of the session, which has this object.
        self.post = drop

    def _notify_completed(self, elicitation_id: str) -> None:
        codec = self._connection.terms.codec
        params = types.ElicitationCompleteNotificationParams(elicitation_id=elicitation_id)
        self.post(Notification(ELICITATION_COMPLETE, codec.encode_notification(ELICITATION_COMPLETE, params)))

    # requests

    def new_request(
        self, question: Question[T], actor: Actor, asked: AskedQuestion | None, *, as_task: bool
    ) -> Request:
        """Return a request that asks the question; its answer goes to the actor's mailbox, under the request's id.

        Args:
            asked: where the answer is recorded; None for a call without a journal.
            as_task: it asks for a task, or for the result of one.
        """
        result_method = question.result_method or question.method
        params = question.sent_params if question.trace else question.params
        request = self._connection.new_request(question.method, params, result_method=result_method)
        self.actors[request.id] = actor
        if as_task:
            self._tasks = self._tasks or calls.client_tasks.ClientTasks(self._connection)
            self._tasks.add(request.id, question.params)
        if asked is not None:
            self.recorded[request.id] = asked
            if asked.call.memory is not None:
                asked.call.memory.add_to_log(entry_of(request.id, result_method, asked))
        return request

    def settle(self, request_id: RequestId) -> Sequence[Notification | Request]:
        """Stop waiting for an answer; return what tells the client, if it still owes one."""
        if self.actors.pop(request_id, None) is None:
            return ()
        asked = self._forget(request_id)
        if asked is not None and asked.call.memory is not None:
            asked.call.memory.add_to_log(JournalEntry(EntryKind.WITHDRAWN, asked.key, None))
        if self._tasks is not None:
            return self._tasks.withdraw(request_id)
        notice = self._connection.withdraw(request_id, calls.client_tasks.NO_LONGER_NEEDED)
        return () if notice is None else (notice,)

    def settle_unsent(self, request_id: RequestId) -> None:
        """Forget a request that was not sent; the task whose result it would have asked for is cancelled."""
        for message in self.settle(request_id):
            if isinstance(message, Request):
                self.post(message)

    def cancel_task(self, task_id: str) -> None:
        """Cancel a task of the client whose result is not needed any more."""
        if self._tasks is not None:
            for message in self._tasks.cancellation(task_id):
                self.post(message)

    def deliver(self, request_id: RequestId, result: Model | Exception, size: int) -> None:
        """Hand an answer of `size` bytes to the call that asked, which keeps it; without room for it, the `LimitExceeded`."""
        if self._tasks is not None:
            for message in self._tasks.answered(request_id, result):
                self.post(message)
        forwarded = self.forwarded.pop(request_id, None)
        if forwarded is not None:
            forwarded(result)
            return
        actor = self.actors.pop(request_id, None)
        if actor is None:
            return
        try:
            actor.keep(size)
        except LimitExceeded as error:
            result = without_traceback(error)
        asked = self._forget(request_id)
        memory = None if asked is None else asked.call.memory
        if asked is not None and memory is not None and is_answer(result):
            memory.record_reply(asked.key, result, asked.fingerprint)
            if memory.log is not None:
                self._note_answered([memory])
        actor.mailbox.post(str(request_id), result)

    # in a durable store

    def keep_in(self, call: Call, log: CallLog) -> None:
        """Write what a call records, and what it asks, to a log from now on, and first what there is of both."""
        if call.memory is not None:
            mine = ((number, asked) for number, asked in self.recorded.items() if asked.call is call)
            method_of = self._connection.method_of
            requests = [entry_of(number, method_of(number), asked) for number, asked in mine]
            call.memory.keep_in(log, requests)

    @property
    def has_answers(self) -> bool:
        """Whether answers have come that are not in the logs of their calls yet."""
        return self._answered is not None

    async def commit_answers(self) -> bool:
        """Return whether the answers that have come are in the logs of their calls; a store that fails is logged.

        What is not in the store stays among the answers for the next commit.
        """
        answered, self._answered = self._answered or [], None
        left = [memory for memory in answered if not await memory.commit()]
        if left:
            self._note_answered(left)
        return not left

    def _note_answered(self, memories: Sequence[CallMemory]) -> None:
        self._answered = [*(self._answered or ()), *memories]

    # those of an earlier run

    def resume(self, call: Call, requests: Mapping[str, PreviousRequest]) -> None:
        """Wait for the answers to what an earlier run of this call has asked, by key. Called before its body runs."""
        if not requests:
            return
        self.earlier[call] = dict(requests)
        if any(request.in_turn for request in requests.values()):
            self.prompting[call] = None
        for key, request in requests.items():
            self._connection.wait_again(request.id, request.method)
            self.actors[request.id] = call.actor
            self.recorded[request.id] = AskedQuestion(call, key, request.fingerprint, request.in_turn)

    def earlier_request(self, call: Call, key: str) -> PreviousRequest | None:
        """Return the request under which an earlier run of this call has asked, if it waits for its answer."""
        return self.earlier.get(call, {}).get(key)

    def abandoned(self, call: Call) -> Iterable[Notification | Request]:
        """Stop waiting for what an earlier run has asked and this one, which has ended, has not."""
        requests = list(self.earlier.get(call, {}).values())
        return [message for request in requests for message in self.settle(request.id)]

    def _forget(self, request_id: RequestId) -> AskedQuestion | None:
        """Return what is known of a question that is over; the next one for the user gets its turn if this was an earlier one."""
        asked = self.recorded.pop(request_id, None)
        earlier = None if asked is None else self.earlier.get(asked.call)
        if asked is None or earlier is None or asked.key not in earlier or earlier[asked.key].id != request_id:
            return asked
        del earlier[asked.key]
        if asked.in_turn and not any(request.in_turn for request in earlier.values()):
            self.pass_turn(asked.call)
        if not earlier:
            del self.earlier[asked.call]
        return asked

    # for people

    def method_of(self, key: str) -> str | None:
        """Return the method of the request whose answer goes into this slot; None if there is none."""
        # The ids of our own requests are numbers.
        request_id = int(key) if key.isdecimal() else None
        return self._connection.method_of(request_id) if request_id in self.actors else None

    def queued(self, call: Call) -> int:
        """Return how many lanes of a call wait for their turn."""
        return len(self.prompting.get(call) or ())

    # turns

    async def wait_turn(self, call: Call) -> None:
        """Wait until the user has answered what the call asked before. A cancel while waiting gives the turn up."""
        if call not in self.prompting:
            self.prompting[call] = None
            return
        turn = self.prompting[call] = self.prompting[call] or trio.lowlevel.ParkingLot()
        call.actor.mailbox.admit(len(turn))
        await turn.park()
        try:
            # The call may have been cancelled since it was given its turn.
            await trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            self.pass_turn(call)
            raise

    def pass_turn(self, call: Call) -> None:
        """Let the next lane of the call put its question to the user."""
        turn = self.prompting[call]
        if turn:
            turn.unpark()
        else:
            del self.prompting[call]


def entry_of(request_id: RequestId, method: str, asked: AskedQuestion) -> JournalEntry:
    """Return the entry of a question for the log of its call."""
    return recovery.stored_journal.asked_entry(asked.key, asked.fingerprint, request_id, method, in_turn=asked.in_turn)


def is_answer(result: Model | Exception) -> TypeGuard[Model | PeerError | RemoteProtocolError]:
    """Return whether a client has answered with it: a replay does not ask again, as it does after the end of the connection.

    A task is not the answer yet.
    """
    return isinstance(result, Model | PeerError | RemoteProtocolError) and not isinstance(
        result, types.CreateTaskResult
    )
