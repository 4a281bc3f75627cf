"""One run of a scenario with one interruption, and what it left behind."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

import trio
from trio.testing import wait_all_tasks_blocked

from ...errors import Disconnected
from ...groups import leaf_exceptions
from ...server import Server
from ...session import Service, serve_channel
from .census import census, held
from .rules import broken_rules
from .wire import BUFFER, Wire, WireEnd

P = TypeVar("P")

PATIENCE: Final = 10_000.0
"""Seconds, virtual ones, after which a scenario is taken to hang."""

CLOSING: Final = 60.0
"""The same for the end of a connection."""


class Way(Enum):
    """A way to interrupt."""

    PEER = "the client cancels its open requests"
    SCOPE = "the caller is cancelled"
    END = "the connection ends"
    MESSAGE = "the connection ends after a message"


class Strike(NamedTuple):
    """One interruption: a way, and the step, or the message, at which it happens. Both are counted from 1."""

    way: Way
    at: int

    def __str__(self) -> str:
        what = "message" if self.way is Way.MESSAGE else "step"
        return f"{self.way.value}, {what} {self.at}"


@dataclass(frozen=True, slots=True)
class Play(Generic[P]):
    """What is run: a server, how its peer is made of its end of the wire, and what the peer does.

    Attributes:
        opening: interrupt while the peer is made, too.
        logs: parts of errors that are to be logged.
        buffer: messages that either end may be ahead of the other; one that is small makes who talks wait for who reads.
    """

    server: Server
    connect: Callable[[WireEnd], AbstractAsyncContextManager[P]]
    scenario: Callable[[P], Awaitable[object]]
    opening: bool = False
    logs: Collection[str] = ()
    buffer: int = BUFFER


class Striker(trio.abc.Instrument):
    """Counts the steps of all tasks, and acts right before one of them."""

    def __init__(self, at: int | None, act: Callable[[], None], watch: Callable[[], bool]) -> None:
        self.steps = 0
        self.watched: list[int] = []
        """The steps before which something could be cancelled by the peer."""
        self.armed = False
        self.failure: Exception | None = None
        self._at = at
        self._act = act
        self._watch = watch

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002  every task counts
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
    """`trio.run(run)` plays once; then `problems` tells what was wrong."""

    def __init__(self, play: Play[P], strike: Strike | None) -> None:
        self.problems: list[str] = []
        self.messages = 0
        """Those that crossed while it could be interrupted."""
        self._play = play
        self._strike = strike
        at_message = strike is not None and strike.way is Way.MESSAGE
        self.wire = Wire(play.buffer)
        at_step = None if strike is None or at_message else strike.at
        self.striker = Striker(at_step, self._act, lambda: bool(self.wire.open))
        self._scope = trio.CancelScope()

    async def __call__(self) -> None:
        """Play once."""
        before = trio.lowlevel.current_statistics().tasks_living
        trio.lowlevel.add_instrument(self.striker)
        with logged_errors() as errors:
            await self._serve_and_talk()
        await wait_all_tasks_blocked()
        left = trio.lowlevel.current_statistics().tasks_living - before
        if left:
            self.problems.append(f"{left} tasks are left")
        if self.striker.failure is not None:
            self.problems.append(f"the interruption itself failed: {self.striker.failure!r}")
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
                with trio.move_on_after(CLOSING):
                    await served.wait()
                if not served.is_set():
                    self.problems.append(f"the server still holds the connection {CLOSING:g} s after its end")
                nursery.cancel_scope.cancel()
            self.problems += counted(service)
            if len(service.subscriptions):
                self.problems.append(f"{len(service.subscriptions)} subscribers are left")

    async def _serve(self, service: Service, served: trio.Event) -> None:
        try:
            await serve_channel(service, self.wire.server)
        finally:
            served.set()

    async def _talk(self, service: Service) -> None:
        if self._play.opening:
            with self._struck():
                async with self._play.connect(self.wire.client) as peer:
                    await self._play.scenario(peer)
            await self.wire.client.aclose()
            await expired(service)
            return
        async with self._play.connect(self.wire.client) as peer:
            await wait_all_tasks_blocked()
            before = census()
            with self._struck():
                await self._play.scenario(peer)
            await expired(service)
            self._compare(before)
            self.problems += counted(service)
            self.problems += held()

    @contextmanager
    def _struck(self) -> Iterator[None]:
        """The part of a run that is interrupted, and may then end as it likes but not hang."""
        self._scope.deadline = trio.current_time() + PATIENCE
        crossed = self.wire.crossed
        if self._strike is not None and self._strike.way is Way.MESSAGE:
            self.wire.cut_at = crossed + self._strike.at
        self.striker.armed = True
        try:
            with self._scope:
                yield
        except BaseException as error:  # noqa: BLE001, ASYNC103  a cancel cannot come from further out
            self.problems += [
                f"the scenario raised {each!r}" for each in leaf_exceptions(error) if not self._expected(each)
            ]
        finally:
            self.striker.armed = False
            self.messages = self.wire.crossed - crossed
        ours = self._strike is not None and self._strike.way in (Way.PEER, Way.SCOPE)
        if self._scope.cancelled_caught and not ours:
            self.problems.append(f"the scenario was not over after {PATIENCE:g} s")

    def _expected(self, error: BaseException) -> bool:
        """What a peer may raise whose connection was cut."""
        return self.wire.broken and isinstance(error, Disconnected | trio.EndOfChannel | trio.BrokenResourceError)

    def _compare(self, before: Counter[str]) -> None:
        more = census() - before
        if more:
            self.problems.append(f"objects are left: {', '.join(f'{count} {name}' for name, count in more.items())}")


async def expired(service: Service) -> None:
    """Wait until nothing happens any more, and nothing is kept for a repeated request."""
    await wait_all_tasks_blocked()
    await trio.sleep(service.options.actors.park_ttl + service.options.outcome_grace + 1)
    await wait_all_tasks_blocked()
    service.directory.find("")  # what is kept too long goes when somebody looks


def counted(service: Service) -> Iterator[str]:
    """What the gauges of a server say that is left."""
    now = service.statistics()
    if not now.quiet or now.actors.parked_bytes:
        yield f"the server is not quiet: {now}"
    if len(service.directory):
        yield f"{len(service.directory)} calls can still be carried on"


class Errors(logging.Handler):
    """Keeps what was logged as an error, in one line each."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.lines.append(f"logged: {record.getMessage()}" + (f" ({error!r})" if error is not None else ""))


@contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Collect the errors that this package and Trio log within the block, without passing them on."""
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
