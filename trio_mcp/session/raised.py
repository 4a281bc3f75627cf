"""The exceptions of a server's functions, for a client in the same process that raises them (`raise_exceptions=True`).

An exception is passed beside the channel, under the id of the request: the server puts it before it sends the response, and the
client takes it when the response has come. It is kept for that time only, since its traceback holds the frames of the call.
That of a task is passed under the id of the task, and kept until somebody asks for the result.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ..errors import PeerError
from ..protocol.jsonrpc import RequestId
from ..types import Model


class RaisedErrors:
    """The exceptions of the calls of one connection, by the id of the request or of the task."""

    __slots__ = ("_errors", "_of_tasks")

    def __init__(self) -> None:
        self._errors: dict[RequestId, Exception] = {}
        self._of_tasks: dict[str, Exception] = {}

    def put(self, request_id: RequestId, error: Exception) -> None:
        """Keep an exception until its client takes it."""
        self._errors[request_id] = error

    def put_for_task(self, task_id: str, error: Exception) -> None:
        """Keep the exception that a task ended with, until its client takes it."""
        self._of_tasks[task_id] = error

    def raise_for_task(self, task_id: str) -> None:
        """Raise the exception that a task ended with, if it did and this is the first time."""
        raised = self._of_tasks.pop(task_id, None)
        try:
            if raised is not None:
                raise raised
        finally:
            del raised

    async def result_of(self, request_id: RequestId, answer: Awaitable[Model]) -> Model:
        """Return the answer to a request, or raise the exception that it stands for."""
        result, rejection = None, None
        try:
            result = await answer
        except PeerError as error:
            rejection = error
        finally:
            raised = self._errors.pop(request_id, None)
        try:
            if raised is not None:
                raise raised
            if rejection is not None:
                raise rejection
        finally:
            # Their tracebacks hold this frame, and the frame holds them: without this, both live until the garbage collector
            # runs.
            del raised, rejection
        assert result is not None
        return result

    def __len__(self) -> int:
        return len(self._errors) + len(self._of_tasks)
