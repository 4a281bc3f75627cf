"""Clients that cost little, for benchmarks: modern requests as prepared bytes, over HTTP, WebSocket and stdio."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio
from trio_websocket import open_websocket_url

from trio_mcp.protocol.jsonrpc import dump, parse
from trio_mcp.session import Envelope, Received

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
APP = HERE / "bench_app.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "transports")])}
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)

Json = dict[str, Any]
AnyShared = TypeVar("AnyShared", bound="Shared")
ids = itertools.count(1)

MODERN = "2026-07-28"
NEWEST_LEGACY = "2025-11-25"
TERMS = "io.modelcontextprotocol"
"""Before what a modern request says of itself in its `_meta`."""


def request(
    tool: str,
    arguments: Json,
    request_id: int,
    capabilities: Json | None = None,
    *,
    progress: bool = False,
    **more: Any,
) -> Json:
    """A modern call; with `progress` the tool's first report says that it runs, and `more` are members of its params."""
    meta: Json = {f"{TERMS}/protocolVersion": MODERN, f"{TERMS}/clientCapabilities": capabilities or {}}
    if progress:
        meta["progressToken"] = request_id
    params = {"name": tool, "arguments": arguments, "_meta": meta, **more}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def arrived(message: Json) -> Envelope[Received]:
    """Return a message as it arrives at a session in this process."""
    data = json.dumps(message).encode()
    return Envelope(parse(data), size=len(data))


def json_of(envelope: Envelope) -> Json:
    """Return a message of such a session."""
    return json.loads(dump(envelope.message))


def structured(answer: Json) -> Any:
    return answer["result"]["structuredContent"]["result"]


def headers_for(message: Json) -> dict[str, str]:
    return {
        "host": "127.0.0.1",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": message["method"],
        "mcp-name": message["params"]["name"],
    }


def as_post(message: Json) -> bytes:
    body = json.dumps(message).encode()
    headers = {**headers_for(message), "content-length": len(body)}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


async def read_until(stream: trio.abc.ReceiveStream, enough: Callable[[bytes], bool]) -> bytes:
    said = b""
    while not enough(said):
        data = await stream.receive_some()
        assert data, said
        said += data
    return said


def is_answer(said: bytes) -> bool:
    """Whether an HTTP response is complete."""
    head, found, body = said.partition(b"\r\n\r\n")
    length = LENGTH.search(head) if found else None
    return length is not None and len(body) >= int(length[1])


class Http:
    """One connection; one request at a time."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    @classmethod
    async def connect(cls, port: int, *, receive_buffer: int = 0) -> Http:
        sock = trio.socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await sock.connect(("127.0.0.1", port))
        return cls(trio.SocketStream(sock))

    async def call(self, tool: str, arguments: Json) -> Json:
        await self.stream.send_all(as_post(request(tool, arguments, next(ids))))
        _, _, body = (await read_until(self.stream, is_answer)).partition(b"\r\n\r\n")
        return json.loads(body)

    async def start(self, tool: str, arguments: Json) -> int:
        """Start a call, and return when its first report has come."""
        request_id = next(ids)
        await self.stream.send_all(as_post(request(tool, arguments, request_id, progress=True)))
        await read_until(self.stream, lambda said: b"notifications/progress" in said)
        return request_id

    async def leave(self, _request_id: int = 0) -> None:
        """Disconnect, which is how a call is cancelled here."""
        await self.stream.aclose()


class Shared:
    """A connection that carries everything: answers go to the tasks that wait for them."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[trio.Event, list[Json]]] = {}
        self._started: dict[int, trio.Event] = {}

    async def write(self, message: Json) -> None:
        raise NotImplementedError

    async def read(self) -> None:
        raise NotImplementedError

    async def call(self, tool: str, arguments: Json) -> Json:
        return await self.ask(request(tool, arguments, next(ids)))

    async def ask(self, message: Json) -> Json:
        over, answer = self._waiting[message["id"]] = (trio.Event(), [])
        await self.write(message)
        await over.wait()
        return answer[0]

    async def start(self, tool: str, arguments: Json) -> int:
        """Start a call, and return when its first report has come."""
        request_id = next(ids)
        await self.begin(request(tool, arguments, request_id, progress=True))
        return request_id

    async def begin(self, message: Json) -> None:
        started = self._started[message["id"]] = trio.Event()
        await self.write(message)
        await started.wait()

    async def leave(self, request_id: int) -> None:
        """Cancel the call."""
        await self.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})

    def heard(self, data: bytes | str) -> None:
        message = json.loads(data)
        if "method" not in message:
            over, answer = self._waiting.pop(message["id"])
            answer.append(message)
            over.set()
        elif message["method"] == "notifications/progress":
            started = self._started.pop(message["params"]["progressToken"], None)
            if started is not None:
                started.set()


class Stdio(Shared):
    """The pipes to and from a server."""

    def __init__(self, sending: trio.abc.SendStream, receiving: trio.abc.ReceiveStream) -> None:
        super().__init__()
        self._sending = sending
        self._receiving = receiving
        self._writing = trio.Lock()

    async def write(self, message: Json) -> None:
        async with self._writing:
            await self._sending.send_all(json.dumps(message).encode() + b"\n")

    async def read(self) -> None:
        rest = b""
        async for data in self._receiving:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self.heard(line)


class WebSocket(Shared):
    """A WebSocket."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection

    async def write(self, message: Json) -> None:
        await self._connection.send_message(json.dumps(message))

    async def read(self) -> None:
        while True:
            self.heard(await self._connection.get_message())


@asynccontextmanager
async def child(script: Path, *arguments: str, **pipes: int) -> AsyncIterator[trio.Process]:
    """A Python process for the length of the block."""
    process = await trio.lowlevel.open_process([sys.executable, str(script), *arguments], env=ENVIRONMENT, **pipes)
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


@asynccontextmanager
async def http_server() -> AsyncIterator[int]:
    """A server process; its port."""
    async with child(APP, "http", "0", stderr=subprocess.PIPE) as process, trio.open_nursery() as nursery:
        assert process.stderr is not None
        said = await read_until(process.stderr, lambda said: b" serves MCP at " in said and said.endswith(b"\n"))
        nursery.start_soon(drained, process.stderr)
        yield int(re.findall(rb":(\d+)/", said)[0])
        nursery.cancel_scope.cancel()


async def drained(stream: trio.abc.ReceiveStream) -> None:
    async for _ in stream:
        pass


@asynccontextmanager
async def stdio_server() -> AsyncIterator[Stdio]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    async with child(APP, "stdio", **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        async with reading(Stdio(process.stdin, process.stdout)) as peer:
            yield peer


@asynccontextmanager
async def websocket(port: int) -> AsyncIterator[WebSocket]:
    async with (
        open_websocket_url(f"ws://127.0.0.1:{port}/mcp", subprotocols=["mcp"]) as connection,
        reading(WebSocket(connection)) as peer,
    ):
        yield peer


@asynccontextmanager
async def reading(peer: AnyShared) -> AsyncIterator[AnyShared]:
    """Read what the server sends for the length of the block."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.read)
        yield peer
        nursery.cancel_scope.cancel()


async def busy(peer: Http | Shared) -> None:
    """Call `echo` without a pause."""
    while True:
        await peer.call("echo", {"text": "hello"})


def resident() -> float:
    """The kilobytes of memory that this process uses."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which that part of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
