"""What the tests of the guarded server share: a server on a real port, and a client that speaks bytes."""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import hypercorn.trio.run
import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from trio_mcp.errors import ProtocolError
from trio_mcp.session import MemoryBudget
from trio_mcp_transports.asgi.adapter import serve_request
from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import (
    Binary,
    HttpApp,
    KnownResponse,
    MessageSocket,
    OpenResponse,
    Response,
    StreamPart,
    Upgrade,
    rejection_of,
)
from trio_mcp_transports.hypercorn.config import GuardedConfig, guarded_config, memory_of
from trio_mcp_transports.hypercorn.worker import serve_connection

App = Callable[[Any, Any, Any], Awaitable[None]]
Handle = Callable[[Request], Awaitable[Response]]

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
SOON = 5.0
LIMIT = 25.0


def get(path: str, *headers: str, host: str = "x") -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", f"host: {host}", *headers, "", ""]).encode("latin-1")


def upgrade(*headers: str, path: str = "/", host: str = "x") -> bytes:
    return get(
        path,
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        *headers,
        host=host,
    )


def frame(opcode: int, payload: bytes = b"", *, first: int = 0x80) -> bytes:
    """A masked WebSocket frame (the mask is zero); `first` holds FIN and the reserved bits."""
    length = bytes([0x80 | len(payload)]) if len(payload) < 126 else bytes([0xFE]) + len(payload).to_bytes(2, "big")
    return bytes([first | opcode]) + length + b"\0\0\0\0" + payload


async def soon(event: trio.Event) -> None:
    with trio.fail_after(SOON):
        await event.wait()


@dataclass
class Client:
    """One connection."""

    stream: trio.abc.Stream
    buffer: bytearray = field(default_factory=bytearray)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def ask(self, data: bytes = GET) -> tuple[int, bytes]:
        """Send a request; its status and body."""
        await self.send(data)
        status, _, body = await self.response()
        return status, body

    async def head(self) -> tuple[int, dict[str, str]]:
        """The next response head."""
        lines = (await self.until(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), headers

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        """The next whole response."""
        status, headers = await self.head()
        if "content-length" in headers:
            return status, headers, await self.exactly(int(headers["content-length"]))
        body = b""
        while length := int(await self.until(b"\r\n"), 16):
            body += (await self.exactly(length + 2))[:-2]
        await self.exactly(2)
        return status, headers, body

    async def until(self, end: bytes) -> bytes:
        while end not in self.buffer:
            await self._more()
        return await self.exactly(self.buffer.index(end) + len(end))

    async def exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            await self._more()
        found = bytes(self.buffer[:count])
        del self.buffer[:count]
        return found

    async def frame(self) -> tuple[int, bytes]:
        """The first byte and the payload of the next WebSocket frame, up to 64 KiB."""
        first, length = await self.exactly(2)
        if length == 126:
            length = int.from_bytes(await self.exactly(2), "big")
        return first, await self.exactly(length)

    async def rest(self) -> bytes:
        """Everything until the server has closed."""
        try:
            while True:
                await self._more()
        except (EOFError, trio.BrokenResourceError):
            return bytes(self.buffer)

    async def _more(self) -> None:
        with trio.fail_after(SOON):
            data = await self.stream.receive_some(65536)
        if not data:
            raise EOFError(bytes(self.buffer))
        self.buffer += data


@asynccontextmanager
async def listening(handle: Callable[[Client], Awaitable[None]]) -> AsyncIterator[str]:
    """The host and port where each connection is handled like this, and closed then."""

    async def serve_one(stream: trio.SocketStream) -> None:
        await handle(Client(stream))

    async with trio.open_nursery() as nursery:
        with trio.fail_after(SOON):
            (listener,) = await nursery.start(partial(trio.serve_tcp, serve_one, 0, host="127.0.0.1"))
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


@dataclass
class Server:
    """A running server. `ended` is set when it is over; `error` is what ended it, if anything did."""

    port: int = 0
    stop: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    error: BaseException | None = None
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    """That its connections draw from."""

    @asynccontextmanager
    async def client(self, *, receive_buffer: int | None = None, address: str = "127.0.0.1") -> AsyncIterator[Client]:
        sock = trio.socket.socket()
        await sock.bind((address, 0))
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        with sock:
            with trio.fail_after(SOON):
                await sock.connect(("127.0.0.1", self.port))
            yield Client(trio.SocketStream(sock))

    @asynccontextmanager
    async def websocket(self, **options: int) -> AsyncIterator[Client]:
        """A connection that is a WebSocket already."""
        async with self.client(**options) as client:
            await client.send(upgrade())
            assert (await client.head())[0] == 101
            yield client

    @asynccontextmanager
    async def secured(self, certificate: Path, *protocols: str) -> AsyncIterator[tuple[Client, trio.SSLStream[Any]]]:
        """A connection over TLS, which offers these protocols, and its stream."""
        context = ssl.create_default_context(cafile=str(certificate))
        context.set_alpn_protocols(protocols)
        async with self.client() as plain:
            tls = trio.SSLStream(plain.stream, context, server_hostname="localhost", https_compatible=True)
            await tls.do_handshake()
            yield Client(tls), tls

    async def ask(self, data: bytes = GET) -> tuple[int, bytes]:
        """One request on a separate connection."""
        async with self.client() as client:
            return await client.ask(data)


@asynccontextmanager
async def running(app: App, config: Config | None = None, limit: float = LIMIT) -> AsyncIterator[Server]:
    """`app` served by hypercorn in a separate nursery, whose failure is kept in the server's `error`; for `limit` seconds."""
    config = config or Config()
    config.bind = ["127.0.0.1:0"]
    server, listening = Server(memory=memory_of(config)), trio.Event()
    before = vars(hypercorn.trio.run)["TCPServer"]
    hypercorn.trio.run.TCPServer = serve_connection  # type: ignore[attr-defined]

    class Started(trio.TaskStatus[list[str]]):
        def started(self, value: list[str] | None = None) -> None:
            (address,) = value or []
            server.port = int(address.rsplit(":", 1)[1])
            listening.set()

    async def run() -> None:
        try:
            await serve(app, config, shutdown_trigger=server.stop.wait, task_status=Started())
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001
            server.error = error
        finally:
            server.ended.set()

    try:
        with trio.fail_after(limit):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run)
                await listening.wait()
                yield server
                nursery.cancel_scope.cancel()
    finally:
        hypercorn.trio.run.TCPServer = before  # type: ignore[attr-defined]


