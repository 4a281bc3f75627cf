"""Many connections that want a server's memory: `hostile_crowd.py PORT COUNT KIND` opens them and says when all has come to rest.

Each sends what `CROWDS` has under its kind, and reads nothing. They last until stdin ends.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import trio
import trio.testing
from wire_terms import CLIENT_CAPABILITIES, MODERN, NEWEST_LEGACY, PROTOCOL_VERSION, headers_of

AT_A_TIME = 100
"""Connections that are being opened."""
LITTLE = 4096
"""Bytes that a socket takes for one who does not read."""
QUIET = 1.0
"""Seconds without a byte that moves: then the server takes no more."""
LIMIT = 120.0

BODY = 4 * 1024 * 1024
VALUES = 90_000
"""A message may have 100,000."""
SMILE = "\U0001f600"
TEXT_FRAME, FIN = 1, 0x80


def message(tool: str, id: int, meta: Mapping[str, Any] | None = None, /, **arguments: object) -> dict[str, Any]:
    """Return a modern call."""
    needed = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {"elicitation": {"form": {}}}}
    params = {"name": tool, "arguments": arguments, "_meta": {**needed, **(meta or {})}}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    named = {"host": "localhost", "accept": "application/json, text/event-stream", **(headers or {})}
    if body:
        named |= {"content-type": "application/json", "content-length": str(len(body))}
    lines = [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body


def call(tool: str, meta: Mapping[str, Any] | None = None, /, **arguments: object) -> bytes:
    """Return a modern call as a POST."""
    asked = message(tool, 1, meta, **arguments)
    return request("POST", "/mcp", encoded(asked), headers_of("tools/call", asked["params"]))


def frame(payload: bytes, first: int = FIN | TEXT_FRAME) -> bytes:
    """Return a masked WebSocket frame of any size; the mask is zero."""
    size = len(payload)
    if size < 126:
        return bytes([first, 0x80 | size]) + b"\0\0\0\0" + payload
    if size < 1 << 16:
        return bytes([first, 0x80 | 126]) + size.to_bytes(2, "big") + b"\0\0\0\0" + payload
    return bytes([first, 0x80 | 127]) + size.to_bytes(8, "big") + b"\0\0\0\0" + payload


UPGRADE = request(
    "GET",
    "/mcp",
    headers={
        "upgrade": "websocket",
        "connection": "upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-protocol": "mcp",
    },
)


def handshake() -> bytes:
    client = {"name": "crowd", "version": "1"}
    params = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": client}
    return request("POST", "/mcp", encoded({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))


EMPTY: list[object] = [[]] * VALUES
FLOATS = [number + 0.5 for number in range(VALUES)]
# Of each, the object, its name and its number count.
OBJECTS = [{f"k{number}": number} for number in range(VALUES // 3)]
LONG = "a" * (BODY - 90_000)

CROWDS: dict[str, Callable[[], bytes]] = {
    "idle": lambda: b"",
    "head": lambda: b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 15_000,
    "body": lambda: call("echo", text=LONG)[:-10_000],
    "body with an emoji": lambda: call("echo", text=LONG + SMILE)[:-10_000],
    "running call with arrays": lambda: call("wait", items=EMPTY),
    "running call with floats": lambda: call("wait", items=FLOATS),
    "running call with objects": lambda: call("wait", items=OBJECTS),
    "running call with an emoji": lambda: call("wait", items=[LONG + SMILE]),
    "parked call with arrays": lambda: call("ask", items=EMPTY),
    "parked call with objects": lambda: call("ask", items=OBJECTS),
    "parked call with arrays in _meta": lambda: call("ask", {"com.example/x": EMPTY}),
    "small parked call": lambda: call("ask"),
    "result that is not read": lambda: call("make", size=1_000_000),
    "pipelined requests": lambda: call("wait") + call("echo", text="b" * 60_000),
    "sessions": lambda: handshake() * 20,
    "streams": lambda: request("GET", "/sse"),
    "WebSocket": lambda: UPGRADE,
    "WebSocket message": lambda: UPGRADE + frame(LONG.encode(), TEXT_FRAME),
    "WebSocket message with an emoji": lambda: UPGRADE + frame((SMILE + LONG).encode(), TEXT_FRAME),
    "WebSocket results": lambda: upgraded(*[message("make", id, size=1_000_000) for id in range(20)]),
    "WebSocket inbox": lambda: upgraded(*[message("echo", id, text="a" * 60_000) for id in range(60)]),
}
"""What a connection of each kind sends."""


def upgraded(*messages: object) -> bytes:
    return UPGRADE + b"".join(frame(encoded(each)) for each in messages)


async def main(port: int, count: int, kind: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opening = trio.CapacityLimiter(AT_A_TIME)
    data = CROWDS[kind]()
    crowd: list[trio.SocketStream] = []

    async def join() -> None:
        async with opening:
            sock = trio.socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
            await sock.connect(("127.0.0.1", port))
        stream = trio.SocketStream(sock)
        crowd.append(stream)
        with suppress(trio.BrokenResourceError):  # it may be refused
            await begin(stream, data)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(join)
        with trio.fail_after(LIMIT):
            await trio.testing.wait_all_tasks_blocked(QUIET)
        print("rests", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


async def begin(stream: trio.SocketStream, data: bytes) -> None:
    """Send everything; what follows an upgrade is sent after it was accepted."""
    if data.startswith(UPGRADE):
        await stream.send_all(UPGRADE)
        accepted = b""
        while b"\r\n\r\n" not in accepted:
            part = await stream.receive_some(1024)
            if not part:
                raise trio.BrokenResourceError
            accepted += part
        data = data[len(UPGRADE) :]
    await stream.send_all(data)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
