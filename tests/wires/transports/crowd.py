"""Many connections of one process: `crowd.py PORT COUNT KIND` opens them all, says `ready`, and then what became of them.

A crowd of kind `deaf` calls the tool `flood` and reads one byte; it lasts until its stdin ends. One of kind `slow` begins what it
never finishes and reads the responses; when all have ended it prints how many, and how many got `200`.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
from itertools import cycle, islice

import trio

from trio_mcp.protocol.http.headers import headers_of
from trio_mcp.protocol.revisions import CLIENT_CAPABILITIES, MODERN, PROTOCOL_VERSION

AT_A_TIME = 100
"""Connections that are being opened."""
ADDRESSES = 8
"""Addresses of the machine that the crowd comes from: one alone may have half of the connections of a server."""
LITTLE = 4096
"""Bytes that a socket takes for one who does not read."""


def post(body: bytes, length: int | None = None, **headers: str) -> bytes:
    named = {
        "host": "localhost",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "content-length": str(len(body) if length is None else length),
        **headers,
    }
    lines = [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body


def call(tool: str) -> bytes:
    """Return a modern call that asks for progress."""
    meta = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}, "progressToken": 1}
    params = {"name": tool, "arguments": {}, "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return post(json.dumps(message).encode(), **headers_of("tools/call", params))


BEGINNINGS = {
    "deaf": [call("flood")],
    "slow": [b"P", b"POST /mcp HT", post(b"")[:-2], post(b'{"jsonrpc"', 100)],
}


async def main(port: int, count: int, kind: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opening = trio.CapacityLimiter(AT_A_TIME)
    crowd: list[trio.SocketStream] = []

    async def join(beginning: bytes, address: str) -> None:
        async with opening:
            while True:
                try:
                    crowd.append(await begin(port, beginning, address, deaf=kind == "deaf"))
                    return
                except (OSError, trio.BrokenResourceError):  # the queue of new connections was full
                    await trio.sleep(0.1)

    async with trio.open_nursery() as nursery:
        for number, beginning in enumerate(islice(cycle(BEGINNINGS[kind]), count)):
            nursery.start_soon(join, beginning, f"127.0.0.{1 + number % ADDRESSES}")
    print("ready", flush=True)
    if kind == "deaf":
        await trio.to_thread.run_sync(sys.stdin.read)
        return
    answers: list[bytes] = []
    async with trio.open_nursery() as nursery:
        for stream in crowd:
            nursery.start_soon(read, stream, answers)
    print(f"{len(answers)} ended, {sum(b' 200 ' in answer for answer in answers)} with 200", flush=True)


async def begin(port: int, beginning: bytes, address: str, *, deaf: bool) -> trio.SocketStream:
    """Open a connection and send the beginning of what it never ends, or a call whose answer is not read.

    The first byte of an answer is read: then the call has started.
    """
    sock = trio.socket.socket()
    if deaf:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LITTLE)
    try:
        await sock.bind((address, 0))
        await sock.connect(("127.0.0.1", port))
        stream = trio.SocketStream(sock)
        await stream.send_all(beginning)
        if deaf and not await stream.receive_some(1):
            raise trio.BrokenResourceError
    except BaseException:
        sock.close()
        raise
    return stream


async def read(stream: trio.SocketStream, answers: list[bytes]) -> None:
    answer = b""
    try:
        async for data in stream:
            answer += data
    except trio.BrokenResourceError:
        pass
    answers.append(answer)


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
