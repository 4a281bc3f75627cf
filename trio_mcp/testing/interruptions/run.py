"""One run of a scenario with one interruption, and the checks after it."""

# The interruption happens in an instrument of Trio, right before a task step: the only moments at which another task or a peer
# can act. So a sweep over all steps of all tasks leaves no gap between two awaits unchecked.

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, Generic, TypeVar

import trio
from trio.testing import wait_all_tasks_blocked

from ...base.groups import leaf_exceptions
from ...base.named_tuples import NamedTuple
from ...errors import Disconnected
from ...server import Server
from ...session import Service, serve_channel
from .census import census, held
from .rules import broken_rules
from .wire import BUFFER, Wire, WireEnd

P = TypeVar("P")

RUN_TIMEOUT: Final = 10_000.0
"""Virtual seconds after which a scenario counts as hanging."""

CLOSE_TIMEOUT: Final = 60.0
"""Virtual seconds that the server may take to notice the end of a connection."""


class Way(Enum):
    """A way to interrupt."""

    PEER = "the client cancels its open requests"
    SCOPE = "the caller is cancelled"
    END = "the connection ends"
    MESSAGE = "the connection ends after a message"


class Strike(NamedTuple):
    """One interruption: its way, and the step or the message at which it happens, counted from 1."""

    way: Way
    at: int

    def __str__(self) -> str:
        what = "message" if self.way is Way.MESSAGE else "step"
        return f"{self.way.value}, {what} {self.at}"


@dataclass(frozen=True, slots=True)
class Play(Generic[P]):
    """A server, a function that makes the peer from its end of the wire, and what the peer does.

    Attributes:
        opening: interrupt also while the peer opens and closes.
        logs: parts of the errors that are expected in the log.
        buffer: messages that one end may be ahead of the other; with a small number, senders wait for readers.
    """

    server: Server
    connect: Callable[[WireEnd], AbstractAsyncContextManager[P]]
    scenario: Callable[[P], Awaitable[object]]
    opening: bool = False
    logs: Collection[str] = ()
    buffer: int = BUFFER


class Interrupter(trio.abc.Instrument):
    """Counts the steps of all tasks, and calls `act` right before one of them."""

    def __init__(self, at: int | None, act: Callable[[], None], watch: Callable[[], bool]) -> None:
        self.steps = 0
        self.watched: list[int] = []
        """The steps before which `watch` was true."""
        self.armed = False
        self.failure: Exception | None = None
        self._at = at
        self._act = act
        self._watch = watch

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002  the steps of every task count
        if not self.armed:
            return
        self.steps += 1
        if self._watch():
            self.watched.append(self.steps)
        if self.steps == self._at:
            try:
                self._act()
            except Exception as error:  # noqa: BLE001  Trio would only log it
                self.failure = error


