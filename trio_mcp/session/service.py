"""What a session serves: the routes, the supervisor, and what outlives a single connection.

A `Service` exists while a server is being served. Every connection of it, whatever its transport, shares its actors' nursery,
its caps and its directory of calls that modern clients may carry forward from any connection.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ..checks import check_callable, check_instance, check_int, check_seconds
from ..protocol.connection import StrayKind
from ..protocol.jsonrpc import Encoded
from ..protocol.sealing.request_state import KeyRing, Sealer
from ..runtime import MAX_DEPTH, CancelReason, Supervisor, ThreadLimiter, open_supervisor
from ..runtime import Limits as ActorLimits
from ..storage import JournalStore
from ..types import Implementation, Model, ServerCapabilities
from .directory import Directory
from .leg import RequestFacts
from .replay import Resume
from .statistics import ReplyStatistics, ServiceStatistics
from .subscriptions import Subscriptions
from .tokens import TokenEstimate, estimate_tokens

if TYPE_CHECKING:
    from .call import Call

logger = logging.getLogger("trio_mcp.session")


class Plan(NamedTuple):
    """How to run a request as an actor.

    Attributes:
        run: the body; its result is the request's.
        target: what is called (a tool's name, a resource's URI), bound into `requestState`.
        seconds: the longest the call may take, or infinity.
        failed: the result that tells of a failure or of a cancellation, or None to answer with a protocol error instead. That the
            call took too long is a `LimitExceeded` that says which limit it was.
        resume: what becomes of the call when its parked actor is gone.
    """

    run: Callable[[Call], Awaitable[Model]]
    target: str
    seconds: float = math.inf
    failed: Callable[[BaseException | CancelReason], Model | None] = lambda _cause: None
    resume: Resume = Resume.PARKED


Route = Callable[[RequestFacts, Model], Model | Encoded | Plan]
"""Serve one request method: answer at once, or return the plan of an actor. Raises `ProtocolError` to refuse."""

Guard = Callable[[RequestFacts, Model], None]
"""Looks at every request of a method, also at those that carry a call forward. Raises `ProtocolError` to refuse."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Limits and times of a service, in seconds."""

    actors: ActorLimits = field(default_factory=ActorLimits)
    max_seconds: float = math.inf
    """The longest that any call may take, whatever its own `timeout` says."""
    cancel_grace: float = 5.0
    """How long a call may take to clean up when it was cancelled or its time is up; then it is *stuck*: its caller is answered,
    and nobody waits for it any longer."""
    watchdog: float = 0.25
    """A tool that keeps the event loop from turning for this long is logged with its stack; `inf` for not looking."""
    settle: float = 0.2
    """How long a busy branch may hold back the questions of its siblings."""
    outcome_grace: float = 60.0
    """How long the outcome of a finished leg is kept for a repeated request."""
    outbox: int = 256
    """Messages that may wait for a slow reader before the tools that send them wait too."""
    keys: KeyRing | None = None
    """Keys that seal `requestState`; when None, those of `TRIO_MCP_KEYS`, or else random ones for the life of the process."""
    max_state: int = 32 * 1024
    """Bytes of journal that travel in a `requestState`; a larger one goes to the store."""
    store: JournalStore | None = None
    """Keeps journals that are too large to travel; without it such a call cannot be replayed."""
    always_replay: bool = False
    """Forget each call when it asks, so that every retry is a replay: for tests of tools (`trio_mcp.testing`)."""
    watched: int = 1000
    """Resources that one session, or one `subscriptions/listen`, may watch."""
    max_depth: int = MAX_DEPTH
    """How deep the branches of a call may nest, whatever its tool or a branch says."""
    parallel_prompts: bool = False
    """Put the questions that one call has for the user to a handshake-era client side by side, instead of one after the other."""
    estimate_tokens: TokenEstimate = estimate_tokens
    """What a sample counts in token budgets when its client does not say."""
    on_divergence: Callable[[str], None] | None = None
    """Told when a replay asks something else than the run before; it is logged anyway."""

    def __post_init__(self) -> None:
        check_seconds("cancel_grace", self.cancel_grace, positive=True, hint="clean-up takes time")
        for name in ("max_seconds", "watchdog"):
            check_seconds(name, getattr(self, name), positive=True, hint="math.inf for no limit")
        for name in ("settle", "outcome_grace"):
            check_seconds(name, getattr(self, name))
        for name, least in (("outbox", 1), ("max_state", 0), ("watched", 0), ("max_depth", 0)):
            check_int(name, getattr(self, name), least=least)
        check_instance("actors", self.actors, ActorLimits, "trio_mcp.runtime.Limits(...)")
        check_callable("estimate_tokens", self.estimate_tokens, "a function of a request and its result")


