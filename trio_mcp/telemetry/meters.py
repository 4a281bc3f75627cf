"""What is measured: the durations of the convention, and the numbers of a running service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from ..base.named_tuples import NamedTuple

BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Seconds, for operations and sessions; of the convention."""
STORE_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

OPERATION: Final = (
    "mcp.method.name",
    "gen_ai.tool.name",
    "gen_ai.prompt.name",
    "gen_ai.operation.name",
    "error.type",
    "rpc.response.status_code",
    "mcp.protocol.version",
    "network.transport",
    "network.protocol.name",
)
SESSION: Final = ("error.type", "mcp.protocol.version", "network.protocol.name")
ADDRESS: Final = ("server.address", "server.port")


class Duration(NamedTuple):
    """A histogram of seconds.

    Attributes:
        attributes: those that it may have.
    """

    description: str
    attributes: tuple[str, ...]
    buckets: tuple[float, ...] = BUCKETS


STORE: Final = "trio_mcp.store.operation.duration"

DURATIONS: Final[Mapping[str, Duration]] = {
    "mcp.client.operation.duration": Duration(
        "From when a request was sent to its result, or to the error.", (*OPERATION, *ADDRESS)
    ),
    "mcp.server.operation.duration": Duration("From when a request came to its answer.", OPERATION),
    "mcp.client.session.duration": Duration("How long a client was connected.", (*SESSION, *ADDRESS)),
    "mcp.server.session.duration": Duration("How long a legacy session was open.", SESSION),
    STORE: Duration("How long the store took.", ("trio_mcp.store.operation",), STORE_BUCKETS),
}


class Meter(NamedTuple):
    """A number of a running service.

    Attributes:
        kind: whether it goes up and down, or counts since the service was opened.
        attributes: those that it has besides the name of the server.
    """

    kind: Literal["gauge", "counter"]
    unit: str
    description: str
    attributes: tuple[str, ...] = ()


METERS: Final[Mapping[str, Meter]] = {
    "trio_mcp.calls": Meter("gauge", "{call}", "Calls by state.", ("trio_mcp.state",)),
    "trio_mcp.calls.started": Meter("counter", "{call}", "Calls that were started."),
    "trio_mcp.calls.ended": Meter(
        "counter", "{call}", "Calls by how they ended.", ("trio_mcp.outcome", "trio_mcp.cancel_reason")
    ),
    "trio_mcp.calls.refused": Meter("counter", "{call}", "Calls that were not started."),
    "trio_mcp.calls.stuck": Meter("counter", "{call}", "Calls that did not end within their grace period."),
    "trio_mcp.sessions": Meter("gauge", "{session}", "Legacy sessions that are open."),
    "trio_mcp.questions": Meter("gauge", "{question}", "Questions without an answer."),
    "trio_mcp.memory.limit": Meter("gauge", "By", "The memory budget."),
    "trio_mcp.memory.used": Meter("gauge", "By", "What of the memory budget is used."),
    "trio_mcp.memory.refused": Meter("counter", "{refusal}", "What the memory budget had no room for."),
    "trio_mcp.limits.refused": Meter("counter", "{refusal}", "What a limit has refused.", ("trio_mcp.limit",)),
    "trio_mcp.threads": Meter("gauge", "{thread}", "Threads of plain functions.", ("trio_mcp.state",)),
    "trio_mcp.event_loop.blocked": Meter("counter", "{incident}", "How often a tool blocked the event loop."),
    "trio_mcp.replies.dropped": Meter("counter", "{reply}", "Replies to no open question.", ("trio_mcp.kind",)),
    "trio_mcp.telemetry.failures": Meter("counter", "{failure}", "What telemetry could not record."),
}


class Reading(NamedTuple):
    """One number, now.

    Attributes:
        name: of its meter.
        attributes: the values of its meter's.
    """

    name: str
    value: float
    attributes: tuple[str, ...] = ()
