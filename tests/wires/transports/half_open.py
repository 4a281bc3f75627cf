"""A client that vanishes without a FIN, in a network of this process alone: `unshare -rn python half_open.py`.

The only interface goes down under an open stream. Prints the seconds until the application was notified.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time

import trio
from hypercorn_peer import Exchange, Exchanges, get, running, serving

from trio_mcp_transports.hypercorn.config import ConnectionLimits, guarded_config

SET_FLAGS = 0x8914
IS_UP = 0x1
PATIENCE = 20.0


def loopback(up: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SET_FLAGS, struct.pack("16sH14x", b"lo", IS_UP if up else 0))


async def talk(exchange: Exchange) -> None:
    while not exchange.response.lost.is_set():
        exchange.body(b"event\n", more=True)
        await trio.sleep(0.1)


async def main() -> None:
    app = Exchanges()
    loopback(up=True)
    config = guarded_config(limits=ConnectionLimits(send_timeout=1.0))
    async with running(serving(app), config) as server, server.client() as client, trio.open_nursery() as nursery:
        await client.send(get("/"))
        exchange = await app.next()
        nursery.start_soon(talk, exchange)
        await client.until(b"event")
        loopback(up=False)
        since = time.monotonic()
        await exchange.until_disconnect(PATIENCE)
        print(f"notified after {time.monotonic() - since:.1f}")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
