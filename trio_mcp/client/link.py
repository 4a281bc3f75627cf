"""The link of a client to its server: its tasks, its session, and how both end."""

from __future__ import annotations

import contextvars
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import TypeVarTuple, Unpack

import trio

from ..base.groups import first_leaf, single_exception, split_group, without
from ..base.logs import peer_logger
from ..errors import Disconnected, Unreachable
from ..session import AnyChannel, ClientSession
from ..session.channel import MessageChannel
from ..session.client import RequestOptions
from ..session.dropped_items import DroppedMembers
from ..session.event_loop import HOME, home_held
from ..session.forwarded import ForwardedRequest
from ..session.notification_dispatch import OnNotification
from ..types import JsonObject, Model, RequestParams
from .dialects import Dialect, open_dialect
from .handlers import Rounds
from .options import ClientOptions
from .requester import ATTEMPTS, BACKOFF, SendRequest, ServerFacts, WaitingSession
from .session_reconnecting import LinkEvent, LinkState, Phase, SessionReopening
from .subscriptions import NotificationRouter
from .unread_requests import UnreadRequest

# Splitting an exception in a system task. Trio's loop would end if it left the task.


def split_contained(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Return the cancel in an exception, which may leave the task, and the rest, which its owner raises; each may be None.

    A Ctrl-C that hit the task is passed on to the main task.
    """
    cancelled, rest = split_group(error, trio.Cancelled)
    interrupted, rest = split_group(rest, KeyboardInterrupt)
    if interrupted is not None:
        # The task is protected from it, so Trio delivers it to the main task.
        signal.raise_signal(signal.SIGINT)
    return cancelled, rest


# The states of a link, its events and the table of both are at the head of `session_reconnecting.py`, with an example trace.
#
# Tasks, each the child of the one above it:
#
#   _main                     a system task, so that a client may be opened in one task and closed in another. Trio ends when a
#     |                       system task raises, so _main lets only a cancel out and keeps the error for `open`
#     +- _serve               opens the channel, runs the opening, waits for `aclose`, flushes and closes the channel
#          +- _run            reads the channel
#          +- reopening the session (`session_reopening`)
#          +- the listen streams of subscribers
#          +- the handlers of server requests, in a nursery outside of the channel: one that does not end when it is cancelled
#             must not keep the connection open


logger = peer_logger("trio_mcp.client")

Ts = TypeVarTuple("Ts")

CLOSE_TIMEOUT = 15.0
"""Seconds that closing may take: a child process is asked to end, then terminated, then killed."""

NOT_OPEN = "the client is not open: call it inside `async with Client.connect(...) as client:`"


class Link:
    """One connection. Its tasks run below a system task that `open` starts and `aclose` ends.

    Attributes:
        rounds: answers the questions of the calls over this connection.
        task_news: those who follow a task of a legacy server.
        dropped: the invalid items that were removed from the server's results.
        opened_in: the Trio run in which it is open.
    """

    def __init__(self, channel: AbstractAsyncContextManager[AnyChannel], options: ClientOptions) -> None:
        self._channel = channel
        self._options = options
        self.dropped = DroppedMembers(logger)
        # An attribute that opening and closing replace, and not a method: with a server that has no session to lose, a
        # request then goes straight to `ClientSession.request`.
        self.request: SendRequest = reject_request
        self._router = NotificationRouter(options)
        self.task_news = self._router.tasks
        self._handlers = options.handlers.for_server(self._server_name)
        self.rounds = Rounds(self._handlers, options.max_handlers)
        self._state = LinkState()
        self._dialect: Dialect | None = None
        self._nursery: trio.Nursery | None = None
        self._reopening = SessionReopening(self, self._state, self._router)
        self._failure: Exception | None = None
        """Why it did not open."""
        self._late_failure: BaseException | None = None
        """What ended it after that, if the program is to know: what a server in this process raised, or an exit in a handler."""
        self._in_process = False
        self._scope = trio.CancelScope()
        self.opened_in: trio.lowlevel.TrioToken | None = None
        # What tasks wait for. The state decides; these only wake them when it has moved.
        self._ready = trio.Event()
        self._closing = trio.Event()
        self._done = trio.Event()

    # life

    async def open(self) -> None:
        """Connect and open the session. A cancel closes the link."""
        if self._state.phase is not Phase.NEW:
            raise RuntimeError("a client is opened once: make another one with Client.connect")
        self._state.move(LinkEvent.START)
        self.opened_in = trio.lowlevel.current_trio_token()
        self.rounds.home = HOME.get()
        # With the caller's context, so that callbacks of the program see its context variables.
        trio.lowlevel.spawn_system_task(self._main, name=f"{self!r}", context=contextvars.copy_context())
        try:
            await self._ready.wait()
        # Also for a cancel or a Ctrl-C: `__aexit__` does not run if `__aenter__` raises, so nothing else would close the link.
        except BaseException:
            self._scope.cancel()
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._done.wait()
            raise
        if self._failure is not None:
            await self.aclose()
            failure, self._failure = self._failure, None
            try:
                raise failure
            finally:
                # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
                del failure

    async def aclose(self) -> None:
        """Close the connection, from any task. Idempotent; bounded, also when cancelled.

        Raises:
            BaseException: what a server in this process raised while it served, or when it ended, and a `SystemExit` of a
                handler; once.
        """
        was_started = self._state.phase is not Phase.NEW
        self._state.move(LinkEvent.CLOSE)
        self._closing.set()
        self.request = reject_request
        if was_started:
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._done.wait()
            self._scope.cancel()
        # Before the checkpoint, where a cancel would take its place.
        self._raise_late_failure()
        await trio.lowlevel.checkpoint()

    def _raise_late_failure(self) -> None:
        failure, self._late_failure = self._late_failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            # As in `open`.
            del failure

    def lost(self, why: str) -> None:
        """Call `on_disconnect`: the connection, its session or a stream of changes was lost."""
        if self._options.on_disconnect is None or not self._state.is_open:
            return
        try:
            self._options.on_disconnect(why)
        # It is called where the connection is read and where a session is reopened, which must go on.
        except Exception as error:  # noqa: BLE001  whatever an author's function raises
            self.session.records.log("on_disconnect failed", level=logging.ERROR, exc_info=error)

    def start(self, fn: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Run a function in a task of the link. It must let only `trio.Cancelled` out.

        Raises:
            Disconnected: the link is not open.
        """
        if self._nursery is None or not self._state.is_open:
            raise Disconnected(NOT_OPEN)
        self._nursery.start_soon(fn, *args)

    # requests

    @property
    def session(self) -> ClientSession:
        """The session of client and server; raises `Disconnected` when the link is not open."""
        return self.dialect.session

    @property
    def is_connected(self) -> bool:
        """Whether the connection is there, with or without a session that the server knows."""
        return self._state.is_open and self.session.closed_because is None

    @property
    def has_session(self) -> bool:
        """Whether the link is open, and the server knows the session as far as this client has noticed."""
        return self._reopening.has_session

    def forward(
        self,
        method: str,
        params: JsonObject,
        on_notification: OnNotification,
        headers: Mapping[str, str],
        on_settled: Callable[[], None],
        *,
        is_repeatable: bool,
    ) -> ForwardedRequest | UnreadRequest:
        """Send a request of another client unread, as `ClientSession.forward` does, or in a session as `UnreadRequest` does.

        Args:
            on_settled: called in the step in which the answer comes; not in a session.

        Raises:
            Disconnected: there is no connection.
        """
        dialect = self.dialect
        if not dialect.can_reopen:
            return dialect.session.forward(method, params, on_notification, headers, on_settled)
        send = partial(dialect.session.forward, method, params, on_notification, headers)
        return UnreadRequest(self._reopening, send, is_repeatable=is_repeatable)

    @property
    def dialect(self) -> Dialect:
        """The dialect that the server speaks; raises `Disconnected` when the link is not open."""
        if self._dialect is None or self._closing.is_set():
            raise Disconnected(NOT_OPEN)
        return self._dialect

    @property
    def facts(self) -> ServerFacts:
        """What the server declared about itself; raises `Disconnected` before the link is open, but not after it was closed."""
        if self._dialect is None:
            raise Disconnected(NOT_OPEN)
        return self._dialect.facts

    def __repr__(self) -> str:
        phase = self._state.phase
        state = "opening" if phase is Phase.NEW else "open" if self._state.is_open else phase.value
        version = f" {self._dialect.facts.protocol_version}" if self._dialect else ""
        return f"{state}{version}"

    # tasks

    async def _main(self) -> None:
        """Run everything else, and let only a cancel out."""
        try:
            with home_held(), self._scope:
                await self._serve()
        except BaseException as error:  # noqa: BLE001, ASYNC103  an exception that leaves a system task ends Trio's loop
            self._contain(error)
        finally:
            if not self._ready.is_set() and self._failure is None:
                self._failure = Disconnected("the client was closed while it opened")
            self._state.move(LinkEvent.ENDED)
            self.opened_in = None
            self._ready.set()
            self._done.set()

    def _contain(self, error: BaseException) -> None:
        """Store an error for `open` or `aclose` to raise; pass a Ctrl-C that hit one of the link's tasks on to the main task."""
        cancelled, rest = split_contained(error)
        if isinstance(rest, Exception) and not self._ready.is_set():
            self._failure = single_exception(rest)
        elif isinstance(rest, Exception):
            # What ended the connection to a server elsewhere is raised as `Disconnected` by the calls that it fails.
            self._late_failure = single_exception(rest) if self._in_process else None
        elif rest is not None:
            # A handler has called `sys.exit()`, say. Raised here, it would end Trio's loop as an internal error.
            self._late_failure = first_leaf(without(rest, Exception) or rest)
        if cancelled is not None:
            raise cancelled

    async def _serve(self) -> None:
        async with trio.open_nursery() as handlers, self._channel as channel, trio.open_nursery() as nursery:
            self._in_process = isinstance(channel, MessageChannel) and channel.in_process
            session = (WaitingSession if self._options.wait_if_busy else ClientSession)(
                channel,
                self._handlers.request_handlers,
                self._router.dispatch,
                self._reopening.session_lost,
                self._router.end_subscriptions,
                self._options.max_handlers,
                self.lost,
                self.dropped,
            )
            session.telemetry = self._options.telemetry
            session.connection.unread = self._options.unread
            session.connection.skip_ids(self._options.last_id)
            if isinstance(session, WaitingSession):
                session.wait_if_busy = self._options.wait_if_busy
            nursery.start_soon(self._run, session, nursery, handlers)
            await self._open_dialect(session)
            self._nursery = nursery
            self._state.move(LinkEvent.OPENED)
            self._ready.set()
            await self._closing.wait()
            await session.flush()
            nursery.cancel_scope.cancel()

    async def _open_dialect(self, session: ClientSession) -> None:
        dialect = self._dialect = await self._opened_dialect(session)
        # `aclose` may have come meanwhile, and what it has put there stays.
        if not self._closing.is_set():
            # Pyright wants a closed TypedDict for the options (PEP 728), which Python 3.11 has not.
            self.request = (  # pyright: ignore[reportAttributeAccessIssue]
                self._reopening.request if dialect.can_reopen else session.request
            )
        self._router.listeners = dialect.listeners = dialect.make_listeners(self, self._router.dispatch_change)
        await dialect.apply_log_level()

    async def _opened_dialect(self, session: ClientSession) -> Dialect:
        """Return the dialect of the server; if the connection broke off, and can be opened again, opening is tried once more.

        A server that ends twice does not work; one that cannot be reached may be about to start again, for a few seconds.
        """
        try:
            return await open_dialect(session, self._options)
        except Unreachable:
            raise
        except Disconnected as error:
            if session.closed_because is not None:
                raise
            session.records.log(
                "the session could not be opened, and is tried once more: %s", error, level=logging.INFO
            )
        for attempt in range(ATTEMPTS - 1):
            await trio.sleep(BACKOFF.delay(attempt))
            with suppress(Unreachable):
                return await open_dialect(session, self._options)
        await trio.sleep(BACKOFF.delay(ATTEMPTS - 1))
        return await open_dialect(session, self._options)

    async def _run(self, session: ClientSession, nursery: trio.Nursery, handlers: trio.Nursery) -> None:
        try:
            await session.run(nursery, handlers)
        finally:
            why = session.closed_because or Disconnected("the connection ended")
            self.lost(str(why))
            self.rounds.end(why)
            self._router.end_subscriptions(str(why))

    def _server_name(self) -> str | None:
        info = None if self._dialect is None else self._dialect.facts.info
        return None if info is None else info.name


async def reject_request(method: str, params: RequestParams, /, **options: Unpack[RequestOptions]) -> Model:  # noqa: ARG001
    """Raise `Unreachable`: what `Link.request` is before the link is open, and after it was closed."""
    raise Unreachable(NOT_OPEN)
