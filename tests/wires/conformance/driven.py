"""examples/everything_server.py as a child process, driven by our client and by a peer that writes lines as it likes.

Tests share a child through a Trio loop in a thread of its own. What the server says is kept as JSON, and is held against the
schema file of its revision when a test is over.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import pytest
import trio
from serving import IMPORTS, ROOT
from talk import EVERYTHING, modern_meta
from wire_oracle import WireOracle

import trio_mcp.client.target as target_module
from trio_mcp import Client
from trio_mcp.client import Change, accept
from trio_mcp.protocol.jsonrpc import Malformed, dump
from trio_mcp.session import Envelope, find_transport
from trio_mcp.session.transport import Transport
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, LoggingMessageNotificationParams, Root

__all__ = ["FOLDER", "SAID", "Body", "DrivenServer", "LinePeer", "Servers", "Wire", "recorded", "servers_of_a_module"]

COMMAND = [sys.executable, str(ROOT / "examples" / "everything_server.py")]
LIMIT = 20.0
FOLDER = Root(uri="file:///test/root", name="Test Root")
SAID = "This is a test response from the client"
"""What the model of these clients says, whatever it is asked."""

Json = dict[str, Any]


class Wire:
    """What crosses one connection, as JSON; what is asked about it is about the test that runs."""

    def __init__(self) -> None:
        self._traffic: list[tuple[bool, Json]] = []
        self._begin = 0
        self._oracle = WireOracle()

    def note(self, message: Json, *, ours: bool) -> None:
        self._traffic.append((ours, message))

    def begin(self) -> None:
        """Leave out what came before."""
        self._begin = len(self._traffic)

    def check(self) -> None:
        """Hold what came since the last time against the schema files."""
        for ours, message in self._traffic[self._begin :]:
            (self._oracle.sent if ours else self._oracle.heard)(message)

    def sent(self, method: str) -> list[Json]:
        """The requests and notifications of a method that were sent."""
        return [message for ours, message in self._traffic[self._begin :] if ours and message.get("method") == method]

    def heard(self, method: str) -> list[Json]:
        """The requests and notifications of a method that the server sent."""
        return [message for message in self.messages if message.get("method") == method]

    @property
    def messages(self) -> list[Json]:
        """Everything the server sent."""
        return [message for ours, message in self._traffic[self._begin :] if not ours]

    def results(self, method: str) -> list[Json]:
        """What the requests of a method were answered with."""
        by_id = {message["id"]: message for message in self.messages if "result" in message}
        return [by_id[request["id"]]["result"] for request in self.sent(method)]

    def result(self, method: str) -> Json:
        """What the only request of a method was answered with."""
        (result,) = self.results(method)
        return result


class Recorder(trio.abc.Channel[Envelope]):
    """Our client's end of the pipes, with a copy of every message."""

    def __init__(self, channel: trio.abc.Channel[Envelope], wire: Wire) -> None:
        self._channel = channel
        self._wire = wire

    async def send(self, value: Envelope) -> None:
        self._note(value, ours=True)
        await self._channel.send(value)

    async def receive(self) -> Envelope:
        envelope = await self._channel.receive()
        self._note(envelope, ours=False)
        return envelope

    async def aclose(self) -> None:
        await self._channel.aclose()

    def _note(self, envelope: Envelope, *, ours: bool) -> None:
        assert not isinstance(envelope.message, Malformed), envelope
        self._wire.note(json.loads(dump(envelope.message)), ours=ours)


