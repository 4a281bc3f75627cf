"""Answering the rounds of a modern server: its questions go to the handlers, concurrently, as long as the connection lasts."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field

import trio

from ..errors import CapabilityError, Disconnected, LimitExceeded
from ..groups import unwrap, without
from ..printable import one_line
from ..protocol.codec import Codec
from ..types import InputRequest, InputResponseRequestParams, JsonObject, Model
from .handlers import FindHandler, Handlers

MAX_QUESTIONS = 1000
"""Questions of one round that are answered."""
MAX_NOTES = 10
"""Further failures of a round that its first one has notes about."""


@dataclass(slots=True, eq=False)
class Rounds:
    """Answers the rounds of the calls over one connection.

    Args:
        limit: handlers that run at once; the questions above it wait for their turn.
    """

    _handlers: Handlers
    _limit: int
    _scopes: set[trio.CancelScope] = field(default_factory=set[trio.CancelScope])
    _places: trio.Semaphore = field(init=False)
    _ended: Disconnected | None = None

    def __post_init__(self) -> None:
        self._places = trio.Semaphore(self._limit)

    async def answer(self, asker: str, questions: Mapping[str, InputRequest], codec: Codec) -> dict[str, JsonObject]:
        """Answer the questions of one round, and return the answers by key.

        Args:
            asker: the name of the tool or prompt, or the URI of the resource, that asks.

        Raises:
            LimitExceeded: there are more than `MAX_QUESTIONS`.
            CapabilityError: one asks for something that this client never declared.
            Disconnected: the connection has ended, so that no answer can be sent; the handlers were cancelled.

        The first exception of a handler ends the round and cancels the other handlers. If others fail too, at the same time or
        as they are cancelled, it has a note for each. The server receives no answers; it does not wait for any, as the request
        has ended.
        """
        if len(questions) > MAX_QUESTIONS:
            raise LimitExceeded(
                f"the server asked {len(questions)} questions in one round; the limit is {MAX_QUESTIONS}"
            )
        if self._ended is None:
            with trio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    return await self._ask_all(self._handlers.find_for(asker), questions, codec)
                finally:
                    self._scopes.discard(scope)
        # A new exception for each caller: a shared one would collect the tracebacks of all of them.
        raise Disconnected(str(self._ended))

    def end(self, why: Disconnected) -> None:
        """Cancel the handlers of all rounds: the connection has ended."""
        self._ended = why
        for scope in self._scopes:
            scope.cancel()

    async def _ask_all(
        self, find: FindHandler, questions: Mapping[str, InputRequest], codec: Codec
    ) -> dict[str, JsonObject]:
        answers: dict[str, JsonObject] = {}

        async def answer(key: str, method: str, answering: Awaitable[Model]) -> None:
            try:
                answers[key] = codec.encode_input_response(method, await answering)
            finally:
                self._places.release()

        failure: BaseException | None = None
        try:
            # Concurrently, as the server asked them in concurrent branches. A client that shows one form at a time needs a lock.
            async with trio.open_nursery() as nursery:
                for key, question in questions.items():
                    handler = find(question.method, key)
                    if handler is None:
                        why = f"the server asked for {question.method}, which this client did not declare"
                        raise CapabilityError(why, {})
                    params = question.params if question.params is not None else InputResponseRequestParams()
                    await self._take_place()
                    # Called here, in the order of the round: Trio starts the tasks of a nursery in any order.
                    try:
                        answering = handler(params)
                    except BaseException:
                        self._places.release()
                        raise
                    nursery.start_soon(answer, key, question.method, answering)
        except BaseExceptionGroup as group:
            failure = first_failure(group)
            if failure is None:
                raise
        # Raised outside of the `except`, so that it keeps its context and does not show the nursery's group.
        if failure is not None:
            try:
                raise failure
            finally:
                # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
                del failure
        return answers

    async def _take_place(self) -> None:
        try:
            self._places.acquire_nowait()
        except trio.WouldBlock:
            await self._places.acquire()


def first_failure(group: BaseExceptionGroup) -> BaseException | None:
    """Return the exception that ended a round, with a note for each that came after it; None if all handlers were cancelled."""
    # An error replaces the cancel of its handler's task, as it does in a function without a nursery: the scope stays cancelled.
    failed = without(group, trio.Cancelled)
    # A Ctrl-C or an exit is not the round's to take apart.
    if not isinstance(failed, ExceptionGroup):
        return None if failed is None else unwrap(failed)
    # A nursery lists the exceptions of its tasks in the order in which the tasks ended.
    first, *others = failed.exceptions
    for error in others[:MAX_NOTES]:
        # Not `str(error)`, which may raise.
        text = "".join(traceback.format_exception_only(error)).strip()
        first.add_note(f"another question of the round failed too: {one_line(text)}")
    if len(others) > MAX_NOTES:
        first.add_note(f"{len(others) - MAX_NOTES} more questions of the round failed")
    return first
