"""A client that vanishes without a FIN, in a network of this process alone: `unshare -rn python half_open.py`.

The only interface goes down under an open stream. Prints the seconds until the application was told of it.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time
from typing import Any

import trio
from hypercorn_peer import get, running, serving

from trio_mcp_transports.hypercorn.config import ConnectionLimits, guarded_config

SET_FLAGS = 0x8914
IS_UP = 0x1
PATIENCE = 20.0


def loopback(up: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH14x", b"lo", IS_UP if up else 0))


async def main() -> None:
    told = trio.Event()

    async def stream(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async with trio.open_nursery() as nursery:

            async def talk() -> None:
                try:
                    while True:
                        await send({"type": "http.response.body", "body": b"event\n", "more_body": True})
                        await trio.sleep(0.1)
                except OSError:
                    await trio.sleep_forever()

            nursery.start_soon(talk)
            while (await receive())["type"] != "http.disconnect":
                pass
            told.set()
            nursery.cancel_scope.cancel()

    loopback(up=True)
    config = guarded_config(limits=ConnectionLimits(send_timeout=1.0))
    async with running(serving(stream), config) as server, server.client() as client:
        await client.send(get("/"))
        await client.until(b"event")
        loopback(up=False)
        since = time.monotonic()
        with trio.fail_after(PATIENCE):
            await told.wait()
        print(f"told after {time.monotonic() - since:.1f}")


if __name__ == "__main__":
    trio.run(main)
