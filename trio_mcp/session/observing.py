"""Making the tree of a service: the snapshots of its actors, with what their calls know of clients, requests and questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from .. import telemetry
from ..base.named_tuples import NamedTuple
from ..base.values import one_line
from ..protocol.jsonrpc import RequestId
from ..runtime import (
    Actor,
    ActorSnapshot,
    ActorState,
    LaneSnapshot,
    MemoryStatistics,
    SupervisorStatistics,
    ThreadStatistics,
    snapshot_of,
)
from .calls.call import Call
from .calls.facts import LegacySession
from .service import Service
from .tasks.call import CallAsTask
from .tree import AwaitedAnswers, BranchTree, CallState, CallTree, ClientTree, ServiceTree

if TYPE_CHECKING:
    from ..telemetry.meters import Reading

MAX_NAME: Final = 80
"""Characters that are shown of what a client calls itself, or of what it calls."""

ASKED: Final[Mapping[str | None, tuple[str, str]]] = {
    "elicitation/create": ("elicit", "user"),
    "sampling/createMessage": ("sample", "model"),
    "roots/list": ("roots", "client"),
    # The body went on while it was parked, and needs its client again.
    None: ("request", "client"),
}
"""What a question is, and who answers it, by its method."""
OTHER: Final = ("other", "client")


class Caller(NamedTuple):
    """What is known of a client. Two legacy sessions are two, whatever their clients say of themselves."""

    name: str
    version: str
    revision: str
    principal: str | None
    session: LegacySession | None


UNKNOWN: Final = Caller("", "", "", None, None)


def tree_of(service: Service, limit: int, max_branches: int) -> ServiceTree:
    """Return what a service does now; see `Service.tree`."""
    actors = service.supervisor.actors
    listed = list(islice(actors, limit))
    shares = equal_shares([min(limit, len(actor.lanes or ())) for actor in listed], max_branches)
    calls: dict[Caller, list[CallTree]] = {}
    for actor, share in zip(listed, shares, strict=True):
        call, snapshot = actor.owner, snapshot_of(actor, share)
        if isinstance(call, Call):
            calls.setdefault(caller_of(call), []).append(call_tree(call, snapshot))
        else:
            # Stuck: its caller has been answered.
            calls.setdefault(UNKNOWN, []).append(orphan_tree(actor, snapshot))
    counts = service.supervisor.statistics()
    return ServiceTree(
        name=service.identity.name,
        version=service.identity.version,
        running=counts.running,
        parked=counts.parked,
        stuck=counts.stuck,
        subscribers=len(service.subscriptions),
        clients=tuple(client_tree(caller, its_calls) for caller, its_calls in calls.items()),
        more_calls=max(0, len(actors) - limit),
    )


def equal_shares(wanted: Sequence[int], total: int) -> list[int]:
    """Return how much each gets of `total`: what it wants, or an equal part of the remainder if that is less."""
    shares = [0] * len(wanted)
    for position, number in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[number] = min(wanted[number], total // (len(wanted) - position))
        total -= shares[number]
    return shares


def caller_of(call: Call) -> Caller:
    """Return the client of a call."""
    facts = call.facts
    info = facts.client_info
    name, version = ("", "") if info is None else (shown(info.name), shown(info.version))
    principal = None if facts.principal is None else shown(facts.principal)
    return Caller(name, version, facts.protocol_version, principal, facts.session)


def client_tree(caller: Caller, calls: Iterable[CallTree]) -> ClientTree:
    name, version, revision, principal, session = caller
    return ClientTree(name, version, revision, principal, session is not None, tuple(calls))


def call_tree(call: Call, snapshot: ActorSnapshot) -> CallTree:
    """Return what a call does."""
    is_task, queued = isinstance(call, CallAsTask), call.queued_questions
    request = call.facts.id if call.is_answering and not is_task else None
    return CallTree(
        number=number_of(snapshot),
        method=call.method,
        name=shown_target(call.target_name, may_be_uri=call.method == "resources/read"),
        request=None if request is None else shown_id(request),
        is_task=is_task,
        state=state_of(snapshot, queued),
        reason=snapshot.reason,
        age=snapshot.age,
        awaits=awaited(call, snapshot.body),
        queued=queued,
        branches=tuple(branch_tree(call, branch) for branch in snapshot.body.branches),
        more_branches=snapshot.more_branches,
        at=snapshot.body.at,
    )


def orphan_tree(actor: Actor, snapshot: ActorSnapshot) -> CallTree:
    """Return what is known of an actor whose call has been answered."""
    name = shown_target(actor.name.rpartition("-")[0], may_be_uri=True)
    branches = tuple(branch_tree(None, branch) for branch in snapshot.body.branches)
    return CallTree(
        number_of(snapshot),
        "",
        name,
        None,
        False,
        state_of(snapshot, 0),
        snapshot.reason,
        snapshot.age,
        (),
        0,
        branches,
        snapshot.more_branches,
        snapshot.body.at,
    )


def branch_tree(call: Call | None, lane: LaneSnapshot) -> BranchTree:
    below = tuple(branch_tree(call, branch) for branch in lane.branches)
    return BranchTree(lane.path, shown(lane.name), lane.state.value, awaited(call, lane), below, lane.at)


def state_of(snapshot: ActorSnapshot, queued: int) -> CallState:
    """Return the state of a call.

    Args:
        queued: how many of its questions wait for their turn; the lanes that ask them look as if they ran.
    """
    if snapshot.state is ActorState.STUCK:
        return CallState.STUCK
    if snapshot.reason is not None:
        return CallState.CANCELLED
    if snapshot.state is ActorState.PARKED:
        return CallState.PARKED
    return CallState.WAITING if snapshot.is_waiting(queued) else CallState.RUNNING


def awaited(call: Call | None, lane: LaneSnapshot) -> tuple[AwaitedAnswers, ...]:
    """Return the answers that a lane of a call waits for, by kind."""
    if call is None:
        return ()
    counts = Counter(ASKED.get(call.question_method(key), OTHER) for key in lane.questions)
    return tuple(AwaitedAnswers(kind, source, count) for (kind, source), count in counts.items())


def number_of(snapshot: ActorSnapshot) -> int:
    """Return the number of an actor, which ends its name."""
    return int(snapshot.name.rpartition("-")[2])


def shown_target(target: str, *, may_be_uri: bool) -> str:
    """Return what a call calls, without what its client has filled in."""
    scheme, colon, _ = target.partition(":")
    return shown(f"{scheme}:..." if may_be_uri and colon else target)


def shown_id(request_id: RequestId) -> RequestId:
    return shown(request_id) if isinstance(request_id, str) else request_id


def shown(text: str) -> str:
    """Return text of a client in one line, without control characters and not too long."""
    return one_line(text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}...")


# The statistics of a running server: what runs and waits now, and how calls and replies ended.


class ReplyStatistics(NamedTuple):
    """Replies of clients that matched no open question, since the service was opened.

    Attributes:
        late: replies whose question had been withdrawn.
        duplicate: replies whose question had been answered.
        unknown: replies to questions never asked on that connection, such as a reply meant for another client.
    """

    late: int
    duplicate: int
    unknown: int


class ServiceStatistics(NamedTuple):
    """A snapshot of one service.

    Attributes:
        actors: calls by state now, and how calls have ended.
        open_questions: questions of these calls without an answer.
        dropped: replies that matched no open question.
        threads: those that run plain functions; abandoned ones belong to calls that were cancelled. None without plain functions.
        memory: the memory budget; other services of the process may share it.
        blocked: how often the watchdog saw a tool block the event loop.
        sessions: legacy sessions that are open.
        refusals: how often each limit has refused something; those of the process are counted in all its services.
        telemetry_failures: how often something that the program has set up for telemetry has failed.
    """

    actors: SupervisorStatistics
    open_questions: int
    dropped: ReplyStatistics
    threads: ThreadStatistics | None
    memory: MemoryStatistics
    blocked: int
    sessions: int = 0
    refusals: Mapping[str, int] = MappingProxyType({})
    telemetry_failures: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether no call is running, parked or stuck, no question is open, and no thread is in use."""
        actors, threads = self.actors, self.threads
        in_threads = 0 if threads is None else threads.running + threads.waiting
        return not (actors.running or actors.parked or actors.stuck or self.open_questions or in_threads)


