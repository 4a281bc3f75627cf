"""The questions of a server in a translated connection: answered by the proxy, or put to the host in a call that runs."""

# A question belongs to a call. A modern server asks in the result of the call, so which call it is is known. A legacy one sends
# a request, which over a pipe belongs to nothing: it is put to the call that has run longest, whose user is the same.

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import trio

from ..client.handlers import Handlers
from ..errors import Disconnected, PeerError, RemoteProtocolError, without_traceback
from ..protocol.codec.unknown import UnknownParams
from ..protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from ..protocol.revisions import PROGRESS_TOKEN, RELATED_TASK, RESERVED
from ..runtime import Lane
from ..session import Call, Question, RequestHandler
from ..session.notification_dispatch import OnProgress
from ..types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestURLParams,
    ElicitResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Model,
    ProgressNotificationParams,
    RequestParams,
)
from .answers import Answers
from .offers import ELICIT, SAMPLE, STRAY_SECONDS, Host

ROOTS: Final = "roots/list"
MAX_REPORTS: Final = 64
"""Reports and log messages of one call that wait for a host that is slow to read; more are dropped."""


OWN_META: Final = RESERVED | {PROGRESS_TOKEN, RELATED_TASK}
"""Members of `_meta` that say something of one side of a connection; tasks are followed by the client of the proxy."""

M = TypeVar("M", RequestParams, UnknownParams, ProgressNotificationParams, LoggingMessageNotificationParams)


def without_own_meta(params: M) -> M:
    """Return params without what their `_meta` says about one side of the connection."""
    if not params.meta:
        return params
    meta = {name: value for name, value in params.meta.items() if name not in OWN_META}
    return params.model_copy(update={"meta": meta or None})


