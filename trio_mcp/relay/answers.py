"""Answering the server's questions in place of a host: samples by a provider, forms by a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from ..checks import check_callable, check_int
from ..errors import ProviderError, ProviderErrorKind, RemoteProtocolError
from ..logs import peer_logger
from ..protocol.codec.reading import validated
from ..protocol.conversation import answer_problem, conversation_problem
from ..protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, SERVER_BUSY
from ..sampling import SamplingProvider
from ..types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    JsonValue,
    Model,
)
from .offers import ELICIT, SAMPLE, Offers

logger = peer_logger("trio_mcp.relay")

MAX_ANSWERING: Final = 32
"""Questions that the proxy answers at a time, over all connections."""

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


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a proxy answers with.

    Args:
        provider: answers samples; None leaves them to the host.
        on_form: answers forms; None leaves them to the host.
        max_answering: how many questions are answered at a time, over all connections; more are rejected.

    Raises:
        TypeError, ValueError: an argument is invalid.
    """

    provider: SamplingProvider | None = None
    on_form: OnForm | None = None
    max_answering: int = MAX_ANSWERING

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


@dataclass(eq=False)
class Answers:
    """Answers questions, so many at a time.

    Attributes:
        running: how many are being answered.
    """

    backfill: Backfill
    running: int = field(default=0, init=False)

    async def answer(self, method: JsonValue, params: JsonValue) -> Model:
        """Return the answer to a question that `Offers.answers` accepts. A cancel ends the request to the model.

        Raises:
            RemoteProtocolError: the question breaks the rules, there are too many, or there is no answer; its text and code
                are for the server.
        """
        limit = self.backfill.max_answering
        if self.running >= limit:
            raise RemoteProtocolError(
                f"the proxy answers {limit} questions at a time, and no more (max_answering)", code=SERVER_BUSY
            )
        self.running += 1
        try:
            return await (self._sample(params) if method == SAMPLE else self._form(params))
        finally:
            self.running -= 1

    async def _sample(self, params: JsonValue) -> CreateMessageResult:
        provider = self.backfill.provider
        assert provider is not None
        request = validated(CreateMessageRequestParams, params, "params")
        problem = conversation_problem(request.messages)
        if problem is not None:
            raise RemoteProtocolError(problem, code=INVALID_PARAMS)
        try:
            result = await provider.sample(request)
        except ProviderError as error:
            logger.warning("%s failed: %s", SAMPLE, error)
            raise _failed(SAMPLE, FAILURES[error.kind]) from None
        except Exception as error:
            logger.exception("%s failed", SAMPLE, exc_info=error)
            raise _failed(SAMPLE, "the proxy has a fault") from None
        problem = answer_problem(result.role, result.content)
        if problem is not None:
            logger.warning("the answer of the model was dropped: %s", problem)
            raise _failed(SAMPLE, FAILURES[ProviderErrorKind.MALFORMED])
        return result

    async def _form(self, params: JsonValue) -> ElicitResult:
        on_form = self.backfill.on_form
        assert on_form is not None
        form = validated(ElicitRequestFormParams, params, "params")
        try:
            return await on_form(form)
        except Exception as error:
            logger.exception("%s failed", ELICIT, exc_info=error)
            raise _failed(ELICIT, "the form could not be shown") from None


def _failed(method: str, why: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{method} failed: {why}", code=INTERNAL_ERROR)
