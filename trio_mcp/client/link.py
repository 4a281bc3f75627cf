"""The link of a client to its server: the task that keeps it, the conversation on it, and opening that again when it is lost.

A session of the handshake era may end at the server while the connection goes on (L-HTTP-18s). The request that finds out was
not carried out: the link opens a session again, once for all who wait, and sends the request again under a new id (L-HTTP-19c).
"""

from __future__ import annotations

import contextvars
import logging
import math
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVarTuple

import trio
from sniffio import current_async_library

from ..errors import Disconnected, RequestTimeout, SessionLost
from ..protocol.meta import LOG_LEVEL
from ..session import AnyChannel, ClientSession
from ..session.client import NO_HEADERS, OnNotification
from ..session.idle import OnProgress
from ..types import Implementation, LoggingLevel, Model, RequestParams, SetLevelRequestParams
from .handlers import Handlers
from .opening import ServerFacts, ask_for_logs, initialize, open_conversation
from .pauses import STEADY, pause

logger = logging.getLogger("trio_mcp.client")

Ts = TypeVarTuple("Ts")

CLOSE_TIMEOUT = 15.0
"""Seconds that closing may take: a child process is asked to end, then told, then killed."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How a conversation is opened: what to say of this client, and which era to look for."""

    mode: str
    info: Implementation
    probe_timeout: float


