"""How long after a cancel, or a disconnect, the `finally` of a tool begins: `cancel_latency.py [SAMPLES]`.

Over HTTP (modern) the client hangs up; over stdio and WebSocket it sends `notifications/cancelled`. Once with nothing else to
do, and once while sixteen others call `echo` without a pause: over HTTP and WebSocket from another process, over stdio on
the same pipe. Both processes read the machine's one monotonic clock.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import trio
from peers import HERE, Http, Shared, busy, child, http_server, percentile, stdio_server, structured, websocket

LOAD = 16
PAUSE = 0.005
GOALS = {"idle": 50.0, "loaded": 250.0}


async def sample(peer: Http | Shared, asking: Http | Shared, key: str) -> float:
    """One call that is cancelled; the time in milliseconds."""
    request_id = await peer.start("hold", {"key": key})
    await trio.sleep(PAUSE)
    began = time.monotonic()
    await peer.leave(request_id)
    ended = structured(await asking.call("when", {"key": key}))
    assert isinstance(ended, float)
    return (ended - began) * 1000


async def over_http(port: int, count: int) -> list[float]:
    asking = await Http.connect(port)
    return [await sample(await Http.connect(port), asking, str(number)) for number in range(count)]


async def over_shared(peer: Shared, count: int) -> list[float]:
    return [await sample(peer, peer, f"s{number}") for number in range(count)]


@asynccontextmanager
async def loaded(port: int) -> AsyncIterator[None]:
    """Another process keeps the server busy."""
    async with child(HERE / "load.py", str(port), str(LOAD), stderr=subprocess.DEVNULL):
        await trio.sleep(2)
        yield


def show(transport: str, load: str, times: list[float]) -> None:
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    met = "met" if p99 < GOALS[load] else "MISSED"
    print(
        f"| {transport} | {load} | {p50:.1f} ms | {p99:.1f} ms | {max(times):.1f} ms | {GOALS[load]:g} ms | {met} |",
        flush=True,
    )


async def main(count: int) -> None:
    print("| transport | server | p50 | p99 | worst | goal for p99 | |\n|---|---|---|---|---|---|---|")
    async with http_server() as port:
        for load in GOALS:
            async with loaded(port) if load == "loaded" else nullcontext():
                show("HTTP, hung up", load, await over_http(port, count))
                async with websocket(port) as peer:
                    show("WebSocket, cancelled", load, await over_shared(peer, count))
    async with stdio_server() as peer:
        show("stdio, cancelled", "idle", await over_shared(peer, count))
        async with trio.open_nursery() as nursery:
            for _ in range(LOAD):
                nursery.start_soon(busy, peer)
            show("stdio, cancelled", "loaded", await over_shared(peer, count))
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if sys.argv[1:] else 500)
