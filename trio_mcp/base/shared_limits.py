"""The limits that several callers share: what is limited, how many there may be by default, and which options set that.

Each is kept by a `Quota` (`runtime/quota.py`), which has the rule for all of them: once half of a limit is in use, a caller that
would hold more than a quarter of it is refused, or waits (`FairLimiter`), or loses its own oldest things. The table of
docs/limits.md is made of this one, and `tests/base/shared_limits` fills each limit by one caller and serves another.
"""

from __future__ import annotations

from typing import Final

from .named_tuples import NamedTuple


class SharedLimit(NamedTuple):
    """One limit.

    Attributes:
        what: is limited, in the plural, as errors and docs/limits.md say it.
        limit: the default.
        refusal: what a caller sees that is refused.
        option: sets the limit; empty if it is fixed.
        per_caller: how many one caller may hold by default, however many others there are; None if only its share counts.
        cap: the option that sets that.
        identity: what a caller is here, if it is not the usual: a principal, or else a connection.
        optional: there is no such limit unless `option` sets one.
    """

    what: str
    limit: int
    refusal: str
    option: str = ""
    per_caller: int | None = None
    cap: str = ""
    identity: str = ""
    optional: bool = False


RUNNING_CALLS: Final = SharedLimit(
    "calls that run", 20_000, "-32000", "Limits.actors", 20_000, "Limits.actors_per_principal"
)
PARKED_CALLS: Final = SharedLimit(
    "calls that wait for an answer",
    10_000,
    "-32000; the call is cancelled",
    "Limits.parked",
    10_000,
    "Limits.parked_per_principal",
)
THREADS: Final = SharedLimit(
    "plain functions that run in threads",
    100,
    "the next waits; if cancelled calls hold all threads of the caller, -32000",
)
TOOL_PLACES: Final = SharedLimit(
    "calls of one tool that run at once",
    0,
    "the call waits in the queue of the tool, or else gets -32000",
    "limit",
    optional=True,
)
TOOL_QUEUE: Final = SharedLimit("calls that wait until the limit of their tool lets them run", 0, "-32000", "queue")
OPEN_TASKS: Final = SharedLimit(
    "open tasks",
    10_000,
    "-32000; nothing of the new one remains",
    "TaskOptions.open",
    1_000,
    "TaskOptions.open_per_owner",
)
WAITING_FOR_TASKS: Final = SharedLimit(
    "requests that wait for the results of tasks",
    5_000,
    "-32000; the caller can poll `tasks/get`",
    "TaskOptions.waiting, and at most half of Limits.actors",
    1_000,
    "TaskOptions.waiting_per_owner",
)
SUBSCRIPTIONS: Final = SharedLimit("subscriptions to resources", 100_000, "-32000")
SUBSCRIBED_CHARACTERS: Final = SharedLimit("characters of subscribed URIs", 64 * 1024 * 1024, "-32000")
AWAITED_PAGES: Final = SharedLimit("URL elicitations that calls wait for", 10_000, "`LimitExceeded` in the tool")
LEFT_PAGES: Final = SharedLimit(
    "URL elicitations that nothing waits for and that may still be completed",
    10_000,
    "the oldest of the caller is forgotten: completing it does nothing",
)
FINISHED_CALLS: Final = SharedLimit(
    "finished calls whose results are kept for repeated requests",
    10_000,
    "the oldest of the caller is evicted: a copy of its request gets -32602",
)
FINISHED_BYTES: Final = SharedLimit("bytes of the results of finished calls", 64 * 1024 * 1024, FINISHED_CALLS.refusal)
REPLAYED_STATES: Final = SharedLimit(
    "request states of earlier processes that were continued here",
    10_000,
    "the oldest of the caller is forgotten: a copy of its request may run once more",
)
KEYED_OUTCOMES: Final = SharedLimit(
    "outcomes of calls with idempotency keys",
    10_000,
    "the oldest of the caller is dropped: its repeat gets the error of an unknown outcome",
    identity="a principal; all callers without one count as one, which may have all",
)
KEYED_OUTCOME_BYTES: Final = SharedLimit(
    "bytes of outcomes of calls with idempotency keys",
    64 * 1024 * 1024,
    KEYED_OUTCOMES.refusal,
    identity=KEYED_OUTCOMES.identity,
)
USED_KEYS: Final = SharedLimit(
    "idempotency keys of calls whose outcome is gone",
    100_000,
    "the oldest of the caller is forgotten: for ten minutes, a request that says it repeats a call of this caller is not run",
    identity=KEYED_OUTCOMES.identity,
)
STORED_OUTCOMES: Final = SharedLimit(
    "bytes of outcomes of calls with idempotency keys that one process keeps in a durable store",
    256 * 1024 * 1024,
    "the key is stored without the outcome: a repeat to the next process gets the error of an unknown outcome",
    identity="a principal, or all callers without one",
)
UNSETTLED: Final = SharedLimit(
    "writes to a durable store that have not been confirmed",
    1_000,
    "-32000; a call with an idempotency key does not begin",
    identity=KEYED_OUTCOMES.identity,
)
SESSIONS: Final = SharedLimit(
    "legacy sessions over HTTP", 10_000, "503, -32000", "HttpLimits.sessions", 1_000, "HttpLimits.per_principal"
)
SSE_STREAMS: Final = SharedLimit(
    "HTTP+SSE streams", 10_000, "503", "HttpLimits.sessions", 1_000, "HttpLimits.per_principal"
)
WEBSOCKETS: Final = SharedLimit(
    "open WebSockets", 10_000, "503", "HttpLimits.websockets", 1_000, "HttpLimits.per_principal"
)
CONNECTIONS: Final = SharedLimit(
    "open connections",
    10_000,
    "503",
    "ConnectionLimits.max_connections",
    identity="an address; a trusted proxy and a Unix socket may have all",
)
HOST_CONNECTIONS: Final = SharedLimit(
    "connections of hosts to one mounted proxy",
    100,
    "a connection of the caller that no call uses is closed, or else the call gets an error",
    "max_sessions",
)
FOLLOWED_RESOURCES: Final = SharedLimit(
    "resources of one server that its proxy subscribes to for hosts", 1_000, "-32000"
)
ANSWERED_QUESTIONS: Final = SharedLimit(
    "questions that one proxy answers at a time", 32, "-32000", "Backfill.max_answering"
)
STORED_RECORDS: Final = SharedLimit(
    "records in a store in memory",
    100_000,
    "`StoreFull`",
    "MemoryStore.records",
    identity="the owner of a record",
)
EVENTS: Final = SharedLimit(
    "events of streams that are kept for clients that resume them",
    100_000,
    "the stream of the caller that has been inactive longest is evicted: resuming it is answered with 400",
    "MemoryEventStore.total_events",
    identity="a principal, or else a session",
)
EVENT_BYTES: Final = SharedLimit(
    "bytes of events in memory",
    64 * 1024 * 1024,
    EVENTS.refusal,
    "MemoryEventStore.total_bytes",
    identity=EVENTS.identity,
)
STORED_EVENT_BYTES: Final = SharedLimit(
    "bytes of events in a durable store", 256 * 1024 * 1024, EVENTS.refusal, identity=EVENTS.identity
)

