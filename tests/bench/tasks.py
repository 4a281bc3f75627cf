"""What tasks cost on SQLite: `python tests/bench/tasks.py [FOLDER]`.

Prints the CPU time (of the whole process, all threads) of creating and finishing a small task, 16 at once; the memory of an open
task among 10,000; how long a start takes that finds them; and how late a wait for a result hears of the end. The requests are
those of a client of 2025-11-25, made through a session in this process. Not a test: it has no threshold.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import trio
import trio.testing
from peers import NEWEST_LEGACY, Json, arrived, ids, json_of, percentile, resident

from trio_mcp import Context, Server, ServiceOptions, TaskOptions
from trio_mcp.session import KeyRing, ServerSession, Service

KEYS = KeyRing([bytes(32)])
AT_ONCE = 16
TASKS = 2_000
OPEN = 10_000
WAITS = 1_000
ROUNDS = 5
ANY = 1_000_000

ends: dict[str, trio.Event] = {}
ended: dict[str, float] = {}


async def quick() -> str:
    """Do nothing."""
    return "done"


async def ask(ctx: Context) -> str:
    """Wait for an answer."""
    return (await ctx.elicit("Go on?", bool)).action


async def wait(name: str) -> str:
    """Wait until the benchmark says that it is over."""
    await ends[name].wait()
    ended[name] = time.perf_counter()
    return "done"


class Peer:
    """A client of one session, which may have many requests open."""

    def __init__(self, service: Service) -> None:
        self.session = ServerSession(service)
        self.outbox = service.open_outbox()
        self.waiting: dict[int, trio.Event] = {}
        self.answers: dict[int, Json] = {}

    async def read(self, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            for envelope in await self.outbox.take():
                message = json_of(envelope)
                if "method" not in message:
                    self.answers[message["id"]] = message
                    self.waiting.pop(message["id"]).set()

    async def request(self, method: str, **params: object) -> Json:
        number = next(ids)
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answered = self.waiting[number] = trio.Event()
        self.session.receive(arrived(message), self.outbox)
        await answered.wait()
        answer = self.answers.pop(number)
        assert "result" in answer, answer
        return answer["result"]

    async def create(self, tool: str, **arguments: str) -> str:
        created = await self.request("tools/call", name=tool, arguments=arguments, task={})
        return str(created["task"]["taskId"])

    async def finish(self, tool: str, **arguments: str) -> None:
        await self.request("tasks/result", taskId=await self.create(tool, **arguments))


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Peer]:
    tasks = TaskOptions(open=ANY, open_per_owner=ANY, ttl=3600)
    server = Server("bench", version="1", options=ServiceOptions(keys=KEYS, store=str(path), tasks=tasks, outbox=ANY))
    for tool in (quick, ask, wait):
        server.tool(task=True, resume="replay")(tool)
    async with server.open_service() as service, trio.open_nursery() as nursery:
        peer = Peer(service)
        peer.session.attach(peer.outbox)
        await nursery.start(peer.read)
        client = {"name": "bench", "version": "1"}
        capabilities: Json = {"elicitation": {}}
        await peer.request("initialize", protocolVersion=NEWEST_LEGACY, capabilities=capabilities, clientInfo=client)
        yield peer
        nursery.cancel_scope.cancel()


async def finished(folder: Path) -> tuple[float, float]:
    """Return the CPU milliseconds, and the milliseconds, of a task that is created and finished."""
    async with opened(folder / "finished.db") as peer:

        async def some(count: int) -> None:
            for _ in range(count):
                await peer.finish("quick")

        await some(100)
        began, cpu = time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(some, TASKS // AT_ONCE)
        return (time.process_time() - cpu) * 1000 / TASKS, (time.perf_counter() - began) * 1000 / TASKS


async def memory(folder: Path) -> float:
    """Return the kilobytes of memory of an open task that waits for an answer."""
    async with opened(folder / "open.db") as peer:

        async def some(count: int) -> None:
            for _ in range(count):
                await peer.create("ask")

        await some(100)
        gc.collect()
        before = resident()
        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(some, OPEN // AT_ONCE)
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        return (resident() - before) / OPEN


async def start(folder: Path) -> tuple[float, float]:
    """Return the seconds until a server that finds those tasks answers, and until it has taken all of them over."""
    began = time.perf_counter()
    async with opened(folder / "open.db") as peer:
        answered = time.perf_counter() - began
        while len(peer.session.service.tasks) < OPEN:  # noqa: ASYNC110  there is no event
            await trio.sleep(0.01)
        return answered, time.perf_counter() - began


async def wakes(folder: Path) -> list[float]:
    """Return how many milliseconds after the end of the work each of many waits for a result has it."""
    late: list[float] = []
    async with opened(folder / "waits.db") as peer:

        async def one(name: str) -> None:
            ends[name] = trio.Event()
            task = await peer.create("wait", name=name)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end, name)
                await peer.request("tasks/result", taskId=task)
                late.append((time.perf_counter() - ended[name]) * 1000)

        async def end(name: str) -> None:
            await trio.sleep(0.01)
            ends[name].set()

        async def some(first: int) -> None:
            for number in range(first, WAITS, AT_ONCE):
                await one(str(number))

        async with trio.open_nursery() as nursery:
            for first in range(AT_ONCE):
                nursery.start_soon(some, first)
    return late


async def main(folder: Path) -> None:
    rounds = [await finished(folder) for _ in range(ROUNDS)]
    cpu, took = (median(column) for column in zip(*rounds, strict=True))
    print(f"create and finish, {AT_ONCE} at once: {cpu:.2f} ms of CPU time, {took:.2f} ms")
    print(f"an open task among {OPEN}: {await memory(folder):.1f} kB")
    answered, adopted = await start(folder)
    print(f"a start that finds them: answers after {answered:.2f} s, has taken all over after {adopted:.2f} s")
    late = await wakes(folder)
    print(f"a wait for a result hears of the end after {median(late):.1f} ms, p99 {percentile(late, 0.99):.1f} ms")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        trio.run(main, Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            trio.run(main, Path(temporary))