OKAY = b"ok"


def reply(body: bytes = OKAY, status: int = 200) -> KnownResponse:
    return KnownResponse(status, body, content_type=None)


class Told(OpenResponse):
    """A response that the test tells part by part."""

    def __init__(self) -> None:
        super().__init__()
        self.lost, self.finished = trio.Event(), trio.Event()
        self._known: KnownResponse | None = None
        self._parts: deque[StreamPart] = deque()
        self._is_open = False
        self._on_ready: Callable[[], None] | None = None

    def body(self, data: bytes, *, more: bool) -> None:
        """Send a part of a stream."""
        self._parts.append(StreamPart(None if self._is_open else [], data, not more))
        self._is_open = True
        self._wake()

    def reply(self, body: bytes = OKAY) -> None:
        """Send a whole response."""
        self._known = reply(body)
        self._wake()

    def fail(self) -> None:
        """Say that there is something to send, although there is not."""
        self._wake()

    def _wake(self) -> None:
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()

    @property
    def is_ready(self) -> bool:
        return self._known is not None or bool(self._parts)

    @property
    def is_complete(self) -> bool:
        return self._known is not None or (bool(self._parts) and self._parts[-1].is_last)

    def watch(self, on_ready: Callable[[], None]) -> float | None:
        if self.is_ready:
            return None
        self._on_ready = on_ready
        return LIMIT

    def stop_watching(self) -> None:
        self._on_ready = None

    def take_known(self) -> KnownResponse | None:
        return self._known

    def take_part(self) -> StreamPart | None:
        return self._parts.popleft()

    def take_filler(self) -> StreamPart | None:
        raise NotImplementedError

    async def wait_part(self) -> StreamPart:
        raise NotImplementedError

    def end_response(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.finished.set()

    def lose(self) -> None:
        self.lost.set()


@dataclass
class Exchange:
    """One request, which the test answers."""

    request: Request
    response: Told = field(default_factory=Told)

    async def until_disconnect(self, seconds: float = SOON) -> None:
        with trio.fail_after(seconds):
            await self.response.lost.wait()

    def body(self, data: bytes, *, more: bool) -> None:
        self.response.body(data, more=more)

    def reply(self, body: bytes = OKAY) -> None:
        self.response.reply(body)


class Exchanges:
    """Handles requests by giving them to the test, one after the other."""

    def __init__(self) -> None:
        self._sends, self._receives = trio.open_memory_channel[Exchange](10)

    async def __call__(self, request: Request) -> Response:
        exchange = Exchange(request)
        self._sends.send_nowait(exchange)
        return exchange.response

    async def next(self) -> Exchange:
        with trio.fail_after(SOON):
            return await self._receives.receive()


async def lifespan(receive: Any, send: Any) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": kind + ".complete"})
        if kind == "lifespan.shutdown":
            return


async def whole_body(request: Request) -> bytes:
    """The body of a request, whatever its size."""
    if request.body.whole is not None:
        return request.body.whole
    body = b""
    while part := await request.body.receive():
        body += part
    return body


async def answer(request: Request) -> Response:
    """Accept a WebSocket and echo it, or answer 200."""
    if request.websocket is not None:
        return Upgrade(None, echo, lambda: None)
    await whole_body(request)
    return reply()


async def echo(socket: MessageSocket) -> None:
    socket.open(1 << 30, lambda: None)
    while messages := await socket.receive_many():
        await socket.send_many(each for each in messages if not isinstance(each, Binary))


class Served(HttpApp):
    """`handle` for requests to `/`, and an answer of "ok" to the bystander."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def respond(self, request: Request) -> Response:
        if request.websocket is None and request.path == "/bystander":
            return reply()
        try:
            return await self._handle(request)
        except ProtocolError as error:
            return rejection_of(error)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
        else:
            await serve_request(self, scope, receive, send)


def serving(handle: Handle) -> Served:
    return Served(handle)


def over_tls(certificate: Path) -> GuardedConfig:
    return guarded_config(certfile=str(certificate), keyfile=str(certificate))


class Steps(trio.abc.Instrument):
    """Counts the steps that the tasks of connections and of their exchanges take in the block."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith("._run_handler")

    def __enter__(self) -> Self:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)


@asynccontextmanager
async def bystander(server: Server, address: str = "127.0.0.1") -> AsyncIterator[None]:
    """A keep-alive connection that has to work before and after the block, without a reconnect."""
    async with server.client(address=address) as client:
        assert await client.ask(get("/bystander")) == (200, b"ok")
        yield
        assert await client.ask(get("/bystander")) == (200, b"ok")
