"""Proving that a tool can be replayed.

A tool that is declared `resume="replay"` may run again from its top in another process. Then it has to ask the same questions and
do the same steps in the same order as before; what it does outside of steps is done again. `replay_tool` runs it that way on
purpose: after every round the call is forgotten, and the next leg replays it from its journal.

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
from ..types import CallToolResult, JsonValue


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a tool did when every leg of its call was replayed.

    Attributes:
        result: its result; None when it went on asking until the client gave up, as a question that changes each time does.
        divergences: where a replay asked something else than the run before.
    """

    result: CallToolResult | None
    divergences: tuple[str, ...]

    def check(self) -> None:
        """Raises `AssertionError`, naming what differed, unless the tool is deterministic between its steps."""
        if self.divergences:
            raise AssertionError("the tool asks something else when it is replayed:\n" + "\n".join(self.divergences))
        if self.result is None:
            raise AssertionError("the tool went on asking until the client gave up")


async def replay_tool(
    server: Server,
    name: str,
    arguments: Mapping[str, JsonValue] | None = None,
    *,
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    on_roots: OnRoots | None = None,
) -> ReplayReport:
    """Call a tool as a modern client, with every leg after the first replayed from its journal.

    What the tool holds when it asks is lost each time, as in a crash: its clean-up runs, and its effects outside of steps are
    repeated. Raises what `Client.call_tool` raises.
    """
    divergences: list[str] = []
    options = replace(server.options, always_replay=True, on_divergence=divergences.append)
    target = server.with_options(options)
    result: CallToolResult | None = None
    async with Client.connect(
        target, mode=MODERN, on_elicit=on_elicit, on_sample=on_sample, on_roots=on_roots
    ) as client:
        try:
            result = await client.call_tool(name, arguments)
        except LimitExceeded:
            if not divergences:
                raise
    return ReplayReport(result, tuple(divergences))
