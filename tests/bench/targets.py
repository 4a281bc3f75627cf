"""The servers that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from .environments import NodeEnvironment, PythonEnvironment
from .paths import ROOT

ALL_TOOLS = frozenset({"echo", "progress", "ask", "fan"})
"""`echo(text)` returns the text; `progress(n)` reports n times and returns "done"; `ask()` asks the user for a `value` and
returns "got <value>"; `fan(n)` asks n times at once and returns the sum. BENCH_TOOLS=n adds n more, for a long list."""


class Wire(Enum):
    """How a server is reached."""

    STDIO = "stdio"
    HTTP = "http"
    WEBSOCKET = "ws"


@dataclass(frozen=True)
class Target:
    """One server.

    Attributes:
        name: What `--targets` takes.
        title: What the tables call it.
        commands: For each wire the arguments of the interpreter; `{port}` stands for the port.
        tools: Which tools it has.
    """

    name: str
    title: str
    environment: PythonEnvironment | NodeEnvironment
    commands: Mapping[Wire, tuple[str, ...]]
    tools: frozenset[str] = ALL_TOOLS


@dataclass(frozen=True)
class Installed:
    """A target whose environment is there, and the interpreter of that."""

    target: Target
    interpreter: Path
    under: tuple[str, ...] = ()
    """A command that runs the interpreter, for example a profiler's."""

    def command(self, wire: Wire, port: int = 0) -> list[str]:
        """Return the command that serves on this wire."""
        arguments = [part.format(port=port) for part in self.target.commands[wire]]
        return [*self.under, str(self.interpreter), *arguments]


ONLY_ECHO = frozenset({"echo"})
PORT = "{port}"
FLOOR = PythonEnvironment(
    "floor", ("hypercorn==0.18.*", "trio", "trio-websocket", "httptools", "orjson", "h11", "wsproto", "uvicorn")
)
OUR_SERVER = str(ROOT / "examples" / "bench_server.py")
OFFICIAL = ("-m", "bench.servers.official")
HYPERCORN_FLOOR = ("-m", "bench.servers.hypercorn_floor")
TYPESCRIPT = ("@modelcontextprotocol/server@2.4.0", "@modelcontextprotocol/node@2.1.2", "zod@4")

OURS = "trio_mcp"
HYPERCORN = "floor-hypercorn-trio"
FLOORS = {Wire.STDIO: "floor-stdio-trio", Wire.HTTP: "floor-lean3-trio", Wire.WEBSOCKET: "floor-ws-trio"}
"""The floor of each wire that costs least."""

TARGETS = {
    target.name: target
    for target in (
        Target(
            OURS,
            "trio_mcp",
            PythonEnvironment("trio_mcp", ("-e", str(ROOT), "uvicorn"), ROOT / "pyproject.toml"),
            {
                Wire.STDIO: (OUR_SERVER, "stdio"),
                Wire.HTTP: (OUR_SERVER, "http", PORT),
                Wire.WEBSOCKET: (OUR_SERVER, "ws", PORT),
            },
        ),
        Target(FLOORS[Wire.STDIO], "floor", FLOOR, {Wire.STDIO: ("-m", "bench.servers.stdio_floor")}, ONLY_ECHO),
        Target(FLOORS[Wire.HTTP], "floor", FLOOR, {Wire.HTTP: (*HYPERCORN_FLOOR, "lean", PORT)}),
        Target(
            FLOORS[Wire.WEBSOCKET],
            "floor",
            FLOOR,
            {Wire.WEBSOCKET: ("-m", "bench.servers.websocket_floor", PORT)},
            ONLY_ECHO,
        ),
        Target(
            HYPERCORN,
            "hypercorn",
            FLOOR,
            {Wire.HTTP: (*HYPERCORN_FLOOR, "plain", PORT), Wire.WEBSOCKET: (*HYPERCORN_FLOOR, "plain", PORT)},
        ),
        Target(
            "mcp",
            "mcp",
            PythonEnvironment("mcp", ("mcp==2.3.0",)),
            {Wire.STDIO: (*OFFICIAL, "stdio"), Wire.HTTP: (*OFFICIAL, "http", PORT)},
        ),
        Target(
            "ts",
            "ts",
            NodeEnvironment("typescript", TYPESCRIPT),
            {Wire.STDIO: ("typescript.mjs", "stdio"), Wire.HTTP: ("typescript.mjs", "http", PORT)},
        ),
    )
}