# The same for metrics.


def readings_of(service: object) -> Iterator[Reading]:
    """Yield the numbers of a service; in any thread."""
    assert isinstance(service, Service)
    now, reading = service.statistics(), telemetry.meters.Reading
    calls, memory = now.actors, now.memory
    for state, count in (("running", calls.running), ("parked", calls.parked), ("stuck", calls.stuck)):
        yield reading("trio_mcp.calls", count, (state,))
    yield reading("trio_mcp.calls.started", calls.started)
    yield reading("trio_mcp.calls.ended", calls.returned, ("returned", ""))
    yield reading("trio_mcp.calls.ended", calls.raised, ("raised", ""))
    for reason, count in calls.cancelled.items():
        yield reading("trio_mcp.calls.ended", count, ("cancelled", reason.value))
    yield reading("trio_mcp.calls.refused", calls.refused)
    yield reading("trio_mcp.calls.stuck", calls.ever_stuck)
    yield reading("trio_mcp.sessions", now.sessions)
    yield reading("trio_mcp.questions", now.open_questions)
    yield reading("trio_mcp.memory.limit", memory.total)
    yield reading("trio_mcp.memory.used", memory.drawn)
    yield reading("trio_mcp.memory.refused", memory.refused)
    for limit, count in now.refusals.items():
        yield reading("trio_mcp.limits.refused", count, (limit,))
    if now.threads is not None:
        yield reading("trio_mcp.threads", now.threads.running, ("running",))
        yield reading("trio_mcp.threads", now.threads.abandoned, ("abandoned",))
    yield reading("trio_mcp.event_loop.blocked", now.blocked)
    for kind, count in now.dropped._asdict().items():
        yield reading("trio_mcp.replies.dropped", count, (kind,))
    yield reading("trio_mcp.telemetry.failures", now.telemetry_failures)
