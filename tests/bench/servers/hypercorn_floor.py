"""A floor for ASGI: `python -m bench.servers.hypercorn_floor plain|lean PORT`.

`plain` is hypercorn's Trio worker as it is, over HTTP and WebSocket. `lean` leaves out what an HTTP request does not need:
httptools parses instead of h11, no task and no lock is made for a request, a write is not shielded, and the head of a response
leaves with its body. There is no pipelining, and no guard against anything. BENCH_TLS=FILE serves with the certificate and
the key in it, as HTTP/1.1. With BENCH_HOST=uvicorn both are uvicorn.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import httptools
import hypercorn.protocol
import hypercorn.trio.run
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio import serve
from hypercorn.trio.tcp_server import TCPServer

from .floor_app import app

READ_BYTES = 65536
PHRASES = {200: b"200 OK", 202: b"202 Accepted", 404: b"404 Not Found", 500: b"500 Internal Server Error"}


class NoTask:
    """Stands for hypercorn's task that closes idle connections."""

    async def restart(self, *_arguments: object) -> None:
        pass

    async def stop(self) -> None:
        pass


class LeanServer(TCPServer):
    """A connection whose idle time is a deadline, and whose writes are not locked."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.idle_task: Any = NoTask()
        self.idle = trio.CancelScope(deadline=trio.current_time() + self.config.keep_alive_timeout)

    async def _read_data(self) -> None:
        with self.idle:
            data = b"-"
            while data:
                try:
                    data = bytes(await self.stream.receive_some(READ_BYTES))
                except (trio.ClosedResourceError, trio.BrokenResourceError):
                    break
                await self.protocol.handle(RawData(data))
        await self.protocol.handle(Closed())

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self.idle.deadline = trio.current_time() + self.config.keep_alive_timeout if event.idle else math.inf
        elif isinstance(event, RawData):
            try:
                await self.stream.send_all(event.data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                await self.protocol.handle(Closed())
        else:
            await super().protocol_send(event)


class LeanProtocol:
    """HTTP/1.1 for hypercorn's `HTTPStream`."""

    def __init__(
        self,
        app: Any,
        config: Any,
        context: Any,
        task_group: Any,
        state: Any,
        ssl: Any,
        client: Any,
        server: Any,
        send: Any,
    ) -> None:
        self.config, self.send, self.state = config, send, state
        self.of_stream = (app, config, context, task_group, ssl, client, server, self.stream_send, 1)
        self.parser = httptools.HttpRequestParser(self)
        self.stream: Any = None
        self.url = self.held = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body: list[bytes] = []
        self.complete = self.chunked = False

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body.append(body)

    def on_message_complete(self) -> None:
        self.complete = True

    async def initiate(self) -> None:
        pass

    async def handle(self, event: Event) -> None:
        """Take what the connection read."""
        if isinstance(event, RawData):
            self.parser.feed_data(event.data)
            if self.complete:
                await self.begin()
        elif isinstance(event, Closed) and self.stream is not None:
            await self.stream.handle(StreamClosed(stream_id=1))

    async def begin(self) -> None:
        """Hand a request that came whole to the application."""
        await self.send(Updated(idle=False))
        self.stream = HTTPStream(*self.of_stream)
        body, headers = b"".join(self.body), self.headers
        self.headers, self.body, self.complete = [], [], False
        method = self.parser.get_method().decode()
        await self.stream.handle(
            Request(
                stream_id=1, headers=headers, http_version="1.1", method=method, raw_path=self.url, state=self.state
            )
        )
        await self.stream.app_put({"type": "http.request", "body": body, "more_body": False})

    async def stream_send(self, event: Any) -> None:
        """Take what the application sends."""
        if isinstance(event, Response):
            self.held = self.head_of(event)
        elif isinstance(event, Body | EndBody):
            data, self.held = self.held + self.framed(event), b""
            if data:
                await self.send(RawData(data=data))
        elif isinstance(event, StreamClosed):
            await self.stream.handle(event)
            await self.send(Updated(idle=True))

    def head_of(self, response: Response) -> bytes:
        headers = [*response.headers, *self.config.response_headers("h11")]
        self.chunked = not any(name == b"content-length" for name, _ in headers)
        if self.chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        lines = b"".join([b"%s: %s\r\n" % header for header in headers])
        return b"HTTP/1.1 %s\r\n%s\r\n" % (PHRASES[response.status_code], lines)

    def framed(self, event: Body | EndBody) -> bytes:
        if isinstance(event, EndBody):
            return b"0\r\n\r\n" if self.chunked else b""
        return b"%x\r\n%s\r\n" % (len(event.data), event.data) if self.chunked else event.data


def serve_on_uvicorn(port: int) -> None:
    import uvicorn

    # As `bench.servers.official` has it.
    uvicorn.run(app, port=port, log_level="warning", access_log=False, loop="asyncio", http="h11", ws="none")


def main(kind: str, port: int) -> None:
    if os.environ.get("BENCH_HOST") == "uvicorn":
        serve_on_uvicorn(port)
        return
    if kind == "lean":
        hypercorn.trio.run.__dict__["TCPServer"] = LeanServer
        hypercorn.protocol.__dict__["H11Protocol"] = LeanProtocol
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.keep_alive_max_requests = 10**9
    config.loglevel = "WARNING"
    config.alpn_protocols = ["http/1.1"]
    config.backlog = 4096
    config.certfile = config.keyfile = os.environ.get("BENCH_TLS")
    application: Any = app
    trio.run(serve, application, config)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