class Run(Generic[P]):
    """`trio.run(run)` plays once; then `problems` has a sentence for each problem."""

    def __init__(self, play: Play[P], strike: Strike | None) -> None:
        self.problems: list[str] = []
        self.messages = 0
        """Messages that crossed while it could be interrupted."""
        self._play = play
        self._strike = strike
        at_message = strike is not None and strike.way is Way.MESSAGE
        self.wire = Wire(play.buffer)
        at_step = None if strike is None or at_message else strike.at
        self.interrupter = Interrupter(at_step, self._act, lambda: bool(self.wire.open))
        self._scope = trio.CancelScope()

    async def __call__(self) -> None:
        """Play once."""
        before = trio.lowlevel.current_statistics().tasks_living
        trio.lowlevel.add_instrument(self.interrupter)
        with logged_errors() as errors:
            await self._serve_and_talk()
        await wait_all_tasks_blocked()
        left = trio.lowlevel.current_statistics().tasks_living - before
        if left:
            self.problems.append(f"{left} tasks are left")
        if self.interrupter.failure is not None:
            self.problems.append(f"the interruption itself failed: {self.interrupter.failure!r}")
        self.problems += [line for line in errors if not any(part in line for part in self._play.logs)]
        self.problems += broken_rules(self.wire.log, ended=self._ended)

    @property
    def _ended(self) -> bool:
        return self.wire.broken or self._play.opening

    def _act(self) -> None:
        assert self._strike is not None
        match self._strike.way:
            case Way.PEER:
                self.wire.cancel_open()
            case Way.SCOPE:
                self._scope.cancel()
            case Way.END | Way.MESSAGE:
                self.wire.cut()

    async def _serve_and_talk(self) -> None:
        async with self._play.server.open_service() as service:
            served = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._serve, service, served)
                await self._talk(service)
                with trio.move_on_after(CLOSE_TIMEOUT):
                    await served.wait()
                if not served.is_set():
                    self.problems.append(f"the server still holds the connection {CLOSE_TIMEOUT:g} s after its end")
                nursery.cancel_scope.cancel()
            self.problems += remaining_gauges(service)
            if len(service.subscriptions):
                self.problems.append(f"{len(service.subscriptions)} subscribers are left")

    async def _serve(self, service: Service, served: trio.Event) -> None:
        try:
            await serve_channel(service, self.wire.server)
        finally:
            served.set()

    async def _talk(self, service: Service) -> None:
        if self._play.opening:
            await self._strike_in(self._open_and_play)
            await self.wire.client.aclose()
            await wait_expired(service)
            return
        async with self._play.connect(self.wire.client) as peer:
            # Made for the first key, and kept for as long as the service: no call has left it.
            service.idempotency_keys  # noqa: B018
            await wait_all_tasks_blocked()
            before = census()
            await self._strike_in(partial(self._play.scenario, peer))
            await wait_expired(service)
            self._compare(before)
            self.problems += remaining_gauges(service)
            self.problems += held()

    async def _open_and_play(self) -> None:
        async with self._play.connect(self.wire.client) as peer:
            await self._play.scenario(peer)

    # No `@contextmanager` here, nor in `sweep`: in CPython 3.12, and in 3.13 and 3.14 before their releases of 2026, one that
    # catches an exception, or raises another, leaves it in a reference cycle with its own frame (python/cpython#100964). The
    # census would find everything that the exception's frames refer to.
    async def _strike_in(self, part: Callable[[], Awaitable[object]]) -> None:
        """Call the part of a run that is interrupted. After its interruption it may end in any way, but must not hang."""
        self._scope.deadline = trio.current_time() + RUN_TIMEOUT
        crossed = self.wire.crossed
        if self._strike is not None and self._strike.way is Way.MESSAGE:
            self.wire.cut_at = crossed + self._strike.at
        self.interrupter.armed = True
        try:
            with self._scope:
                await part()
        except BaseException as error:  # noqa: BLE001, ASYNC103  a cancel cannot come from further out
            self.problems += [
                f"the scenario raised {each!r}" for each in leaf_exceptions(error) if not self._expected(each)
            ]
        finally:
            self.interrupter.armed = False
            self.messages = self.wire.crossed - crossed
        ours = self._strike is not None and self._strike.way in (Way.PEER, Way.SCOPE)
        if self._scope.cancelled_caught and not ours:
            self.problems.append(f"the scenario was not over after {RUN_TIMEOUT:g} s")

    def _expected(self, error: BaseException) -> bool:
        """Return whether a peer may raise this: its connection was cut."""
        return self.wire.broken and isinstance(error, Disconnected | trio.EndOfChannel | trio.BrokenResourceError)

    def _compare(self, before: Counter[str]) -> None:
        more = census() - before
        if more:
            self.problems.append(f"objects are left: {', '.join(f'{count} {name}' for name, count in more.items())}")


async def wait_expired(service: Service) -> None:
    """Wait until no task can run, and no parked call or outcome is kept for a repeated request."""
    await wait_all_tasks_blocked()
    await trio.sleep(service.options.actors.park_ttl + service.options.outcome_grace + 1)
    await wait_all_tasks_blocked()


def remaining_gauges(service: Service) -> Iterator[str]:
    """Yield a sentence for each gauge of a server that is not back at zero."""
    now = service.statistics()
    if not now.is_idle:
        yield f"the server is not quiet: {now}"
    if len(service.calls.directory):
        yield f"{len(service.calls.directory)} calls can still be resumed"


class Errors(logging.Handler):
    """Keeps each logged error as one line."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(f"logged: {record.getMessage()}" + (f" ({error!r})" if error is not None else ""))


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Collect the errors that this package and Trio log in this block, and hide them from all other handlers."""
    handler = Errors()
    loggers = [logging.getLogger("trio_mcp"), logging.getLogger("trio")]
    before = [(each.level, each.propagate) for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.setLevel(logging.ERROR)
        each.propagate = False
    try:
        yield handler.lines
    finally:
        for each, (level, propagate) in zip(loggers, before, strict=True):
            each.removeHandler(handler)
            each.setLevel(level)
            each.propagate = propagate
