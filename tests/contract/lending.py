"""The contract's server, kept from one case to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from more_rules import tools

from trio_mcp.server import Server
from trio_mcp.testing.contract import Stage, contract_server
from trio_mcp.testing.contract.subject import gauges_of, service_options

MORE_TOOLS = tools
"""Registered beside those of the package."""


class StageDoor(Stage):
    """The stage of a server that serves one case after another; it forwards to the stage of the current case."""

    def __init__(self) -> None:
        super().__init__()
        self.now = Stage()

    def mark(self, name: str) -> None:
        self.now.mark(name)

    async def gate(self, name: str) -> None:
        await self.now.gate(name)

    def spend(self) -> None:
        self.now.spend()

    def count(self, name: str) -> int:
        return self.now.count(name)


_spare: list[tuple[Server, StageDoor]] = []


@contextmanager
def lent_server(stage: Stage) -> Iterator[Server]:
    """Give the block the contract's server, for one case.

    Building it takes ten times as long as most cases do, so the next case gets the same server, unless this case failed, changed
    the server, or left it running.
    """
    server, door = _spare.pop() if _spare else built()
    door.now = stage
    stage.measured_by(partial(gauges_of, server))
    options = service_options(stage.options)
    yield server.copy(options=options)
    held = options.memory.statistics().drawn
    assert not held, f"the server has ended and still counts {held} bytes of its memory budget"
    if not (stage.spent or server.services):
        door.now = Stage()
        _spare.append((server, door))


def build_spare() -> None:
    """Build the server of the next case."""
    _spare.append(built())


def built() -> tuple[Server, StageDoor]:
    door = StageDoor()
    return contract_server(door), door
