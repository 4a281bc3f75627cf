"""Questions that run as tasks at the client (2025-11-25): it answers with a task at once, whose result is asked for then."""

# One question, whose call goes on when the client has answered `tasks/result`:
#
#     server                                                  client
#     elicitation/create {"message":..,"task":{}}   (7)  -->
#                                                        <--  7: {"task":{"taskId":"t","status":"working",..}}
#     tasks/result {"taskId":"t"}                   (8)  -->
#                                                        <--  8: {"action":"accept",..}
#
# A call that no longer waits cancels the task with `tasks/cancel`. If it stops between 7 and its answer, the id is not known yet:
# the task is cancelled when the answer comes, since no notification may cancel a request that becomes a task (L-CAN-1b).

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import trio

from ...protocol.connection import Connection
from ...protocol.jsonrpc import Notification, Request, RequestId
from ...types import CreateTaskResult, Model, TaskMetadata, TaskRequestParams, declares
from .facts import Question, RequestFacts

T = TypeVar("T", bound=Model)

MAX_UNWANTED: Final = 100
"""Requests of one connection for tasks that are no longer needed, and whose ids the client has not sent yet."""

NO_LONGER_NEEDED: Final = "the call no longer needs the answer"


def runs_as_task(facts: RequestFacts, question: Question[T]) -> bool:
    """Return whether the client of a call lets this question run as a task."""
    return facts.terms.codec.may_ask_for_task(question.method, facts.client_capabilities)


def task_question(question: Question[T]) -> Question[Model]:
    """Return the question that asks the client to run this one as a task, for as long as its answer is waited for."""
    seconds = None if question.timeout is None else question.timeout.deadline - trio.current_time()
    task = TaskMetadata(ttl=None if seconds is None else max(1, int(seconds * 1000)))
    params = question.params.model_copy(update={"task": task})
    # A client that answers at once does as it would without tasks.
    return Question(question.kind, question.method, params, Model, question.needs, question.name, question.timeout)


def result_question(question: Question[T], created: CreateTaskResult) -> Question[T]:
    """Return the question for the result of the task that this one has become."""
    params = TaskRequestParams(task_id=created.task_id)
    return question._replace(method="tasks/result", params=params, result_method=question.method)


@dataclass(slots=True, eq=False)
class ClientTasks:
    """The requests of one connection that ask for tasks, or for their results, and are not answered yet."""

    _connection: Connection
    _creating: set[RequestId] = field(default_factory=set[RequestId])
    _unwanted: set[RequestId] = field(default_factory=set[RequestId])
    _results: dict[RequestId, str] = field(default_factory=dict[RequestId, str])

    def add(self, request_id: RequestId, params: Model) -> None:
        if isinstance(params, TaskRequestParams):
            self._results[request_id] = params.task_id
        elif getattr(params, "task", None) is not None:
            self._creating.add(request_id)

    def answered(self, request_id: RequestId, result: Model | Exception) -> Sequence[Notification | Request]:
        """Return the messages to send after an answer has come: they cancel a task that is no longer needed."""
        self._creating.discard(request_id)
        self._results.pop(request_id, None)
        if request_id not in self._unwanted:
            return ()
        self._unwanted.discard(request_id)
        return self.cancellation(result.task_id) if isinstance(result, CreateTaskResult) else ()

    def withdraw(self, request_id: RequestId) -> Sequence[Notification | Request]:
        """Return what tells the client that an answer is not waited for any more."""
        if request_id in self._creating and len(self._unwanted) < MAX_UNWANTED:
            self._creating.discard(request_id)
            self._unwanted.add(request_id)
            return ()
        self._creating.discard(request_id)
        task_id = self._results.pop(request_id, None)
        notice = self._connection.withdraw(request_id, NO_LONGER_NEEDED)
        if notice is None:
            return ()
        return (notice,) if task_id is None else (notice, *self.cancellation(task_id))

    def cancellation(self, task_id: str) -> Sequence[Request]:
        """Return what cancels a task; nothing if the client cannot cancel its tasks."""
        if not declares(self._connection.terms.client_capabilities, "tasks.cancel"):
            return ()
        request = self._connection.new_request("tasks/cancel", TaskRequestParams(task_id=task_id))
        # The client's answer is not needed.
        self._connection.withdraw(request.id, NO_LONGER_NEEDED)
        return (request,)

    def clear(self) -> None:
        self._creating.clear()
        self._unwanted.clear()
        self._results.clear()
