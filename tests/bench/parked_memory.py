"""What a parked call costs: `python tests/bench/parked_memory.py [CALLS]` prints kilobytes of resident memory for each.

The calls are made through a session in this process, as a modern client makes them, and wait for an answer to one question;
what is measured is everything that the server keeps for them, after a collection. Not a test: it has no threshold.
"""

from __future__ import annotations

import gc
import sys
import time

import trio
from bench_app import server
from peers import arrived, request, resident

from trio_mcp.session import ServerSession


async def park(session: ServerSession, first: int, count: int) -> None:
    outbox = session.service.open_outbox()
    for number in range(first, first + count):
        session.receive(arrived(request("ask", {}, number, {"elicitation": {}})), outbox)
    while session.busy:
        await outbox.take()


async def main(count: int) -> None:
    async with server.open_service() as service:
        session = ServerSession(service, shared_channel=False)
        await park(session, 0, 100)  # what is built once is not charged to the calls
        gc.collect()
        before, started = resident(), time.perf_counter()
        for first in range(100, 100 + count, 100):
            await park(session, first, 100)
        seconds = time.perf_counter() - started
        gc.collect()
        each = (resident() - before) / count
        parked = service.supervisor.statistics().parked
    print(f"{parked} calls parked in {seconds:.1f} s: {each:.2f} kB each")


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if sys.argv[1:] else 9_900)
