"""Testing that a tool can be replayed.

A tool with `resume="replay"` may run again from its top in another process. Then it must ask the same questions and run the same
steps in the same order as before; everything outside of steps runs again. `replay_tool` forces that: after every round the call
is dropped, and the next leg replays it from its journal.

    report = await replay_tool(server, "book_flight", {"destination": "Lisbon"}, on_elicit=answer)
    report.check()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..client import Client, OnElicit, OnRoots, OnSample
from ..errors import LimitExceeded
from ..protocol.revisions import MODERN
from ..server import Server
from ..types import CallToolResult
from .mock.workers import without_file


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The outcome of a call in which every leg was replayed.

    Attributes:
        result: the tool's result; None if it asked in more rounds than the client allows, for example because its question
            changes each time.
        divergences: the questions of a replay that differ from those of the run before.
    """

    result: CallToolResult | None
    divergences: tuple[str, ...]

    def check(self) -> None:
        """Raise `AssertionError`, which names the differences, unless the tool is deterministic between its steps."""
        if self.divergences:
            raise AssertionError("the tool asks another question when it is replayed:\n" + "\n".join(self.divergences))
        if self.result is None:
            raise AssertionError("the tool asked for more rounds than the client allows")


async def replay_tool(
    server: Server,
    name: str,
    arguments: Mapping[str, object] | None = None,
    *,
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    on_roots: OnRoots | None = None,
) -> ReplayReport:
    """Call a tool as a modern client, with every leg after the first replayed from its journal, and report the outcome.

    Each time that the tool asks, it loses its local state, as in a crash: its clean-up runs, and its effects outside of steps
    are repeated. Raises the errors of `Client.call_tool`.
    """
    divergences: list[str] = []
    options = replace(server.options, always_replay=True, on_divergence=divergences.append)
    target = without_file(server.copy(options=options))
    result: CallToolResult | None = None
    async with Client.connect(
        target, mode=MODERN, on_elicit=on_elicit, on_sample=on_sample, on_roots=on_roots
    ) as client:
        try:
            result = await client.call_tool(name, arguments)
        # A question that changes with each replay never gets its answer. The divergences say why; without one, the limit was
        # exceeded for another reason, which is the caller's to see.
        except LimitExceeded:
            if not divergences:
                raise
    return ReplayReport(result, tuple(divergences))
