"""A child of `trio-mcp dev`, as its parent sees it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from .control import Ending, Failed, Loaded, Message, Read, Serving, decoded, encoded

ENDING_SECONDS: Final = 1.0
"""How long a child may take to say how many calls go on in it."""


@dataclass(eq=False)
class Child:
    """One process.

    Attributes:
        on_read: called with each file that it has read.
        ready: set when it serves.
        is_ending: set when it was replaced and ends with its calls.
        ended: set when the process has ended.
    """

    process: trio.Process
    stream: trio.SocketStream
    on_read: Callable[[Child, Read], None]
    loaded: Loaded | None = None
    serving: Serving | None = None
    failure: Failed | None = None
    calls: int = 0
    began: float = field(default_factory=trio.current_time)
    ready: trio.Event = field(default_factory=trio.Event)
    is_ending: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)

    @property
    def status(self) -> int:
        """The exit status, or 128 and the number of the signal that has ended it."""
        code = self.process.returncode or 0
        return code if code >= 0 else 128 - code

    async def follow(self) -> None:
        """Follow the process to its end; a cancel kills it."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read)
                await self.process.wait()
                # What it has said is read to the end, unless a program that it has started holds the connection.
                nursery.cancel_scope.deadline = trio.current_time() + ENDING_SECONDS
        finally:
            self.process.kill()
            with trio.CancelScope(shield=True):
                await self.process.wait()
                await trio.aclose_forcefully(self.stream)
            self.ended.set()

    async def _read(self) -> None:
        rest = b""
        try:
            async for data in self.stream:
                *lines, rest = (rest + bytes(data)).split(b"\n")
                for line in lines:
                    self._take(decoded(line))
        except trio.BrokenResourceError:
            return

    def _take(self, message: Message) -> None:
        match message:
            case Read():
                self.on_read(self, message)
            case Loaded():
                self.loaded = message
            case Serving():
                self.serving = message
                self.ready.set()
            case Failed():
                self.failure = message
            case Ending():
                self.calls = message.calls
                self.is_ending.set()
            case _:
                pass

    async def send(self, message: Message) -> None:
        """Send a message; nothing happens if it has ended."""
        try:
            await self.stream.send_all(encoded(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    def end(self, number: int) -> None:
        """Ask it to end."""
        # `send_signal` of an ended process does nothing, also before this program has noticed its end.
        self.process.send_signal(signal.Signals(number))


def terminal_or_nothing() -> int:
    """Return a descriptor of the terminal of this process, which stays open; without one of an empty file."""
    try:
        return os.open("/dev/tty", os.O_RDWR)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)


async def first_of(*events: trio.Event) -> None:
    """Wait until one of the events is set."""
    async with trio.open_nursery() as nursery:

        async def wait(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for each in events:
            nursery.start_soon(wait, each)
