"""Limits and times of a service, as the author of a server sets them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from .. import session, types
from ..base.checks import check_callable, check_instance, check_int, check_seconds, check_str, mistake, names_options
from ..base.named_tuples import NamedTuple
from ..base.shared_limits import OPEN_TASKS, WAITING_FOR_TASKS
from ..base.values import ComparedByFields
from ..protocol.sealing.request_state import KeyRing
from ..runtime import MAX_DEPTH, Limits as ActorLimits, MemoryBudget, process_budget
from ..storage import JournalStore, Store

if TYPE_CHECKING:
    from ..types import (
        AudioContent,
        CreateMessageResult,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        SamplingMessage,
        TextContent,
        ToolResultContent,
        ToolUseContent,
        UnknownContent,
    )

# Limits and times of tasks, as the author of a server sets them.

LEAST_TTL: Final = 1.0
"""Seconds; a shorter life is raised to it, since no client could ask for the result of such a task."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TaskOptions(ComparedByFields):
    """Limits and times of tasks; pass it as `ServiceOptions(tasks=...)`. Times are in seconds.

    Raises:
        TypeError, ValueError: a value is of the wrong type or out of range, or `ttl` is above `max_ttl`.

    Attributes:
        ttl: how long a task exists, from its creation on, if its caller does not say; its work is cancelled then.
        max_ttl: the longest time that a caller may ask for, at least `ttl`.
        poll_interval: how often clients should ask for the state of a task.
        open: how many tasks may run or wait for an answer; more are rejected.
        open_per_owner: the same for one principal, or one connection without authentication.
        waiting: how many requests may wait for results (`tasks/result`), at most half of the calls that may run; more are
            rejected, and their callers can poll.
        waiting_per_owner: the same for one principal, or one connection without authentication.
        ask_as_tasks: ask questions and samples as tasks, if a client of 2025-11-25 declares it.
    """

    ttl: float = 3600.0
    max_ttl: float = 86_400.0
    poll_interval: float = 1.0
    open: int = OPEN_TASKS.limit
    open_per_owner: int = 1_000
    waiting: int = WAITING_FOR_TASKS.limit
    waiting_per_owner: int = 1_000
    ask_as_tasks: bool = False

    def __post_init__(self) -> None:
        for name in ("ttl", "max_ttl", "poll_interval"):
            check_seconds(name, getattr(self, name), positive=True, finite=True)
        for name in ("open", "open_per_owner", "waiting", "waiting_per_owner"):
            check_int(name, getattr(self, name))
        if self.ttl > self.max_ttl:
            # A default, or a mistake, of which only one of both would count.
            raise ValueError(
                f"ttl must be at most max_ttl: {self.ttl:g} is above {self.max_ttl:g}, so change one of them"
            )

    def granted_ttl(self, wanted_ms: float | None) -> float:
        """Return the seconds for which a task exists whose caller asked for this many milliseconds; None for the default."""
        return min(max(self.ttl if wanted_ms is None else wanted_ms / 1000, LEAST_TTL), self.max_ttl)


# An estimate of how many tokens a sample used, where the client does not report it.

Block: TypeAlias = (
    "TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | EmbeddedResource | ResourceLink"
    " | UnknownContent"
)

CHARACTERS_PER_TOKEN = 4
"""For English text, as the large providers document it."""

TOKENS_PER_MEDIUM = 1_600
"""Tokens of an image or a recording, whose size in base64 says little: about what a large picture costs."""