class Running:
    """A call of the host that runs at the server.

    Args:
        lane: the lane of its body, which waits while the host is asked.
    """

    def __init__(self, call: Call, lane: Lane) -> None:
        self.call, self.lane = call, lane
        self._reports: deque[Callable[[], Awaitable[None]]] = deque()
        self._sending: trio.CancelScope | None = None
        """Of the task that sends reports; None while there is none to send."""
        self._sent = trio.Event()
        self._has_ended = False
        self._failure: Exception | None = None
        """Why no more reports are sent."""

    @property
    def on_progress(self) -> OnProgress | None:
        """What passes progress on; None if the host wants no reports."""
        return None if self.call.facts.terms.progress_token is None else self._on_progress

    def _on_progress(self, report: ProgressNotificationParams) -> None:
        whole = without_own_meta(report)
        self._post(partial(self.call.progress, report.progress, report.total, report.message, whole))

    def on_log(self, entry: LoggingMessageNotificationParams) -> None:
        """Pass a log message on, if the host wants it."""
        self._post(partial(self.call.log, entry.level, entry.data, entry.logger, without_own_meta(entry)))

    def on_unknown(self, method: str, params: Model) -> None:
        """Pass on a notification that no revision has."""
        self._post(partial(self.call.notify, method, params))

    def _post(self, report: Callable[[], Awaitable[None]]) -> None:
        # A host that is slow to read misses reports, and holds up nothing.
        if len(self._reports) >= MAX_REPORTS or self._has_ended:
            return
        self._reports.append(report)
        # Most calls report nothing, and need no task for it.
        if self._sending is None:
            self._sending, self._sent = trio.CancelScope(), trio.Event()
            self.call.services.supervisor.spawn(self._send, self._sending)

    async def _send(self, scope: trio.CancelScope) -> None:
        """Send the reports in order until there are none."""
        try:
            with scope:
                while self._reports:
                    await self._reports.popleft()()
        except Exception as error:  # noqa: BLE001  raised where the call ends
            self._failure = without_traceback(error)
            self.end()
        finally:
            self._sending = None
            self._sent.set()

    async def wait_reported(self) -> None:
        """Wait until all reports have been sent. Raises what ended that, as `LimitExceeded` for want of memory."""
        if self._sending is not None:
            await self._sent.wait()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Send no more reports."""
        self._has_ended = True
        self._reports.clear()
        if self._sending is not None:
            self._sending.cancel()


CURRENT: ContextVar[Running | None] = ContextVar("CURRENT", default=None)
"""The call that this task belongs to."""


@dataclass(eq=False)
class Questions:
    """The questions of the server, and the calls that they may belong to.

    Args:
        host: what the host can answer.
        caller: what answers to questions of no known call count for, see `Quota`.
        several_hosts: the calls may be those of several.
    """

    answers: Answers
    host: Host
    caller: Hashable | None = None
    several_hosts: bool = False
    _running: dict[Running, None] = field(default_factory=dict, init=False)
    _strays_until: float = field(default=-math.inf, init=False)
    """Until then the server may ask in a call that was cancelled."""

    async def answer(self, method: str, params: Model) -> Model:
        """Answer a question, or ask the host in a call that runs.

        Raises:
            PeerError: there is no answer.
        """
        wire = params.wire()
        running = self.latest
        if self.answers.backfill.offers.answers(self.host, method, wire):
            caller = self.caller if running is None else running.call.actor.caller
            try:
                return await self.answers.answer(method, wire, caller)
            except RemoteProtocolError as error:
                raise PeerError(error.code, str(error), error.data) from None
        if running is None:
            why = (
                "several calls run, or one was cancelled, and which of their hosts it is for is unknown"
                if self._running
                else "no call runs"
            )
            raise PeerError(
                INVALID_PARAMS, f"{method} received while {why}; a host can only be asked during its own call"
            )
        try:
            return await running.call.ask(running.lane, question_of(method, params))
        except Disconnected as error:
            raise PeerError(INTERNAL_ERROR, f"the host has left: {error}") from None

    @property
    def latest(self) -> Running | None:
        """The call that this task belongs to, or else the one that has run longest; None if that may be another host's."""
        unknown = self.several_hosts and (len(self._running) > 1 or trio.current_time() < self._strays_until)
        return CURRENT.get() or (None if unknown else next(iter(self._running), None))

    @contextmanager
    def during(self, call: Call, lane: Lane) -> Generator[Running]:
        """Note in the block that a call runs."""
        running = Running(call, lane)
        self._running[running] = None
        reset = CURRENT.set(running)
        try:
            yield running
        finally:
            if trio.current_effective_deadline() == -math.inf:  # the call was cancelled
                self._strays_until = trio.current_time() + STRAY_SECONDS
            running.end()
            CURRENT.reset(reset)
            del self._running[running]


@dataclass(frozen=True)
class ForwardedQuestions(Handlers):
    """The handlers of a client that answers questions as `Questions` does.

    Args:
        declared: the capabilities to declare: those of the host, with what the proxy answers.
    """

    declared: ClientCapabilities = field(default_factory=ClientCapabilities)
    questions: Questions | None = None

    def __post_init__(self) -> None:
        """Check nothing: these are not functions of a program."""

    @property
    def capabilities(self) -> ClientCapabilities:
        """The capabilities that are declared to the server."""
        return self.declared

    @property
    def request_handlers(self) -> dict[str, RequestHandler]:
        """A handler for each kind of question."""
        assert self.questions is not None
        return {method: partial(self.questions.answer, method) for method in (SAMPLE, ELICIT, ROOTS)}


def question_of(method: str, params: Model) -> Question[Model]:
    """Return a question of the server as one of a call."""
    answer, kind, needs = _terms_of(method, params)
    return Question(kind, method, params, answer, needs)


def _terms_of(method: str, params: Model) -> tuple[type[Model], str, tuple[str, ...]]:
    if isinstance(params, CreateMessageRequestParams):
        uses_tools = params.tools is not None or params.tool_choice is not None
        return CreateMessageResult, "sample", ("sampling", "sampling.tools") if uses_tools else ("sampling",)
    if method == ROOTS:
        return ListRootsResult, "roots", ("roots",)
    mode = "url" if isinstance(params, ElicitRequestURLParams) else "form"
    return ElicitResult, "elicit", (f"elicitation.{mode}",)
