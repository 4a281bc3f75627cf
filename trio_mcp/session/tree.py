"""What a service does now, as `Service.tree` returns it: plain values, and the text that they are printed as."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final, TypeAlias, cast

from ..protocol.jsonrpc import RequestId
from ..runtime import CancelReason, CodeLine
from ..types import JsonObject, JsonValue


class CallState(StrEnum):
    """What a call does.

    Attributes:
        RUNNING: some of its code runs, sleeps or waits for something else than its client.
        WAITING: all of it waits for answers of its client.
        PARKED: the same, and no request of its client is open: it goes on with the next one.
        CANCELLED: it was cancelled, and cleans up.
        STUCK: it was cancelled, and has not ended within its grace period.
    """

    RUNNING = "running"
    WAITING = "waiting"
    PARKED = "parked"
    CANCELLED = "cancelled"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class AwaitedAnswers:
    """Answers of one kind that a call or a branch waits for.

    Attributes:
        kind: what asked for them: "elicit", "sample" or "roots". "request" stands for the next request of the client, and "other"
            for what is not a question to it.
        source: who has to answer: "user", "model" or "client".
        count: how many.
    """

    kind: str
    source: str
    count: int

    def __str__(self) -> str:
        return f"{self.source} ({self.kind if self.count == 1 else f'{self.count} x {self.kind}'})"


@dataclass(frozen=True, slots=True)
class BranchTree:
    """A branch of a call, with its own.

    Attributes:
        path: "1.2" for the second branch of the first branch of the body.
        name: of the function that it runs, or of the tool that a model calls; empty until it first runs.
        state: "running"; "waiting" for answers; or "joining", which is waiting for its own branches.
        awaits: the answers that it waits for.
        at: the line of its code, while it is "running".
    """

    path: str
    name: str
    state: str
    awaits: tuple[AwaitedAnswers, ...]
    branches: tuple[BranchTree, ...]
    at: CodeLine | None = None

    def __str__(self) -> str:
        return "\n".join(lines_of(branch_node(self)))


@dataclass(frozen=True, slots=True)
class CallTree:
    """One call of a client.

    Attributes:
        number: counts the calls of the service from 1.
        method: such as "tools/call".
        name: of the tool or prompt; of a resource only the scheme of its URI, since the rest may hold arguments.
        request: the id of the request that it answers now; None for a parked call, and for a task.
        is_task: it runs as a task.
        state: what it does; `reason` says why it was cancelled.
        age: seconds since it was started.
        awaits: the answers that its body waits for; each branch has its own.
        queued: questions that are not sent yet, because the user is asked one at a time.
        branches: its running branches, oldest first.
        more_branches: how many of them are not shown.
        at: the line of its code, unless its body waits for answers or for branches.
    """

    number: int
    method: str
    name: str
    request: RequestId | None
    is_task: bool
    state: CallState
    reason: CancelReason | None
    age: float
    awaits: tuple[AwaitedAnswers, ...]
    queued: int
    branches: tuple[BranchTree, ...]
    more_branches: int
    at: CodeLine | None = None

    def __str__(self) -> str:
        return "\n".join(lines_of(call_node(self)))


@dataclass(frozen=True, slots=True)
class ClientTree:
    """A legacy session, or what one modern client has sent; with the calls that have not ended.

    Attributes:
        name, version: as the client calls itself; empty if it does not, or if the caller of these calls is not known any more.
        revision: of the protocol.
        principal: as the server's `authenticate` returned it.
        is_session: whether it is a legacy session. Sessions without a call are not shown.
    """

    name: str
    version: str
    revision: str
    principal: str | None
    is_session: bool
    calls: tuple[CallTree, ...]

    def __str__(self) -> str:
        return "\n".join(lines_of(client_node(self)))


@dataclass(frozen=True, slots=True)
class ServiceTree:
    """What a service does at one moment. `str` shows it as a tree, `to_json` as JSON.

    Attributes:
        name, version: of the server.
        running, parked, stuck: how many calls there are in all, by state; those that wait or clean up count as running.
        subscribers: sessions and streams that are notified of changes.
        clients: those that have calls, in the order of the oldest.
        more_calls: how many calls are not shown.
    """

    name: str
    version: str
    running: int
    parked: int
    stuck: int
    subscribers: int
    clients: tuple[ClientTree, ...]
    more_calls: int

    @property
    def calls(self) -> tuple[CallTree, ...]:
        """The calls that are shown, of all clients."""
        return tuple(call for client in self.clients for call in client.calls)

    def to_json(self) -> JsonObject:
        """Return the tree as a JSON object with the names of the attributes as its members."""
        return {name: json_form(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return "\n".join(lines_of(service_node(self)))


def json_form(value: object) -> JsonValue:
    """Return a value of `asdict` as JSON."""
    if isinstance(value, dict):
        return {str(name): json_form(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return [json_form(each) for each in value]
    return value.value if isinstance(value, StrEnum) else cast("JsonValue", value)


# As text

Node: TypeAlias = tuple[str, "Sequence[Node]"]
"""A line, and those below it."""

LAST, OTHER, BELOW_LAST, BELOW_OTHER = "└─ ", "├─ ", "   ", "│  "
TOOL_METHOD: Final = "tools/call"


def lines_of(node: Node) -> Iterator[str]:
    """Yield the lines of a node and of all below it."""
    text, children = node
    yield text
    for number, child in enumerate(children, 1):
        first, below = (LAST, BELOW_LAST) if number == len(children) else (OTHER, BELOW_OTHER)
        for line in lines_of(child):
            yield first + line
            first = below


def service_node(tree: ServiceTree) -> Node:
    calls = tree.running + tree.parked + tree.stuck
    counts = [counted(calls, "call") if calls else "no calls"]
    counts += [f"{count:,} {what}" for count, what in ((tree.parked, "parked"), (tree.stuck, "stuck")) if count]
    if tree.subscribers:
        counts.append(counted(tree.subscribers, "subscriber"))
    children = [client_node(client) for client in tree.clients]
    return f"{tree.name} {tree.version}: {', '.join(counts)}", with_more(children, tree.more_calls, "call")


def client_node(client: ClientTree) -> Node:
    known = f"{client.name} {client.version}".strip() or "a client without a name"
    if not client.revision:
        text = "callers that have been answered"
    else:
        text = f"{'session of ' * client.is_session}{known}, {client.revision}"
    if client.principal is not None:
        text += f", principal {client.principal}"
    return text, [call_node(call) for call in client.calls]


def call_node(call: CallTree) -> Node:
    name = call.name if call.method in (TOOL_METHOD, "") else f"{call.method} {call.name}"
    parts = [f"{name} #{call.number}" if call.name != call.method else f"{call.name} #{call.number}"]
    if call.is_task:
        parts.append("task")
    if call.request is not None:
        parts.append(f"request {call.request}")
    parts.append(f"{call.age:.1f} s")
    state = call.state.value if call.reason is None else f"{call.state.value} ({call.reason.value})"
    awaits = awaits_text(call.awaits)
    if call.at is not None:
        state += f" at {call.at}"
    doing = [*awaits] if awaits and call.state is CallState.WAITING else [state, *awaits]
    if call.queued:
        doing.append(f"{counted(call.queued, 'question')} in the queue")
    children = [branch_node(branch) for branch in call.branches]
    return f"{', '.join(parts)}: {', '.join(doing)}", with_more(children, call.more_branches, "branch", "branches")


def branch_node(branch: BranchTree) -> Node:
    state = {"joining": "waits for its branches", "waiting": ""}.get(branch.state, branch.state)
    if branch.at is not None:
        state += f" at {branch.at}"
    doing = ", ".join(filter(None, (state, *awaits_text(branch.awaits))))
    name = f" {branch.name}" if branch.name else ""
    return f"branch {branch.path}{name}: {doing}", [branch_node(below) for below in branch.branches]


def awaits_text(awaits: Iterable[AwaitedAnswers]) -> Sequence[str]:
    listed = " and the ".join(map(str, awaits))
    return [f"waits for the {listed}"] if listed else []


def with_more(children: Sequence[Node], more: int, one: str, many: str = "") -> Sequence[Node]:
    return children if not more else [*children, (f"and {more:,} more {one if more == 1 else many or f'{one}s'}", ())]


def counted(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else f'{one}s'}"
