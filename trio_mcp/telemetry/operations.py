"""The telemetry of one server or one client: which spans and metrics its requests have.

Nothing in here fails what it describes: what the sampler, a span processor or a propagator of the program raises is counted and
logged, and the request goes on without a span.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

from .. import telemetry
from ..base.logs import RepeatedRecords, peer_logger
from ..protocol.codec.models import Params
from ..protocol.codec.reading import RequestTerms
from ..protocol.jsonrpc import RequestId
from ..types import Model
from .conventions import (
    MAX_TEXT,
    REQUEST_ID,
    Attributes,
    Value,
    content_attributes,
    request_attributes,
    session_attributes,
    target_of,
)
from .operation import SENDS, SERVES, TAKES, WORKS, Operation, Role

if TYPE_CHECKING:
    from .spans import Spans

M = TypeVar("M", bound=Model)
T = TypeVar("T")
logger = peer_logger("trio_mcp.telemetry")

MOST_LEGS: Final = 1000
"""Calls in rounds of one client whose first request is remembered."""

Recorder = Callable[[str, float, Attributes], None]
"""Records a duration: the name of the metric, the seconds, and the attributes."""


class ServedRequest(Protocol):
    """A request as its handler knows it."""

    @property
    def id(self) -> RequestId: ...
    @property
    def method(self) -> str: ...
    @property
    def terms(self) -> RequestTerms: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


class Telemetry:
    """The telemetry of one server or one client.

    Args:
        spans: makes spans; None for metrics alone.
        content: whether spans show arguments, results, and the URIs of resources.
        process: names this process among those of a server; "" for a client.

    Attributes:
        recorders: get the duration of each request.
        failures: how often something that the program has set up has failed.
    """

    def __init__(self, spans: Spans | None, *, content: bool = False, process: str = "") -> None:
        self.spans = spans
        self.content = content
        self.recorders: list[Recorder] = []
        self.failures = 0
        self._process = process
        self._records = RepeatedRecords(logger)
        self._first_legs: dict[int, str] = {}
        """The first request of a call in rounds, by the hash of the state that the next one carries, which may be long."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is exported: the program uses the API of OpenTelemetry, and has set up no provider."""
        return not self.recorders and self.spans is not None and self.spans.is_idle

    def failed(self, error: Exception) -> None:
        """Count and log a failure of what the program has set up."""
        self.failures += 1
        self._records.log("telemetry failed", level=logging.ERROR, exc_info=error)

    def record(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Record a duration. What a recorder raises is counted."""
        try:
            for record in self.recorders:
                record(name, seconds, attributes)
        except Exception as error:  # noqa: BLE001  exporters are the program's
            self.failed(error)

    def session_ended(
        self,
        side: Literal["client", "server"],
        began: float,
        version: str,
        network: Mapping[str, Value],
        error: str | None = None,
    ) -> None:
        """Record how long a session was open.

        Args:
            side: whose session.
            began: when it was opened, in seconds of `time.perf_counter`.
            error: what has ended it; None if nothing went wrong.
        """
        attributes = session_attributes(version, network, error)
        self.record(f"mcp.{side}.session.duration", time.perf_counter() - began, attributes)

    # requests that are served

    def serving(self, facts: ServedRequest, params: Params, network: Mapping[str, Value]) -> Operation | None:
        """Return the operation of a request that came now; its span is the current one until `leave`.

        None if nothing is exported and there is no context to pass on.
        """
        if self.is_idle and not telemetry.spans.carries(facts.terms.meta.raw, facts.headers):
            return None
        operation = self._request(SERVES, facts.method, params, facts.terms.codec.revision.name, network)
        if self.spans is None:
            return operation
        operation.details[REQUEST_ID] = str(facts.id)[:MAX_TEXT]
        operation.details["trio_mcp.process"] = self._process
        try:
            operation.origin = self.spans.origin(facts.terms.meta.raw, facts.headers)
        except Exception as error:  # noqa: BLE001  propagators are the program's
            self.failed(error)
        # A request that carries a call forward begins when it is known which; the state is a modern request's only.
        if getattr(params, "request_state", None) is None:
            operation.start()
        return operation

    def answering(self, method: str, handler: Callable[[M], Awaitable[T]]) -> Callable[[M], Awaitable[T]]:
        """Return a handler of a server's question that runs as an operation."""

        def serve(params: M) -> Awaitable[T]:
            # At once: who calls handlers does so in the order of the questions.
            return self._answer(method, params, handler(params))

        return serve

    async def _answer(self, method: str, params: Model, answering: Awaitable[T]) -> T:
        if self.is_idle:
            return await answering
        with self._started_below(params, self._request(SERVES, method, params, "", {})):
            return await answering

    def taking(self, method: str, params: Model, version: str, network: Mapping[str, Value]) -> Operation:
        """Return the operation of a notification that came now; it has a span, and is no request in the metrics."""
        attributes = request_attributes(method, "", version, network)
        return self._started_below(params, Operation(self, TAKES, method, attributes))

    def _started_below(self, params: Model, operation: Operation) -> Operation:
        """Start an operation below the context in the `_meta` of its params."""
        if self.spans is not None:
            try:
                found = telemetry.spans.extracted(getattr(params, "meta", None) or {})
                operation.origin = telemetry.spans.Origin(found)
            except Exception as error:  # noqa: BLE001  as in `serving`
                self.failed(error)
        return operation.start()

    def working(self, label: str, target: str, meta: bytes = b"") -> Operation:
        """Return the operation of a part of a call, such as a branch, or of the work of a task.

        Args:
            label: the first word of its name; `target` is the second, if there is one.
            meta: the `_meta` of the request that it is for, where its span is not the current one.
        """
        operation = Operation(self, WORKS, f"{label} {target}".rstrip(), {})
        if self.spans is not None and meta:
            try:
                operation.origin = self.spans.origin_of_work(meta)
            except Exception as error:  # noqa: BLE001  as in `serving`
                self.failed(error)
        return operation

    # requests that are sent

    def sending(
        self, method: str, params: Model, version: str, network: Mapping[str, Value] | None = None
    ) -> Operation | None:
        """Return the operation of a request that is sent now, to a server or to a client; None as `serving` does."""
        if self.is_idle and not telemetry.spans.has_context():
            return None
        operation = self._request(SENDS, method, params, version, network or {})
        first = self._first_legs.pop(hash(getattr(params, "request_state", None)), None)
        operation.start(first, attach=False)
        return operation

    def remember(self, state: str, first: str | None) -> None:
        """Remember which request the one that will carry this state follows."""
        if first:
            self._first_legs[hash(state)] = first
            if len(self._first_legs) > MOST_LEGS:
                del self._first_legs[next(iter(self._first_legs))]

    def _request(
        self, role: Role, method: str, params: Params, version: str, network: Mapping[str, Value]
    ) -> Operation:
        target = target_of(method, params)
        attributes = request_attributes(method, target, version, network)
        operation = Operation(self, role, f"{method} {target}" if target else method, attributes)
        if self.content and self.spans is not None:
            operation.details |= content_attributes(method, params)
        return operation
