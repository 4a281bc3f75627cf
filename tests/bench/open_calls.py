"""Workloads of our own HTTP client: many calls or streams that are open at once."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import trio

from . import messages
from .generator import Load, WrongAnswers
from .http_client import Connection, connected, in_session, open_session
from .messages import LEGACY_REVISION, NUMBER, Era
from .tls_load import cpu_seconds
from .workload import Server, Unit, Workload

SETTLE = 0.3
"""Seconds after which a server has done what it does after its answers."""

LANES = 8
"""Connections on which answers to questions travel."""

LEAST_CALLS = 3
CALL_TIMEOUT = 60.0


def resident(pid: int) -> int:
    """Return the kilobytes of memory that a process uses."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


async def warm(port: int) -> None:
    """Make a few calls, so that what a server builds on first use is not charged to the sessions."""
    session = await open_session(port)
    head = in_session(port, session)
    async with connected(port) as connection:
        for number in range(20):
            body = messages.call("echo", {"text": "hello"}, Era.LEGACY)
            await connection.post(head, body.replace(NUMBER, str(number + 10)))
    async with connected(port) as connection:
        await ask(connection, port, session, 77)


async def ask(connection: Connection, port: int, session: str, number: int) -> None:
    """Call `ask`, and return when the question has come."""
    body = messages.call("ask", {}, Era.LEGACY).replace(NUMBER, str(number))
    await connection.send("POST", in_session(port, session), body)
    await connection.read_until(b'"elicitation/create"')


@dataclass(frozen=True, kw_only=True)
class Memory(Workload):
    """Memory of each of `number` things that stay open; the first use of each is not counted."""

    number: int
    tool: str = "ask"

    unit: ClassVar[Unit] = Unit.KILOBYTES
    once: ClassVar[bool] = True

    async def grown(self, server: Server, open_one: Callable[[AsyncExitStack, int], Awaitable[None]]) -> float:
        """Return the kilobytes of each."""
        before = resident(server.pid)
        async with AsyncExitStack() as stack:
            for number in range(self.number):
                with trio.fail_after(CALL_TIMEOUT):
                    await open_one(stack, number)
            await trio.sleep(SETTLE)
            return (resident(server.pid) - before) / self.number


@dataclass(frozen=True, kw_only=True)
class Waiting(Memory):
    """Calls of one session that wait for an answer of the user."""

    async def measure(self, server: Server, load: Load) -> float:
        await warm(server.port)
        session = await open_session(server.port)

        async def open_one(stack: AsyncExitStack, number: int) -> None:
            connection = await stack.enter_async_context(connected(server.port))
            await ask(connection, server.port, session, 1000 + number)

        return await self.grown(server, open_one)


@dataclass(frozen=True, kw_only=True)
class Idle(Memory):
    """Sessions, each with its stream of events, on which nothing happens."""

    async def measure(self, server: Server, load: Load) -> float:
        await warm(server.port)

        async def open_one(stack: AsyncExitStack, _number: int) -> None:
            head = {
                "Host": f"127.0.0.1:{server.port}",
                "Accept": "text/event-stream",
                "MCP-Protocol-Version": LEGACY_REVISION,
                "Mcp-Session-Id": await open_session(server.port),
            }
            connection = await stack.enter_async_context(connected(server.port))
            response = await connection.send("GET", head)
            if response.status_code != 200:
                raise WrongAnswers(f"the stream of events has status {response.status_code}")

        return await self.grown(server, open_one)


@dataclass(frozen=True, kw_only=True)
class Fan(Workload):
    """Calls, one after the other, that ask `number` questions at once."""

    number: int
    tool: str = "fan"

    unit: ClassVar[Unit] = Unit.CPU_MILLISECONDS

    async def measure(self, server: Server, load: Load) -> float:
        head = in_session(server.port, await open_session(server.port))
        await self.call(server.port, head, 10)
        calls, cpu, deadline = 0, cpu_seconds(server.pid), trio.current_time() + load.duration
        while calls < LEAST_CALLS or trio.current_time() < deadline:
            await self.call(server.port, head, 11 + calls)
            calls += 1
        return (cpu_seconds(server.pid) - cpu) * 1e3 / calls

    async def call(self, port: int, head: dict[str, str], number: int) -> None:
        """Make one call, and answer its questions."""
        questions, asked = trio.open_memory_channel[object](math.inf)
        with trio.fail_after(CALL_TIMEOUT):
            async with connected(port) as connection, trio.open_nursery() as nursery:
                body = messages.call("fan", {"n": self.number}, Era.LEGACY).replace(NUMBER, str(number))
                await connection.send("POST", head, body)
                for _ in range(LANES):
                    nursery.start_soon(answer_questions, port, head, asked.clone())
                asked.close()
                async with questions:
                    await self.hand_out(connection, number, questions)

    async def hand_out(self, connection: Connection, number: int, questions: trio.MemorySendChannel[object]) -> None:
        """Pass on the ids of the questions, until the result is there."""
        async for line in connection.lines():
            if not line.startswith(b"data:") or not (data := line.removeprefix(b"data:").strip()):
                continue
            message = json.loads(data)
            if message.get("method") == "elicitation/create":
                questions.send_nowait(message["id"])
            elif message.get("id") == number:
                if "got " not in message["result"]["content"][0]["text"]:
                    raise WrongAnswers(f"the result of a call with questions: {message}")
                return
        raise WrongAnswers("the stream ended before the result")


async def answer_questions(port: int, head: dict[str, str], asked: trio.MemoryReceiveChannel[object]) -> None:
    """Answer the questions whose ids come, over one connection."""
    async with asked, connected(port) as connection:
        async for request_id in asked:
            await connection.post(head, messages.answer(json.dumps(request_id)))