class Service:
    """Made by `open_service`."""

    def __init__(
        self,
        supervisor: Supervisor,
        routes: Mapping[str, Route],
        identity: Implementation,
        capabilities: ServerCapabilities,
        instructions: str | None,
        options: ServiceOptions,
        guards: Mapping[str, Guard],
        keys: KeyRing | None,
        threads: ThreadLimiter | None,
    ) -> None:
        self.supervisor = supervisor
        self.routes = routes
        self.guards = guards
        self.identity = identity
        self.signature = Encoded(identity.encode())
        """The identity as modern results carry it."""
        self.capabilities = capabilities
        """What is offered now; whoever adds something of a new kind while serving replaces it."""
        self.subscriptions = Subscriptions()
        self.instructions = instructions
        self.options = options
        self.directory = Directory(options.outcome_grace)
        self.strays: Counter[StrayKind] = Counter()
        """Replies of clients that nobody waited for."""
        self._threads = threads
        self._keys = keys
        self.node = secrets.token_urlsafe(8)
        """This process, among those that share the keys."""

    @cached_property
    def sealer(self) -> Sealer:
        """What seals `requestState`; made when a call first asks a modern client, or one comes back."""
        keys = self._keys
        if keys is None:
            keys = KeyRing.random()
            logger.warning(
                "requestState is sealed with a key of this process alone: a retry that comes after a restart, or to another "
                "process, is refused. Set TRIO_MCP_KEYS to a key that all of them share."
            )
        return Sealer(keys, audience=self.identity.name, ttl=self.options.actors.park_ttl)

    def statistics(self) -> ServiceStatistics:
        """What runs, waits and is held now, and what was dropped; a snapshot."""
        strays = self.strays
        return ServiceStatistics(
            actors=self.supervisor.statistics(),
            open_questions=sum(actor.open_questions for actor in self.supervisor.actors),
            dropped=ReplyStatistics(
                late=strays[StrayKind.LATE],
                duplicate=strays[StrayKind.DUPLICATE],
                unknown=strays[StrayKind.UNKNOWN],
            ),
            threads=None if self._threads is None else self._threads.statistics(),
            blocked=self.supervisor.blocked,
        )

    def note_divergence(self, what: str) -> None:
        """A replay asked something else than was answered; the old answer was not used."""
        logger.warning("a replay diverged: %s", what)
        if self.options.on_divergence is not None:
            self.options.on_divergence(what)

    async def drain(self, seconds: float, clean_up: float = 2.0) -> None:
        """Shut down: refuse new calls, give running ones `seconds`, then cancel them and answer their callers.

        Streams of changes end in order, however few the seconds, unless they are not read (M-SUB-3s).
        """
        until = trio.current_time() + seconds
        self.supervisor.refuse_new()
        self.subscriptions.close()
        with trio.move_on_after(FAREWELL):
            await self.subscriptions.streams_ended()
        await self.supervisor.drain(max(0, until - trio.current_time()), clean_up)

    def __repr__(self) -> str:
        return f"<Service {self.identity.name} {self.supervisor!r}>"


FAREWELL: Final = 0.5
"""Seconds in which those who listen for changes are told that there will be none."""

NO_GUARDS: Mapping[str, Guard] = MappingProxyType({})


@asynccontextmanager
async def open_service(
    routes: Mapping[str, Route],
    identity: Implementation,
    capabilities: ServerCapabilities,
    instructions: str | None = None,
    options: ServiceOptions | None = None,
    guards: Mapping[str, Guard] = NO_GUARDS,
    threads: ThreadLimiter | None = None,
) -> AsyncIterator[Service]:
    """A service for the length of the block; leaving it cancels what still runs, and waits for it all.

    Args:
        threads: where plain functions run, for the statistics.

    Raises:
        ConfigurationError: `TRIO_MCP_KEYS` holds no keys.
    """
    options = options or ServiceOptions()
    keys = options.keys or KeyRing.from_environment()  # before any nursery, which would wrap the error
    async with open_supervisor(options.actors, options.cancel_grace, options.watchdog) as supervisor:
        yield Service(supervisor, routes, identity, capabilities, instructions, options, guards, keys, threads)
        with trio.CancelScope(shield=True):
            await supervisor.drain(0)