class Standing(Protocol):
    """What stands as long as the conversation does, and has to be said again when its session is opened again."""

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for what only an open session brings: then a lost one is opened again at once."""
        ...

    async def restore(self, session: ClientSession, /) -> None:
        """Say it again; `Link.request` would wait for this to end."""
        ...

    def ended(self, why: Disconnected, /) -> None:
        """The conversation is over."""
        ...


class Attempt:
    """At opening a session again.

    Attributes:
        done: set when it has ended.
        failure: why it failed; None when it did not.
    """

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failure: Exception | None = Disconnected("the client was closed")


NOT_OPEN = "the client is not open: call it inside `async with Client.connect(...) as client:`"


class Link:
    """One connection; its tasks are its own, below a system task that `open` starts and `aclose` ends."""

    def __init__(
        self,
        channel: AbstractAsyncContextManager[AnyChannel],
        handlers: Handlers,
        opening: Opening,
        log_level: LoggingLevel | None,
        on_notification: OnNotification,
    ) -> None:
        self.log_level: LoggingLevel | None = log_level
        """The least severe log messages that are asked for; None: none are."""
        self.standing: Standing | None = None
        self._channel = channel
        self._handlers = handlers
        self._opening = opening
        self._on_notification = on_notification
        self._session: ClientSession | None = None
        self._facts: ServerFacts | None = None
        self._nursery: trio.Nursery | None = None
        self._openings = 0
        self._lost: int | None = None
        """The last opening whose session the server does not know any more."""
        self._attempt: Attempt | None = None
        """At opening a session again, while there is one."""
        self._tried = -math.inf
        self._hasty = 0
        """Attempts, each soon after the one before."""
        self._keeping = False
        self._failure: Exception | None = None
        self._scope = trio.CancelScope()
        self._started = False
        self._ready = trio.Event()
        self._closing = trio.Event()
        self._done = trio.Event()

    # life

    async def open(self) -> None:
        """Connect and open the conversation. A cancel closes the link."""
        if (library := current_async_library()) != "trio":
            raise RuntimeError(f"trio_mcp runs on Trio, not on {library}: start your program with trio.run")
        if self._started:
            raise RuntimeError("a client is opened once: make another one with Client.connect")
        self._started = True
        trio.lowlevel.spawn_system_task(self._main, name=f"{self!r}", context=contextvars.copy_context())
        try:
            await self._ready.wait()
        except BaseException:  # a cancel, or a Ctrl-C: nobody will close what was never opened
            self._scope.cancel()
            raise
        if self._failure is not None:
            await self.aclose()
            failure, self._failure = self._failure, None
            try:
                raise failure
            finally:
                del failure  # it holds this frame

    async def aclose(self) -> None:
        """Close the connection, from any task, as often as you like; bounded, also when cancelled."""
        self._closing.set()
        if self._started:
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._done.wait()
            self._scope.cancel()
        await trio.lowlevel.checkpoint()

    def start(self, fn: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Run a function in a task of the link's. It must let nothing but a cancel out.

        Raises:
            Disconnected: the link is not open.
        """
        if self._nursery is None or self._closing.is_set():
            raise Disconnected(NOT_OPEN)
        self._nursery.start_soon(fn, *args)

    # what passes

    async def request(
        self,
        method: str,
        params: RequestParams,
        *,
        timeout: float = math.inf,
        idle: float = math.inf,
        on_progress: OnProgress | None = None,
        on_notification: OnNotification | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Model:
        """Ask the server, as `ClientSession.request` does, and once more when the session was lost; all within `timeout`."""
        session = self.session

        async def ask() -> Model:
            return await session.request(
                method, params, idle=idle, on_progress=on_progress, on_notification=on_notification, headers=headers
            )

        with trio.move_on_after(timeout):
            return await self._ask_twice(ask)
        raise RequestTimeout(f"the server did not answer {method} within {timeout:g} seconds")

    async def set_log_level(self, level: LoggingLevel, timeout: float) -> None:
        """Have log messages of this level and above, also in a session that is opened again."""
        session = self.session
        self.log_level = level
        if session.modern:
            session.stamp = {**session.stamp, LOG_LEVEL: level}
            await trio.lowlevel.checkpoint()
        else:
            await self.request("logging/setLevel", SetLevelRequestParams(level=level), timeout=timeout)

    @property
    def session(self) -> ClientSession:
        """The conversation; raises `Disconnected` when the link is not open."""
        if self._session is None or self._closing.is_set():
            raise Disconnected(NOT_OPEN)
        return self._session

    @property
    def facts(self) -> ServerFacts:
        """What the server told of itself; raises `Disconnected` before it has."""
        if self._facts is None:
            raise Disconnected(NOT_OPEN)
        return self._facts

    def __repr__(self) -> str:
        state = "closed" if self._done.is_set() else "open" if self._ready.is_set() else "opening"
        version = f" {self._facts.protocol_version}" if self._facts else ""
        return f"{state}{version}"

    # one step each

    async def _ask_twice(self, ask: Callable[[], Awaitable[Model]]) -> Model:
        if self._attempt is not None:
            await self._attempt.done.wait()
        opening = self._openings
        try:
            return await ask()
        except SessionLost as lost:
            logger.info("%s: it is opened again", lost)
        await self._reopen(opening)
        return await ask()

    def _session_lost(self) -> None:
        """Somebody may wait for notifications, which only an open session brings."""
        self._lost = self._openings
        if self._is_wanted and self._ready.is_set() and not self._closing.is_set() and not self._keeping:
            self._keeping = True
            self.start(self._keep_session)

    @property
    def _is_wanted(self) -> bool:
        return self.standing is not None and self.standing.wanted

    async def _keep_session(self) -> None:
        """Open a session again, and again if that fails or does not last, but less and less often."""
        try:
            while self._lost == self._openings and self._is_wanted and self.session.over is None:
                lost = self._openings
                await trio.sleep(self._next_pause())
                await self._try_again(lost)
        finally:
            self._keeping = False

    def _next_pause(self) -> float:
        self._hasty = 0 if trio.current_time() - self._tried >= STEADY else self._hasty + 1
        return pause(self._hasty - 1) if self._hasty else 0.0

    async def _try_again(self, opening: int) -> None:
        try:
            await self._reopen(opening)
        except Exception as error:  # noqa: BLE001  whoever reads the changes waits on
            logger.warning("the session was lost, and could not be opened again: %s", error)

    async def _reopen(self, opening: int) -> None:
        """Have a session opened again unless that was done since `opening`. All who wait share one attempt and its failure.

        The attempt is the link's own: a cancel leaves it to the others, and none half done.
        """
        if self._attempt is None:
            if opening != self._openings:
                return
            attempt = Attempt()
            self.start(self._attempt_to_reopen, attempt)
            self._attempt = attempt
        attempt = self._attempt
        await attempt.done.wait()
        if attempt.failure is not None:
            raise attempt.failure

    async def _attempt_to_reopen(self, attempt: Attempt) -> None:
        try:
            session = self.session
            version = self.facts.protocol_version
            self._facts = await initialize(session, version, self._handlers.capabilities, self._opening.info)
            self._openings += 1
            await self._say_again(session)
            attempt.failure = None
        except Exception as error:  # noqa: BLE001  raised where the session is waited for
            attempt.failure = error
        finally:
            self._attempt = None
            self._tried = trio.current_time()
            attempt.done.set()

    async def _say_again(self, session: ClientSession) -> None:
        if self.log_level is not None:
            await ask_for_logs(session, self.facts.capabilities, self.log_level)
        if self.standing is not None:
            await self.standing.restore(session)

    async def _main(self) -> None:
        """The link's own task: everything it runs is below here, and nothing but a cancel leaves it."""
        try:
            with self._scope:
                await self._serve()
        except BaseException as error:  # noqa: BLE001, ASYNC103  an exception that leaves a system task ends Trio's loop
            self._contain(error)
        finally:
            if not self._ready.is_set() and self._failure is None:
                self._failure = Disconnected("the client was closed while it opened")
            self._ready.set()
            self._done.set()

    def _contain(self, error: BaseException) -> None:
        """Keep an error for `open` to raise; send a Ctrl-C that hit one of the link's tasks on to the main task."""
        cancelled, rest = split(error, trio.Cancelled)
        interrupted, rest = split(rest, KeyboardInterrupt)
        if interrupted is not None:
            signal.raise_signal(signal.SIGINT)  # this task is protected from it, so Trio hands it to the main task
        if isinstance(rest, Exception):
            self._failure = leaf(rest)
        elif rest is not None:
            logger.error("the client ended", exc_info=rest)
        if cancelled is not None:
            raise cancelled

    async def _serve(self) -> None:
        async with self._channel as channel, trio.open_nursery() as nursery:
            session = self._session = ClientSession(
                channel, self._handlers.answerers, self._on_notification, self._session_lost
            )
            nursery.start_soon(self._run, session, nursery)
            self._facts = await self._open_conversation(session)
            self._nursery = nursery
            self._ready.set()
            await self._closing.wait()
            await session.flush()
            nursery.cancel_scope.cancel()

    async def _run(self, session: ClientSession, nursery: trio.Nursery) -> None:
        try:
            await session.run(nursery)
        finally:
            if self.standing is not None:
                self.standing.ended(session.over or Disconnected("the connection ended"))

    async def _open_conversation(self, session: ClientSession) -> ServerFacts:
        opening = self._opening
        facts = await open_conversation(
            session, opening.mode, self._handlers.capabilities, opening.info, opening.probe_timeout
        )
        if self.log_level is not None:
            await ask_for_logs(session, facts.capabilities, self.log_level)
        return facts


def split(error: BaseException | None, kind: type[BaseException]) -> tuple[BaseException | None, BaseException | None]:
    """The part of an error that is of a kind, and the rest."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kind)
    return (error, None) if isinstance(error, kind) else (None, error)


def leaf(error: Exception) -> Exception:
    """The one exception in a group, however deep; the group when there are several."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
