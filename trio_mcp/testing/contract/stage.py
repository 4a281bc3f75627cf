"""How a test and the tools of the contract's server communicate: tools make marks, tests open gates and read gauges.

If the server is another process, its stage is linked to the stage of the test over a socket, with one JSON object per line;
everything below works as in one process.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType
from typing import Any

import trio

BOUND = 20.0
"""Seconds that any wait of the contract may take."""

QUIESCENCE = 0.005
"""Seconds between two readings of the gauges. They are polled, because no event says that a server has come to rest."""

Options = Mapping[str, float]
"""Limits and times of the server, by their names in `ServiceOptions` or in `ServiceOptions.actors`."""

NO_OPTIONS: Options = MappingProxyType({})

Gauges = Mapping[str, int]
"""Counts of what the server has now, by name. All are 0 when it is at rest."""


class Stage:
    """The marks, gates and gauges of one case.

    Marks are counted by name. A gate is closed until the test opens it, and then stays open.
    """

    def __init__(self, options: Options = NO_OPTIONS) -> None:
        self.options = options
        """The options that the rule sets for the server."""
        self.spent = False
        """Whether a tool has changed the server, so that it cannot serve another case."""
        self._marks: Counter[str] = Counter()
        self._gates: dict[str, trio.Event] = {}
        self._changed = trio.Event()
        self._read_gauges: Callable[[], Gauges] | None = None
        self._remote: Remote | None = None
        self._last: Gauges = {}
        self.on_mark: Callable[[str], None] | None = None

    # for tools

    def mark(self, name: str) -> None:
        """Count one event with this name."""
        self._marks[name] += 1
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        if self.on_mark is not None:
            self.on_mark(name)

    async def gate(self, name: str) -> None:
        """Wait until the test opens the gate."""
        await self._gate(name).wait()

    def spend(self) -> None:
        """Keep the server from being used for another case."""
        self.spent = True

    def measured_by(self, read: Callable[[], Gauges]) -> None:
        """Set the function that reads the gauges of the server."""
        self._read_gauges = read

    # for tests

    def count(self, name: str) -> int:
        """Return how often this mark was made."""
        return self._marks[name]

    async def marked(self, name: str, times: int = 1) -> None:
        """Wait until this mark was made `times` times.

        Raises:
            trio.TooSlowError: it was not, within `BOUND`.
        """
        with trio.fail_after(BOUND):
            while self._marks[name] < times:
                await self._changed.wait()

    async def open(self, name: str) -> None:
        """Open a gate for the tools that wait at it now or later."""
        self._gate(name).set()
        if self._remote is not None:
            await self._remote.say({"gate": name})

    async def gauges(self) -> Gauges:
        """Read the gauges of the server; of a server that has ended, return its last ones."""
        if self._remote is not None:
            return await self._remote.gauges()
        assert self._read_gauges is not None, "the server was not served yet"
        await trio.lowlevel.checkpoint()
        return self._read_gauges()

    async def measured(self, name: str, value: int) -> None:
        """Wait until this gauge has this value.

        Raises:
            trio.TooSlowError: it did not, within `BOUND`.
        """
        with trio.fail_after(BOUND):
            while (await self.gauges()).get(name) != value:  # noqa: ASYNC110  no event says that a gauge has changed
                await trio.sleep(QUIESCENCE)

    async def at_rest(self) -> None:
        """Wait until every gauge of the server is 0.

        Raises:
            AssertionError: one is not, after `BOUND`; the text names them.
        """
        left: Gauges = {}
        with trio.move_on_after(BOUND):
            while left := {name: value for name, value in (await self.gauges()).items() if value}:  # noqa: ASYNC110
                await trio.sleep(QUIESCENCE)
            return
        raise AssertionError(f"the server still has {left}")

    def _gate(self, name: str) -> trio.Event:
        return self._gates.setdefault(name, trio.Event())


class Remote:
    """The test's end of the link to a stage in another process."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._stream: trio.SocketStream | None = None
        self._linked = trio.Event()
        self._gauges: Gauges = {}
        self._gauges_arrived = trio.Event()
        self._over = False

    async def say(self, message: Mapping[str, object]) -> None:
        with trio.fail_after(BOUND):
            await self._linked.wait()
        assert self._stream is not None
        try:
            await self._stream.send_all(json.dumps(message).encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._over = True

    async def gauges(self) -> Gauges:
        arrived = self._gauges_arrived
        await self.say({"gauges": True})
        if not self._over:
            with trio.fail_after(BOUND):
                await arrived.wait()
        return self._gauges

    async def listen(self, stream: trio.SocketStream) -> None:
        """Receive marks and gauges from the other process until it ends."""
        self._stream, self._over = stream, False
        try:
            await stream.send_all(json.dumps({"options": dict(self._stage.options)}).encode() + b"\n")
            self._linked.set()
            async for message in lines(stream):
                if "mark" in message:
                    self._stage.mark(str(message["mark"]))
                elif "gauges" in message:
                    self._heard(message["gauges"])
        finally:
            self._over = True
            self._gauges_arrived.set()
            await stream.aclose()

    def _heard(self, gauges: object) -> None:
        assert isinstance(gauges, dict)
        self._gauges = gauges
        arrived, self._gauges_arrived = self._gauges_arrived, trio.Event()
        arrived.set()


@asynccontextmanager
async def open_stage_port(stage: Stage) -> AsyncIterator[int]:
    """Link this stage to tools in another process; give the block the port to which that process connects."""
    remote = stage._remote = Remote(stage)  # noqa: SLF001  both classes are this module's
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, remote.listen, listeners)  # noqa: ASYNC113  they listen already
        yield int(listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def linked_stage(port: int) -> AsyncIterator[Stage]:
    """Connect to the test, which is another process, and give the block the stage of the server; report its last gauges."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    said, to_say = trio.open_memory_channel[Mapping[str, object]](float("inf"))
    async with stream, aclosing(lines(stream)) as orders, trio.open_nursery() as nursery:
        stage = Stage((await anext(orders))["options"])
        stage.on_mark = lambda name: said.send_nowait({"mark": name})
        nursery.start_soon(report, stream, to_say)
        nursery.start_soon(obey, stage, orders, said)
        try:
            yield stage
        finally:
            said.send_nowait({"gauges": await stage.gauges()})  # noqa: ASYNC102  a checkpoint that does not wait
            said.close()
            nursery.cancel_scope.deadline = trio.current_time() + BOUND


async def report(stream: trio.SocketStream, to_say: trio.MemoryReceiveChannel[Mapping[str, object]]) -> None:
    async for message in to_say:
        await stream.send_all(json.dumps(message).encode() + b"\n")
    await stream.send_eof()


async def obey(
    stage: Stage, orders: AsyncIterator[dict[str, object]], said: trio.MemorySendChannel[Mapping[str, object]]
) -> None:
    """Open gates and read gauges as the test requests."""
    async for message in orders:
        if "gate" in message:
            await stage.open(str(message["gate"]))
        else:
            said.send_nowait({"gauges": await stage.gauges()})


async def lines(stream: trio.SocketStream) -> AsyncGenerator[dict[str, Any]]:
    rest = b""
    async for data in stream:
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield json.loads(line)
