"""What the providers of the two APIs share: the choice of a model, the exchange with the API, and the lifetime of connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from types import TracebackType
from typing import Final, Self, TypeVar

import trio

from ..base.backoff import Backoff
from ..base.checks import check_instance, check_int, check_seconds, check_sequence, check_str, check_sync_callback
from ..base.logs import peer_logger
from ..errors import ProviderError, ProviderErrorKind, RemoteProtocolError
from ..protocol.http.sse import SseDecoder
from ..types import CreateMessageRequestParams, CreateMessageResult, JsonObject
from .connection import Body, Connection, MakeClient
from .endpoint import Endpoint, Vendor, malformed, read_object
from .streams import StreamedAnswer

# Attempts: which failures are worth another one, after how long, and one deadline over all of them.

T = TypeVar("T")

_log = peer_logger("trio_mcp.providers")

TIMEOUT: Final = 300.0
MAX_RETRIES: Final = 2
RETRY_BACKOFF: Final = Backoff(first=0.5, longest=8.0)

MAX_WAIT: Final = 60.0
"""The longest `Retry-After` in seconds that is waited for; a longer one ends the attempts."""

PASSING: Final = (ProviderErrorKind.RATE_LIMITED, ProviderErrorKind.UNAVAILABLE, ProviderErrorKind.UNREACHABLE)
"""The kinds of failures after which another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often to ask, and for how long.

    Attributes:
        max_retries: attempts after the first.
        timeout: seconds for all attempts and the waits between them.
        backoff: the delays between attempts if the API names none.
    """

    max_retries: int = MAX_RETRIES
    timeout: float = TIMEOUT
    backoff: Backoff = RETRY_BACKOFF

    async def run(self, name: str, ask: Callable[[], Awaitable[T]], may_repeat: Callable[[], bool] = lambda: True) -> T:
        """Return what `ask` returns; a failure that may pass is repeated. Every failure is logged.

        Args:
            name: what is asked, for the log.
            ask: makes one attempt.
            may_repeat: whether another attempt may be made after one that failed.

        Raises:
            ProviderError: the last failure; or `TIMEOUT`, if the time ran out.
        """
        with trio.move_on_after(self.timeout) as scope:
            for failures in count(1):
                try:
                    return await ask()
                except ProviderError as error:
                    failure = error
                wait = self._wait(failure, failures) if may_repeat() else None
                try:
                    if wait is None or trio.current_time() + wait > scope.deadline:
                        _log.warning("%s: %s (%s)", name, failure, failure.kind)
                        raise failure
                    _log.warning("%s: %s (%s); trying again in %g seconds", name, failure, failure.kind, wait)
                finally:
                    # Its traceback refers to this frame.
                    del failure
                await trio.sleep(wait)
        text = f"{name} gave no answer within {self.timeout:g} seconds"
        _log.warning("%s", text)
        raise ProviderError(text, kind=ProviderErrorKind.TIMEOUT)

    def _wait(self, failure: ProviderError, failures: int) -> float | None:
        """Return the seconds until the next attempt, or None if there is none."""
        if failures > self.max_retries or failure.kind not in PASSING:
            return None
        asked = failure.retry_after
        if asked is None:
            return self.backoff.delay(failures - 1)
        return asked if asked <= MAX_WAIT else None


MAX_EVENT: Final = 4 * 1024 * 1024
"""Bytes of an event of a stream."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What distinguishes an API.

    Attributes:
        extra: the extra of this distribution with its official client, and the name of the client's package.
        client: the module and the name of the class that uses that client.
        request: writes the body of a request for a model.
        streaming: members of the body that ask for a stream.
        stream: puts a streamed answer together.
        result: reads an answer.
    """

    vendor: Vendor
    extra: str
    client: tuple[str, str]
    request: Callable[[CreateMessageRequestParams, str], JsonObject]
    streaming: JsonObject
    stream: Callable[[Endpoint], StreamedAnswer]
    result: Callable[[JsonObject], CreateMessageResult]


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """How a provider asks: see `AnthropicProvider` and `OpenAIProvider`."""

    model: str | None
    models: Sequence[str]
    max_retries: int = MAX_RETRIES
    timeout: float = TIMEOUT
    backoff: Backoff = RETRY_BACKOFF

    @property
    def known_models(self) -> tuple[str, ...]:
        """The models to choose from, the default first; none if the API has to be asked."""
        return tuple(dict.fromkeys([*([] if self.model is None else [self.model]), *self.models]))

    def attempts(self) -> Attempts:
        """Return the attempts of one request.

        Raises:
            TypeError, ValueError: an option is wrong.
        """
        if self.model is not None:
            check_str("model", self.model)
        check_sequence("models", self.models, str, 'names of models, like ("small", "large")', "a string")
        return Attempts(
            check_int("max_retries", self.max_retries),
            check_seconds("timeout", self.timeout, positive=True),
            check_instance("backoff", self.backoff, Backoff, "a Backoff, like Backoff(first=1)"),
        )


class ApiProvider:
    """Asks an API through its official client.

    In an `async with` block connections are kept for later requests, and closed at its end. Without one, each request closes its
    own connection, so that there is nothing to close.
    """

    def __init__(self, dialect: Dialect, endpoint: Endpoint, options: ApiOptions) -> None:
        self._dialect = dialect
        self._endpoint = endpoint
        self._known_models = options.known_models
        self._attempts = options.attempts()
        self._make_client = load_client(dialect)
        self._connection: Connection | None = None
        self._is_open = False

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        """Return the model's answer.

        Raises:
            ProviderError: the API gave none; `kind` says why.

        A cancel closes the connection to the API.
        """
        return await self._attempts.run(self._endpoint.vendor.name, lambda: self._answer(request))

    async def stream(self, request: CreateMessageRequestParams, on_text: Callable[[str], None]) -> CreateMessageResult:
        """Return the model's answer as `sample` does, and call `on_text` with each piece of its text as it arrives.

        Once `on_text` was called, a failure is not repeated.
        """
        check_sync_callback("on_text", on_text)
        shown = _Shown(on_text)
        return await self._attempts.run(
            self._endpoint.vendor.name, lambda: self._streamed_answer(request, shown), lambda: not shown.any
        )

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise RuntimeError("the provider is open already")
        # A connection that was opened before keeps nothing open between requests, and is left to those that use it.
        self._connection, self._is_open = None, True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; requests that still run fail. Later ones close their own connections."""
        connection, self._connection, self._is_open = self._connection, None, False
        if connection is not None:
            await connection.aclose()

    def __repr__(self) -> str:
        models = ", ".join(map(repr, self._known_models)) or "its first model"
        return f"<{type(self).__name__}: {models}, {self._endpoint.url}>"

    # One attempt

    async def _answer(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        async with self._connect().ask(await self._body(request)) as body:
            raw = await body.read()
        return self._result(read_object(raw, self._endpoint))

    async def _streamed_answer(
        self, request: CreateMessageRequestParams, on_text: Callable[[str], None]
    ) -> CreateMessageResult:
        asked = {**await self._body(request), **self._dialect.streaming}
        stream = self._dialect.stream(self._endpoint)
        async with self._connect().ask(asked) as body:
            await self._read_stream(body, stream, on_text)
        return self._result(stream.answer())

    async def _read_stream(self, body: Body, stream: StreamedAnswer, on_text: Callable[[str], None]) -> None:
        decoder = SseDecoder(MAX_EVENT)
        async for piece in body:
            try:
                events = decoder.feed(piece)
            except RemoteProtocolError as error:
                reason = str(error)
                break
            for event in events:
                if text := stream.feed(event.data):
                    on_text(text)
                if stream.is_complete:
                    return
        else:
            reason = "the stream breaks off"
        raise malformed(reason, self._endpoint)

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self._endpoint, self._make_client, keep=self._is_open)
        return self._connection

    async def _body(self, request: CreateMessageRequestParams) -> JsonObject:
        if not self._known_models:
            self._known_models = (await self._first_model(),)
        try:
            return self._dialect.request(request, choose_model(request, self._known_models))
        except ValueError as error:
            reason = str(error)
        raise ProviderError(f"the request cannot be written: {reason}", kind=ProviderErrorKind.REJECTED)

    async def _first_model(self) -> str:
        """Return the first model that the API lists."""
        listed = read_object(await self._connect().list_models(), self._endpoint).get("data")
        first = listed[0] if isinstance(listed, list) and listed else None
        name = first.get("id") if isinstance(first, dict) else None
        if not isinstance(name, str):
            raise malformed("it lists no models", self._endpoint)
        return name

    def _result(self, answer: JsonObject) -> CreateMessageResult:
        try:
            return self._dialect.result(answer)
        except ValueError as error:
            reason = str(error)
        raise malformed(reason, self._endpoint)


class _Shown:
    """Calls `on_text`, and remembers whether it did."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self.any = False

    def __call__(self, text: str) -> None:
        self.any = True
        self._on_text(text)


def choose_model(request: CreateMessageRequestParams, known: Sequence[str]) -> str:
    """Return the first known model that has a hint of the request in its name, the hints in order; or the first known model."""
    preferences = request.model_preferences
    hints = [] if preferences is None else preferences.hints or []
    for hint in hints:
        for model in known:
            if hint.name and hint.name.lower() in model.lower():
                return model
    return known[0]


def load_client(dialect: Dialect) -> MakeClient:
    """Return what makes the official client of an API.

    Raises:
        ImportError: the extra is not installed.
    """
    module, name = dialect.client
    try:
        make: MakeClient = getattr(import_module(module, __package__), name)
    except ModuleNotFoundError as error:
        if error.name != dialect.extra:
            raise
    else:
        return make
    raise ImportError(
        f'{dialect.vendor.name} needs its official client: pip install "trio-mcp[{dialect.extra}]"', name=dialect.extra
    )
