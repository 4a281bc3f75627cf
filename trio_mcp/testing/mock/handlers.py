"""The handlers of a mock client for one call: they take the next answer of a script and do what it says."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from ...client import Handlers, dismiss
from ...client.handlers import FindHandler
from ...client.sampling import maybe_await
from ...errors import Disconnected
from ...scripts import Script, Step
from ...server.sampling.attempts import reason_of
from ...session import RequestHandler
from ...types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    ElicitRequestURLParams,
    ListRootsResult,
    Model,
    Root,
)
from .actions import Delay, Disconnect, Never, SecondWorker
from .answers import elicit_result, mock_sample
from .questions import Kind, Question
from .workers import Workers


@dataclass(slots=True, eq=False)
class Attempt:
    """One connection of a mock client, for one call or for several: where the questions go to, and what ended it.

    Attributes:
        questions: the record of the mock client, which the call adds to.
        failure: why the test fails; None if it does not.
    """

    workers: Workers
    scripts: Mapping[Kind, Script]
    roots: list[Root] | None
    questions: list[Question]
    is_modern: bool
    failure: BaseException | None = None
    _scopes: set[trio.CancelScope] = field(default_factory=set[trio.CancelScope])

    @contextmanager
    def until_failure(self) -> Generator[None]:
        """Cancel the block when the script does not fit."""
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    def answer(self, kind: Kind, key: str | None, params: Model) -> Awaitable[Model]:
        """Take the next answer for a question and return what gives it. Answers are taken in the order of the calls."""
        question = Question(kind, params, self.workers.legs if self.is_modern else 1)
        self.questions.append(question)
        if kind == "roots":
            return self._list_roots()
        script = self.scripts[kind]
        step = script.take()
        return self._fail(ran_out(script, question, self.questions)) if step is None else self._do(step, question, key)

    async def _list_roots(self) -> Model:
        if self.roots is None:
            return await self._fail(AssertionError("the tool asked for the roots, and the mock client has no roots="))
        return ListRootsResult(roots=self.roots)

    async def _fail(self, error: BaseException) -> Model:
        """End the call, which then raises this error; the question gets no answer."""
        # Not raised here: a legacy tool would get it as an error of its client, and might catch it.
        if self.failure is None:
            self.failure = error
        for scope in self._scopes:
            scope.cancel()
        return await trio.sleep_forever()

    async def _do(self, step: Step, question: Question, key: str | None) -> Model:
        try:
            answer = await self._resolve(step.answer, question, key)
            if isinstance(answer, Exception):
                reply: Model | Exception = answer
            elif question.kind == "sample":
                reply = mock_sample(step.name, answer, question)
            else:
                reply = elicit_result(step.name, answer, question.params)
        except Exception as error:  # noqa: BLE001  the call raises it
            return await self._fail(error)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _resolve(self, answer: object, question: Question, key: str | None) -> object:
        """Go through the steps round an answer and return it; of a function, what it returns."""
        match answer:
            case Delay(seconds, inner):
                await trio.sleep(seconds)
                return await self._resolve(inner, question, key)
            case SecondWorker(inner):
                resolved = await self._resolve(inner, question, key)
                if self.is_modern:
                    self.workers.use_second()
                return resolved
            case Never():
                return await self._never(question.kind, key)
            case Disconnect():
                self.workers.disconnect()
                return await self._fail(Disconnected("the script of the mock client lost the connection"))
            case _ if callable(answer):
                return await self._resolve(await maybe_await(answer(question.params)), question, key)
            case _:
                return answer

    async def _never(self, kind: Kind, key: str | None) -> object:
        if key is None:
            # A request of a legacy server, which cancels it when the tool gives it up.
            return await trio.sleep_forever()
        # The round of a modern client goes on when all its questions have an answer. The server ignores this one, because the
        # tool no longer waits for it.
        await self.workers.wait_given_up(key)
        return dismiss() if kind != "sample" else ""


def ran_out(script: Script, question: Question, asked: list[Question]) -> AssertionError:
    """Return the error for a question that the script has no answer for.

    If the tool asks the model again because an answer was invalid, the script is not too short: its last answer is wrong.
    """
    reason = reason_of(question.params) if isinstance(question.params, CreateMessageRequestParams) else None
    if reason is not None and script.last is not None:
        what = f"{script.last.name} does not fit: {reason}"
        return AssertionError(f"{what}; it is {script.last.answer!r:.200}, and there is no other answer ({script})")
    before = [str(each) for each in asked[:-1]]
    text = f"the tool asked, and the script has no answer left: {question} ({script})"
    return AssertionError(f"{text}; asked before: {'; '.join(before)}" if before else text)


@dataclass(frozen=True, slots=True)
class ScriptedHandlers(Handlers):
    """The handlers of one attempt. `declared` are the capabilities, whatever the script can answer."""

    declared: ClientCapabilities = field(default_factory=ClientCapabilities)
    attempt: Attempt | None = None

    def __post_init__(self) -> None:
        """Check nothing: no function of the program is among the members."""

    @property
    def capabilities(self) -> ClientCapabilities:
        return self.declared

    @property
    def request_handlers(self) -> Mapping[str, RequestHandler]:
        return {method: partial(self._answer, method, None) for method in METHODS}

    def find_for(self, asker: str) -> FindHandler:  # noqa: ARG002
        return lambda method, key: partial(self._answer, method, key) if method in METHODS else None

    def _answer(self, method: str, key: str | None, params: Model) -> Awaitable[Model]:
        assert self.attempt is not None
        kind: Kind = "url" if isinstance(params, ElicitRequestURLParams) else METHODS[method]
        return self.attempt.answer(kind, key, params)


METHODS: Mapping[str, Kind] = {
    "elicitation/create": "elicit",
    "sampling/createMessage": "sample",
    "roots/list": "roots",
}