FETCHED_CLIENTS: Final = SharedLimit(
    "fetches of the metadata of OAuth clients",
    16,
    "a page with the status 503",
    identity="an address",
)
PROVIDER_REQUESTS: Final = SharedLimit(
    "requests of OAuth clients that wait for the provider of an OAuth proxy",
    256,
    "503 `temporarily_unavailable`",
    identity="an address",
)

SHARED_LIMITS: Final = (
    RUNNING_CALLS,
    PARKED_CALLS,
    THREADS,
    TOOL_PLACES,
    TOOL_QUEUE,
    OPEN_TASKS,
    WAITING_FOR_TASKS,
    SUBSCRIPTIONS,
    SUBSCRIBED_CHARACTERS,
    AWAITED_PAGES,
    LEFT_PAGES,
    FINISHED_CALLS,
    FINISHED_BYTES,
    REPLAYED_STATES,
    KEYED_OUTCOMES,
    KEYED_OUTCOME_BYTES,
    USED_KEYS,
    STORED_OUTCOMES,
    UNSETTLED,
    SESSIONS,
    SSE_STREAMS,
    WEBSOCKETS,
    CONNECTIONS,
    HOST_CONNECTIONS,
    FOLLOWED_RESOURCES,
    ANSWERED_QUESTIONS,
    STORED_RECORDS,
    EVENTS,
    EVENT_BYTES,
    STORED_EVENT_BYTES,
    FETCHED_CLIENTS,
    PROVIDER_REQUESTS,
)
"""All of them. The memory budget follows the same rule, and has its own message (`runtime/memory_budget.py`)."""
