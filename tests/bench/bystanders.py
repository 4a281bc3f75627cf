"""What one stuck tool, or one reader that does not read, costs everybody else: `bystanders.py [SECONDS]`.

Eight clients call `echo` over HTTP, each as soon as its last call was answered. Their p99 is taken in turns: alone, beside a tool
that lets no cancel through, and beside a client that asked for endless progress and reads none of it, over HTTP and over
WebSocket. Each figure is the median of several rounds, and is compared with the median of being alone.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio
from peers import Http, http_server, ids, percentile, request

CLIENTS = 8
ROUNDS = 7
GOAL = 2.0
SMALL_BUFFER = 4096

Beside = Callable[[int], AbstractAsyncContextManager[None]]


async def measured(port: int, seconds: float) -> list[float]:
    """The times of all calls of the bystanders, in milliseconds."""
    times: list[float] = []

    async def bystander() -> None:
        connection = await Http.connect(port)
        while True:
            began = time.perf_counter()
            await connection.call("echo", {"text": "hello"})
            times.append((time.perf_counter() - began) * 1000)

    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(bystander)
    return times


@asynccontextmanager
async def alone(_port: int) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def stuck_tool(port: int) -> AsyncIterator[None]:
    """Its client has hung up, and it does not care."""
    client = await Http.connect(port)
    await client.leave(await client.start("stuck", {}))
    yield


@asynccontextmanager
async def slow_http_reader(port: int) -> AsyncIterator[None]:
    client = await Http.connect(port, receive_buffer=SMALL_BUFFER)
    await client.start("flood", {})
    yield
    await client.leave()


@asynccontextmanager
async def slow_websocket_reader(port: int) -> AsyncIterator[None]:
    """By hand: any library would read."""
    client = await Http.connect(port, receive_buffer=SMALL_BUFFER)
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    upgrade = f"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: {key}\r\nsec-websocket-version: 13\r\n"
    await client.stream.send_all(
        f"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\n{upgrade}sec-websocket-protocol: mcp\r\n\r\n".encode()
    )
    said = await client.stream.receive_some()
    assert b" 101 " in said, said
    message = json.dumps(request("flood", {}, next(ids), progress=True)).encode()
    head = bytes([0x81, 0x80 | 126]) + len(message).to_bytes(2, "big") + bytes(4)  # a mask of zeros changes nothing
    await client.stream.send_all(head + message)
    assert b"progress" in await client.stream.receive_some()
    yield
    await client.leave()


NEIGHBOURS: dict[str, Beside] = {
    "alone": alone,
    "one stuck tool": stuck_tool,
    "one slow reader, HTTP": slow_http_reader,
    "one slow reader, WebSocket": slow_websocket_reader,
}


async def main(seconds: float) -> None:
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in NEIGHBOURS}
    for _ in range(ROUNDS):
        for name, beside in NEIGHBOURS.items():
            async with http_server() as port:
                await measured(port, 0.5)  # warm
                async with beside(port):
                    times = await measured(port, seconds)
            found[name].append((percentile(times, 0.5), percentile(times, 0.99), len(times)))
    print("| beside | calls | p50 | p99 | of alone | goal | |\n|---|---|---|---|---|---|---|")
    base = statistics.median(p99 for _, p99, _ in found["alone"])
    for name, rounds in found.items():
        p50, p99 = (statistics.median(one[place] for one in rounds) for place in (0, 1))
        ratio, calls = p99 / base, sum(count for _, _, count in rounds)
        met = "" if name == "alone" else "met" if ratio <= GOAL else "MISSED"
        print(f"| {name} | {calls} | {p50:.1f} ms | {p99:.1f} ms | {ratio:.2f} | {GOAL:g} | {met} |")


if __name__ == "__main__":
    trio.run(main, float(sys.argv[1]) if sys.argv[1:] else 3.0)
