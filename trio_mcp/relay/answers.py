"""Answering the server's questions in place of a host: samples by a provider, forms by a function."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

import trio

from ..base.checks import check_callable, check_int
from ..base.groups import leaf_exceptions, single_exception, split_group
from ..base.logs import peer_logger
from ..base.shared_limits import ANSWERED_QUESTIONS
from ..errors import LimitExceeded, McpError, ProviderError, ProviderErrorKind, RemoteProtocolError
from ..protocol.codec import Codec
from ..protocol.codec.models import validated
from ..protocol.conversation import answer_problem, conversation_problem
from ..protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    SERVER_BUSY,
)
from ..runtime.quota import Quota
from ..sampling import SamplingProvider
from ..telemetry import open_telemetry
from ..types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    JsonObject,
    JsonValue,
    Model,
)
from .offers import ELICIT, SAMPLE, Offers

logger = peer_logger("trio_mcp.relay")

P = TypeVar("P", bound=Model)
T = TypeVar("T")

OnForm: TypeAlias = Callable[[ElicitRequestFormParams], Awaitable[ElicitResult]]
"""Shows a form to a user and returns the answer."""

FAILURES: Final[Mapping[ProviderErrorKind, str]] = MappingProxyType(
    {
        ProviderErrorKind.AUTHENTICATION: "the API of the model rejected the key of the proxy",
        ProviderErrorKind.REJECTED: "the API of the model rejected the request",
        ProviderErrorKind.RATE_LIMITED: "the API of the model allows no more requests for now",
        ProviderErrorKind.UNAVAILABLE: "the API of the model failed",
        ProviderErrorKind.TIMEOUT: "the model did not answer in time",
        ProviderErrorKind.UNREACHABLE: "the API of the model cannot be reached",
        ProviderErrorKind.MALFORMED: "the API of the model sent something that is no answer",
    }
)
"""What the other side reads of a failure. The words of the API, which may hold anything, are for the log."""

FAULT: Final = "the proxy has a fault"


@dataclass(frozen=True, slots=True)
class Backfill:
    """Answers the questions of a server in place of the proxy's host.

    Args:
        provider: answers samples; None leaves them to the host.
        on_form: answers forms; None leaves them to the host.
        max_answering: how many questions are answered at once, over all connections; more are rejected. Callers share this
            limit: see `Quota`.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """

    provider: SamplingProvider | None = None
    on_form: OnForm | None = None
    max_answering: int = ANSWERED_QUESTIONS.limit

    def __post_init__(self) -> None:
        check_int("max_answering", self.max_answering, least=1)
        if self.provider is not None:
            check_callable("provider.sample", getattr(self.provider, "sample", None), "an async function of a request")
        if self.on_form is not None:
            check_callable("on_form", self.on_form)

    @property
    def offers(self) -> Offers:
        """What of it a host may lack."""
        return Offers(samples=self.provider is not None, forms=self.on_form is not None)


class Answers:
    """Answers questions, at most `backfill.max_answering` at a time."""

    def __init__(self, backfill: Backfill) -> None:
        self.backfill = backfill
        self._running = Quota(ANSWERED_QUESTIONS, backfill.max_answering)
        self._telemetry = open_telemetry()

    def _traced(self, method: str, fn: Callable[[P], Awaitable[T]]) -> Callable[[P], Awaitable[T]]:
        """Return a function that answers as a span, below that of the server which asks."""
        return fn if self._telemetry is None else self._telemetry.answering(method, fn)

    async def answer(self, method: JsonValue, params: JsonValue, caller: Hashable | None) -> Model:
        """Return the answer to a question that `Offers.answers` accepts. A cancel ends the request to the model.

        Args:
            caller: whose host it is for; see `Quota`.

        Raises:
            RemoteProtocolError: the question breaks the rules, there are too many, or there is no answer; its text and code
                are for the server.
        """
        try:
            self._running.take(caller)
        except LimitExceeded as error:
            raise RemoteProtocolError(str(error), code=SERVER_BUSY) from None
        try:
            return await (self._sample(params) if method == SAMPLE else self._form(params))
        finally:
            self._running.give_back(caller)

    async def answer_round(
        self, codec: Codec, questions: Mapping[str, JsonValue], caller: Hashable | None
    ) -> JsonObject:
        """Answer the questions of a round concurrently; the first failure cancels the others.

        Raises:
            RemoteProtocolError: one of them has no answer; see `answer`.
        """
        answers: dict[str, JsonValue] = {}

        async def answer_one(key: str, question: JsonObject) -> None:
            method = question.get("method")
            assert isinstance(method, str)
            answers[key] = codec.encode_input_response(
                method, await self.answer(method, question.get("params"), caller)
            )

        failure: Exception | None = None
        try:
            async with trio.open_nursery() as nursery:
                for key, question in questions.items():
                    nursery.start_soon(answer_one, key, question if isinstance(question, dict) else {})
        except* McpError as group:
            # Several may have failed before the first could cancel them.
            failure = leaf_exceptions(group)[0]
        if failure is not None:
            raise failure
        return dict(answers)

    async def _sample(self, params: JsonValue) -> CreateMessageResult:
        provider = self.backfill.provider
        assert provider is not None
        request = validated(CreateMessageRequestParams, params, "params")
        problem = conversation_problem(request.messages)
        if problem is not None:
            raise RemoteProtocolError(problem, code=INVALID_PARAMS)
        result = await contained(SAMPLE, self._traced(SAMPLE, provider.sample)(request), CreateMessageResult)
        problem = answer_problem(result.role, result.content)
        if problem is not None:
            logger.warning("the answer of the model was dropped: %s", problem)
            raise _failed(SAMPLE, FAILURES[ProviderErrorKind.MALFORMED])
        return result

    async def _form(self, params: JsonValue) -> ElicitResult:
        on_form = self.backfill.on_form
        assert on_form is not None
        form = validated(ElicitRequestFormParams, params, "params")
        return await contained(ELICIT, self._traced(ELICIT, on_form)(form), ElicitResult)


Result = TypeVar("Result", bound=Model)


async def contained(method: str, answer: Awaitable[object], kind: type[Result]) -> Result:
    """Return an answer of the program's code; whatever else that does fails this one question.

    Raises:
        RemoteProtocolError: it raised something, also `SystemExit` or a group, or returned something else.
    """
    try:
        result = await answer
    except BaseException as error:  # noqa: BLE001, ASYNC103  this is the boundary
        if trio.current_effective_deadline() == -math.inf:  # the question was cancelled
            # No name for the rest: it would keep the error, and with it this frame.
            cancelled = split_group(error, trio.Cancelled)[0]
            if cancelled is not None:
                raise cancelled from None  # noqa: ASYNC104
        why = _why(method, error)
    else:
        if isinstance(result, kind):
            return result
        logger.error("%s failed: the answer is a %s, and no %s", method, type(result).__name__, kind.__name__)
        why = FAULT
    raise _failed(method, why)


def _why(method: str, error: BaseException) -> str:
    """Log why a question has no answer, and return what the other side reads of it."""
    leaf = single_exception(error) if isinstance(error, Exception) else error
    if isinstance(leaf, ProviderError):
        logger.warning("%s failed: %s", method, leaf)
        return FAILURES[leaf.kind]
    logger.error("%s failed", method, exc_info=error)
    return FAULT


def _failed(method: str, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{method} failed: {why}", code=INTERNAL_ERROR)