def recorded(wire: Wire, **options: Any) -> Client:
    """Our client, and a child of its own for it; what they say to each other is noted."""

    def find(name: str) -> Transport:
        return RecordedTransport(wire, find_transport(name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target_module, "find_transport", find)
        return Client.connect(COMMAND, env=IMPORTS, **options)


class RecordedTransport:
    """A transport whose connections are noted."""

    def __init__(self, wire: Wire, transport: Transport) -> None:
        self._wire = wire
        self._transport = transport
        self.serve = transport.serve

    @asynccontextmanager
    async def connect(self, target: object, **options: object) -> AsyncIterator[Recorder]:
        async with self._transport.connect(target, **options) as channel:
            yield Recorder(channel, self._wire)


class LinePeer:
    """Writes to a child what no client of ours would, and reads its lines."""

    def __init__(self, process: trio.Process) -> None:
        self.wire = Wire()
        self._process = process
        self._ids = itertools.count(1)
        self._read = b""
        self._lines: deque[bytes] = deque()

    @classmethod
    async def start(cls) -> LinePeer:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return cls(await trio.lowlevel.open_process(COMMAND, **pipes, env=IMPORTS))

    async def request(self, method: str, params: Json | None = None) -> Json:
        """The reply to a request, whatever came before it; it carries the request's id."""
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        message |= {} if params is None else {"params": params}
        assert self._process.stdin is not None
        self.wire.note(message, ours=True)
        await self._process.stdin.send_all(json.dumps(message).encode() + b"\n")
        while True:
            heard = json.loads(await self._line())
            self.wire.note(heard, ours=False)
            if "method" not in heard:
                assert heard["id"] == message["id"], heard
                return heard

    async def ask(self, method: str, /, capabilities: Json = EVERYTHING, **params: Any) -> Json:
        """The reply to a request of a modern client."""
        return await self.request(method, {**params, "_meta": modern_meta(capabilities)})

    async def result(self, method: str, /, capabilities: Json = EVERYTHING, **params: Any) -> Json:
        """What it is answered with, when that is no error."""
        reply = await self.ask(method, capabilities, **params)
        assert "result" in reply, reply
        return reply["result"]

    async def call(self, tool: str, capabilities: Json = EVERYTHING, **more: Any) -> Json:
        """The result of one leg of a call without arguments."""
        return await self.result("tools/call", capabilities, name=tool, arguments={}, **more)

    async def aclose(self) -> None:
        """The server leaves when its stdin ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            await self._process.stdin.aclose()
            with trio.fail_after(LIMIT):
                assert await self._process.wait() == 0
        finally:
            self._process.kill()
            await self._process.stdout.aclose()

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        while not self._lines:
            data = await self._process.stdout.receive_some()
            assert data, "the server closed its stdout"
            *whole, self._read = (self._read + data).split(b"\n")
            self._lines.extend(whole)
        return self._lines.popleft()


Body: TypeAlias = Callable[["DrivenServer"], Awaitable[None]]
"""A test, which is given the server."""


class DrivenServer:
    """One child at our client, which speaks one revision, and one at a line peer; each starts when it is first needed.

    Attributes:
        filled_in: what the user of our client writes into the next forms.
        logs, changes: what the running test's client was told.
    """

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.wire = Wire()
        self.filled_in: list[Json] = []
        self.logs: list[LoggingMessageNotificationParams] = []
        self.changes: list[Change] = []
        self._client: Client | None = None
        self._peer: LinePeer | None = None

    @property
    def modern(self) -> bool:
        return self.revision >= "2026"

    async def client(self) -> Client:
        """Our client, which has a user, a model and a folder."""
        if self._client is None:
            client = recorded(
                self.wire,
                mode=self.revision,
                on_elicit=self._fill_in,
                on_sample=lambda _request: SAID,
                on_roots=lambda: [FOLDER],
                on_log=self.logs.append,
                on_change=self.changes.append,
            )
            self._client = await client.open()
            self.wire.check()
            self.wire.begin()  # how it was opened is not what a test asks about
        return self._client

    async def peer(self) -> LinePeer:
        if self._peer is None:
            self._peer = await LinePeer.start()
        return self._peer

    async def play(self, body: Body) -> None:
        """Run a test, and then look at what the server said in it."""
        for told in (self.filled_in, self.logs, self.changes):
            told.clear()
        for wire in self._wires:
            wire.begin()
        with trio.fail_after(LIMIT):
            await body(self)
        for wire in self._wires:
            wire.check()

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
        if self._peer is not None:
            await self._peer.aclose()

    @property
    def _wires(self) -> list[Wire]:
        return [self.wire] if self._peer is None else [self.wire, self._peer.wire]

    def _fill_in(self, _form: ElicitRequestFormParams) -> ElicitResult:
        return accept(**self.filled_in.pop(0))


class Servers:
    """The children of one module, by revision."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token
        self._by_revision: dict[str, DrivenServer] = {}

    def play(self, revision: str, body: Body) -> None:
        server = self._by_revision.setdefault(revision, DrivenServer(revision))
        trio.from_thread.run(server.play, body, trio_token=self._token)

    def close(self) -> None:
        for server in self._by_revision.values():
            trio.from_thread.run(server.aclose, trio_token=self._token)


@contextmanager
def servers_of_a_module() -> Iterator[Servers]:
    """Children that last for several tests: they live in a Trio loop of their own, in a thread."""
    started: Future[tuple[trio.lowlevel.TrioToken, trio.Event]] = Future()

    async def main() -> None:
        over = trio.Event()
        started.set_result((trio.lowlevel.current_trio_token(), over))
        await over.wait()

    thread = threading.Thread(target=trio.run, args=(main,), name="everything_server")
    thread.start()
    token, over = started.result(LIMIT)
    servers = Servers(token)
    try:
        yield servers
        servers.close()
    finally:
        token.run_sync_soon(over.set)
        thread.join(LIMIT)
