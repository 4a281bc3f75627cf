"""What a workload is, and what it finds out about a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar

from .generator import Load
from .targets import Installed, Target, Wire


class Unit(Enum):
    """What is measured."""

    CPU_MICROSECONDS = "µs"
    CPU_MILLISECONDS = "ms CPU"
    MILLISECONDS = "ms"
    KILOBYTES = "kB"


@dataclass(frozen=True)
class Goal:
    """Our upper bound: a factor of the value in another column of the table, or an absolute value for our own column."""

    column: str
    most: float


@dataclass(frozen=True)
class Server:
    """A target that can be called.

    Attributes:
        core: The core that it runs on.
        log: What it writes to stderr.
        scratch: A folder for files.
        port: Of HTTP and WebSocket. A server on stdio is started by the load generator, so it has no port and no process yet.
    """

    installed: Installed
    core: int
    log: Path
    scratch: Path
    port: int = 0
    pid: int = 0


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """One row of the table.

    Attributes:
        name: What `--workloads` takes.
        what: A description for the table.
        tool: The tool that is called.
        variables: What the servers find in their environment.
        wire: How the servers are called.
        unit: Of what `measure` returns.
        once: Whether one round is enough.
    """

    name: str
    what: str
    goals: tuple[Goal, ...] = ()
    tool: str = "echo"
    variables: Mapping[str, str] = field(default_factory=dict)

    wire: ClassVar[Wire] = Wire.HTTP
    unit: ClassVar[Unit] = Unit.CPU_MICROSECONDS
    once: ClassVar[bool] = False

    def runs_on(self, target: Target) -> bool:
        """Return whether the target has the wire and the tool."""
        return self.wire in target.commands and self.tool in target.tools

    @abstractmethod
    async def measure(self, server: Server, load: Load) -> float:
        """Return what it costs this server."""
