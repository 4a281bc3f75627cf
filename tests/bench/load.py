"""Load for one server over HTTP, in a separate process: `load.py PORT CONNECTIONS` calls `echo` until it is killed."""

from __future__ import annotations

import sys

import trio
from peers import Http, busy


async def main(port: int, connections: int) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(connections):
            nursery.start_soon(busy, await Http.connect(port))


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]), int(sys.argv[2]))
