"""Workloads of the load generator: calls on each wire, with and without questions, as many as the server answers."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from . import messages
from .generator import SLOW, Load, Report, WrongAnswers, generate
from .http_client import connected, open_session
from .messages import NUMBER, PATH, Era
from .targets import FLOORS, HYPERCORN, OURS, Target, Wire
from .workload import Server, Unit, Workload

HELLO: Mapping[str, Any] = {"text": "hello world"}
STARTS = 3
"""How often a server is started in one round."""


@dataclass(frozen=True, kw_only=True)
class Calls(Workload):
    """Calls of a tool over HTTP, each connection with one at a time.

    Attributes:
        expect: A text that every answer has to hold.
        progress: Whether the client asks for reports.
        query: What follows the path.
        headers: More headers of each request.
    """

    era: Era
    connections: int
    arguments: Mapping[str, Any] = field(default_factory=lambda: HELLO)
    expect: str = "hello world"
    progress: bool = False
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    async def measure(self, server: Server, load: Load) -> float:
        head = {**messages.headers(server.port, self.era, "tools/call", self.tool), **self.headers}
        body = messages.call(self.tool, dict(self.arguments), self.era, progress=self.progress)
        return await self.generate("http", server, load, {"req": messages.post(head, body, self.query)})

    async def generate(self, mode: str, server: Server, load: Load, texts: Mapping[str, str]) -> float:
        """Run the load generator, in a session for each connection if the era has sessions; returns µs of CPU a call."""
        sessions = {}
        if self.era is Era.LEGACY:
            ids = [await open_session(server.port, self.headers) for _ in range(self.connections)]
            sessions = {"sids": "\n".join(ids) + "\n"}
        options = {"port": server.port, "conns": self.connections, "pid": server.pid, "expect": self.expect}
        # In a separate file: the server has its log open.
        log = server.scratch / "generator.log"
        report = await generate(mode, load, options, {**texts, **sessions}, log=log, scratch=server.scratch)
        return report.cpu


@dataclass(frozen=True, kw_only=True)
class SlowlySentCalls(Calls):
    """Calls that are sent by the generator in Python, which speaks TLS, so that they compare with each other only.

    Attributes:
        tls: Whether it does; then the server has to.
    """

    tls: bool

    def runs_on(self, target: Target) -> bool:
        return target.name in (OURS, HYPERCORN)

    async def generate(self, mode: str, server: Server, load: Load, texts: Mapping[str, str]) -> float:
        sessions = {}
        if self.era is Era.LEGACY:
            ids = [await open_session(server.port, tls=self.tls) for _ in range(self.connections)]
            sessions = {"sids": "\n".join(ids)}
        options = {"port": server.port, "conns": self.connections, "pid": server.pid, "expect": self.expect}
        log = server.scratch / "generator.log"
        options["tls"] = int(self.tls)
        report = await generate(
            mode, load, options, {**texts, **sessions}, log=log, scratch=server.scratch, program=SLOW
        )
        return report.cpu


@dataclass(frozen=True, kw_only=True)
class HostedCalls(Calls):
    """Calls on uvicorn: of our application, of the floor's and of the official SDK's, which always runs there."""

    variables: Mapping[str, str] = field(default_factory=lambda: {"BENCH_HOST": "uvicorn"})

    def runs_on(self, target: Target) -> bool:
        return target.name in (OURS, FLOORS[Wire.HTTP], "mcp")


@dataclass(frozen=True, kw_only=True)
class Questions(Calls):
    """Calls that ask the user once: with a request of the server if legacy, with a second request of the client if modern."""

    tool: str = "ask"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    expect: str = "got 7"

    async def measure(self, server: Server, load: Load) -> float:
        head = messages.headers(server.port, self.era, "tools/call", self.tool)
        body = messages.call(self.tool, {}, self.era)
        if self.era is Era.LEGACY:
            mode, answer = "elicit", messages.answer()
        else:
            mode, answer = "mrtr", messages.retry(self.tool, await question_key(server, head, body))
        texts = {"req": messages.post(head, body), "ans": messages.post(head, answer)}
        return await self.generate(mode, server, load, texts)


async def question_key(server: Server, head: dict[str, str], body: str) -> str:
    """Ask once; returns the key under which the server asks its question."""
    async with connected(server.port) as connection:
        _, said = await connection.post(head, body.replace(NUMBER, "1"))
    events = [line.removeprefix(b"data:") for line in said.splitlines() if line.startswith(b"data:")]
    result = json.loads(events[-1] if events else said)["result"]
    if not result.get("inputRequests"):
        raise WrongAnswers(f"instead of a question: {result}")
    return str(next(iter(result["inputRequests"])))


@dataclass(frozen=True, kw_only=True)
class Lists(Calls):
    """Requests for the list of tools."""

    async def measure(self, server: Server, load: Load) -> float:
        head = messages.headers(server.port, self.era, "tools/list")
        body = messages.request("tools/list", {}, self.era)
        return await self.generate("http", server, load, {"req": messages.post(head, body)})


@dataclass(frozen=True, kw_only=True)
class StdioCalls(Workload):
    """Calls of `echo` on stdio, in a legacy session."""

    in_flight: int

    wire: ClassVar[Wire] = Wire.STDIO

    async def measure(self, server: Server, load: Load) -> float:
        return (await on_stdio(server, load, self.in_flight)).cpu


@dataclass(frozen=True, kw_only=True)
class FirstAnswer(Workload):
    """The time from the start of a process to its first answer."""

    wire: ClassVar[Wire] = Wire.STDIO
    unit: ClassVar[Unit] = Unit.MILLISECONDS

    async def measure(self, server: Server, load: Load) -> float:
        short = Load(duration=0.05, warmup=0.0)
        return statistics.median([(await on_stdio(server, short, 1)).first_answer for _ in range(STARTS)])


async def on_stdio(server: Server, load: Load, in_flight: int) -> Report:
    """Start the server, and call `echo`."""
    return await generate(
        "stdio",
        load,
        {"inflight": in_flight, "server-cpu": server.core, "expect": HELLO["text"]},
        {"init": messages.opening(), "req": messages.call("echo", dict(HELLO), Era.LEGACY) + "\n"},
        log=server.log,
        scratch=server.scratch,
        server=server.installed.command(Wire.STDIO),
        folder=server.installed.target.environment.folder,
    )


@dataclass(frozen=True, kw_only=True)
class WebSocketCalls(Workload):
    """Calls of `echo` over WebSockets, in legacy sessions."""

    connections: int
    in_flight: int

    wire: ClassVar[Wire] = Wire.WEBSOCKET

    async def measure(self, server: Server, load: Load) -> float:
        options = {"port": server.port, "path": PATH, "pid": server.pid, "expect": HELLO["text"]}
        counts = {"conns": self.connections, "inflight": self.in_flight}
        report = await generate(
            "ws",
            load,
            {**options, **counts},
            {"init": messages.opening(), "req": messages.call("echo", dict(HELLO), Era.LEGACY) + "\n"},
            log=server.scratch / "generator.log",
            scratch=server.scratch,
        )
        return report.cpu