def estimate_tokens(params: types.CreateMessageRequestParams, result: types.CreateMessageResult | None) -> int:
    """Return a quarter of the characters of the messages sent, the system prompt and the answer, rounded up."""
    messages: list[SamplingMessage | CreateMessageResult] = [*params.messages]
    if result is not None:
        messages.append(result)
    length = len(params.system_prompt or "")
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        length += sum(map(characters, blocks))
    return -(-length // CHARACTERS_PER_TOKEN)


def characters(block: Block) -> int:
    """Return how many characters of the model's context a block takes."""
    match block:
        case types.TextContent(text=text) | types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return len(text)
        case types.ToolUseContent(name=name, input=arguments):
            return len(name) + len(json.dumps(arguments))
        case types.ToolResultContent(content=content, structured_content=structured):
            return sum(map(characters, content)) + (0 if structured is None else len(json.dumps(structured)))
        case types.ResourceLink(uri=uri):
            # The client may put the resource itself into the context, but its size is not known here.
            return len(uri)
        case types.UnknownContent():
            return len(json.dumps(block.wire()))
        case _:
            return TOKENS_PER_MEDIUM * CHARACTERS_PER_TOKEN


class HandOver(NamedTuple):
    """The end of a worker whose calls go on for a while, while another one serves everything else.

    Attributes:
        seconds: that the calls have.
        is_due: returns whether another process serves.
        on_begun: called when nothing new comes to this process any more.
    """

    seconds: float
    is_due: Callable[[], bool]
    on_begun: Callable[[], None]


class Workplace(NamedTuple):
    """What a process that is one of several workers shares with the others.

    Attributes:
        folder: a private folder, which goes with the parent of the workers.
        announces: it says where the server is; the others do not.
        hand_over: how it ends when another process serves in its place; None if it ends as always.
    """

    folder: Path
    announces: bool
    hand_over: HandOver | None = None

    @property
    def store(self) -> str:
        """The store of servers that name none."""
        return f"sqlite:{self.folder / 'state.db'}"

    @property
    def is_ending(self) -> bool:
        """Whether all workers end, not this one alone."""
        return self._ending.exists()

    def note_ending(self) -> None:
        """Note that all workers end."""
        self._ending.touch()

    @property
    def _ending(self) -> Path:
        return self.folder / "ending"

    @property
    def keys_file(self) -> Path:
        """The file with the keys of that store, if there are no others. No other store is sealed with them."""
        return self.folder / "keys"


WORKPLACE: Final[ContextVar[Workplace | None]] = ContextVar("WORKPLACE", default=None)
"""None in a process that is no worker."""

MAX_NODE: Final = 64
"""Characters of the name of a process."""


@names_options
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ServiceOptions(ComparedByFields):
    """Limits and times of a running server; pass it as `Server(options=...)`. Times are in seconds. See
    https://github.com/trio-mcp/trio-mcp/blob/main/docs/limits.md.

    Attributes:
        actors: how many calls may run and wait; see `trio_mcp.runtime.Limits`.
        max_seconds: maximum duration of every call, even if its own `timeout` is longer.
        cancel_grace: time for the clean-up of a call that was cancelled or reached its deadline. After that it is *stuck*: its
            caller receives an error, and nothing waits for the call any longer.
        watchdog: a tool that blocks the event loop for this long is logged with its stack; `inf` disables the watchdog.
        settle: how long a busy branch may delay the questions of other branches; a modern client receives them together.
        outcome_grace: how long the result of a finished request is retained, in case the client repeats the request.
        result_ttl: how long a result over its tool's `max_result` is kept, for its caller to read it.
        memory: how many bytes the server may hold for its clients; by default a quarter of the memory of the machine, or of its
            control group, shared by all services of the process.
        outbox: messages that may wait for a slow reader before the tools that send them wait too.
        keys: keys that encrypt `requestState`; when None, those of `TRIO_MCP_KEYS`, or else random ones for the life of the
            process.
        max_state: bytes of the journal (recorded answers and steps) inside a `requestState`; a larger one goes to the store.
        store: where everything is kept that outlives the process: the path of a file, such as "state.db", or a `Store`. It
            needs keys; see https://github.com/trio-mcp/trio-mcp/blob/main/docs/stores.md. A `JournalStore` keeps only journals
            over `max_state`; without a store, such a call cannot be replayed.
        node: a readable name for this process among those that share the store; a random part is added at each start.
        always_replay: replay the call on every retry, as if the process had restarted: for tests of tools (`trio_mcp.testing`).
        watched: resources that one session, or one `subscriptions/listen`, may subscribe to.
        max_depth: how deep branches may nest; a tool or a branch cannot allow more.
        parallel_prompts: send a legacy client all of a call's questions for the user at once, instead of one after the other.
        estimate_tokens: estimates the tokens of a sample, for budgets, if the client does not report them.
        tasks: limits and times of tasks.
        telemetry: make spans and metrics, if the program uses OpenTelemetry; see
            https://github.com/trio-mcp/trio-mcp/blob/main/docs/telemetry.md.
        telemetry_content: show arguments, results and the URIs of resources in spans, which may be secret.
        tell_errors: send the type and text of unexpected exceptions to the caller, instead of a reference to the log. They may
            hold secrets. None, the default: only to a client in the same process (`Client.connect(server)`).
        on_divergence: called with a description when a replay asks a different question than the earlier run; it is also logged.
    """

    actors: ActorLimits = field(default_factory=ActorLimits)
    max_seconds: float = math.inf
    cancel_grace: float = 5.0
    watchdog: float = 0.25
    settle: float = 0.2
    outcome_grace: float = 60.0
    result_ttl: float = 600.0
    memory: MemoryBudget = field(default_factory=process_budget)
    outbox: int = 256
    keys: KeyRing | None = None
    max_state: int = 32 * 1024
    store: str | Store | JournalStore | None = None
    node: str | None = None
    always_replay: bool = False
    watched: int = 1000
    max_depth: int = MAX_DEPTH
    parallel_prompts: bool = False
    estimate_tokens: session.TokenEstimate = estimate_tokens
    on_divergence: Callable[[str], None] | None = None
    telemetry: bool = True
    telemetry_content: bool = False
    tell_errors: bool | None = None
    tasks: TaskOptions = field(default_factory=TaskOptions)

    @property
    def home(self) -> str | Store | None:
        """The store for everything; None if that is in memory."""
        return self.store if isinstance(self.store, str | Store) else None

    def __post_init__(self) -> None:
        check_seconds("cancel_grace", self.cancel_grace, positive=True, hint="clean-up takes time")
        for name in ("max_seconds", "watchdog"):
            check_seconds(name, getattr(self, name), positive=True, hint="math.inf for no limit")
        for name in ("settle", "outcome_grace"):
            check_seconds(name, getattr(self, name))
        check_seconds("result_ttl", self.result_ttl, positive=True, finite=True)
        for name, least in (("outbox", 1), ("max_state", 0), ("watched", 0), ("max_depth", 0)):
            check_int(name, getattr(self, name), least=least)
        if self.node is not None and not (0 < len(check_str("node", self.node)) <= MAX_NODE):
            raise ValueError(f"node must have 1 to {MAX_NODE} characters")
        for name in ("telemetry", "telemetry_content"):
            check_instance(name, getattr(self, name), bool, "True or False")
        if self.tell_errors is not None:
            check_instance("tell_errors", self.tell_errors, bool, "True, False or None")
        if not isinstance(self.store, str | Store | JournalStore | None):
            raise TypeError(mistake("store", 'the path of a file, such as "state.db"', self.store))
        check_instance("actors", self.actors, ActorLimits, "trio_mcp.runtime.Limits(...)")
        check_instance("tasks", self.tasks, TaskOptions, "TaskOptions(ttl=600)")
        check_instance("memory", self.memory, MemoryBudget, "MemoryBudget(256 * 1024 * 1024)")
        check_callable("estimate_tokens", self.estimate_tokens, "a function of a request and its result")
