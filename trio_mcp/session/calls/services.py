"""What the calls of a server share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ... import session, stores
from ...base.logs import FailureLog, RepeatedRecords, peer_logger
from ...base.named_tuples import NamedTuple
from ...protocol.connection import StrayKind
from ...protocol.jsonrpc import Encoded
from ...protocol.sealing.request_state import KeyRing, Sealer
from ...runtime import Supervisor
from ...storage import JournalStore
from ...types import JsonObject, Model, Tool
from .. import recovery
from ..options import ServiceOptions
from ..replies import Answering, LegOutcome
from .directory import CallDirectory, Unreached
from .facts import RequestFacts, ResumeMode
from .url_elicitations import UrlElicitations

if TYPE_CHECKING:
    from ...sampling import SamplingProvider
    from ...storage import Store
    from ...telemetry import Telemetry
    from ..kept_results import KeptResults
    from ..raised import RaisedErrors
    from ..recovery.claims import CallClaims
    from ..recovery.processes import Processes
    from ..recovery.settling import Settling
    from ..recovery.stored_journal import CallLog, Holding
    from .ended import EndedCall

T = TypeVar("T")
logger = peer_logger("trio_mcp.session")

ONE_CLIENT: Final = "TRIO_MCP_ONE_CLIENT"
"""The environment variable of a server that a command such as `trio-mcp call` starts for itself."""


class RunnableTool(Protocol):
    """A tool that a call can run in one of its branches."""

    @property
    def model(self) -> Tool:
        """What `tools/list` shows of it."""
        ...

    @property
    def token_budget(self) -> int | None:
        """The tokens that the samples of one call of it may use; None for no limit."""
        ...

    def plan(self, facts: RequestFacts, arguments: JsonObject) -> object:
        """Return the `Plan` of one call of it, or a `CallToolResult` that says why it does not run."""
        ...


class OwnTools(Protocol):
    """The tools of the server that runs a call, and those that it makes of functions."""

    def named(self, name: str, facts: RequestFacts) -> RunnableTool | None:
        """Return the tool that the caller of a request knows by this name; None if there is none."""
        ...

    def registered(self, tool: object) -> str | None:
        """Return the name under which a tool, the function of one, or a name is registered; None if it is not."""
        ...

    def made_of(self, tool: object) -> RunnableTool | None:
        """Return a function, or a tool that is not registered here, as a tool; None if it is neither.

        Raises:
            TypeError, ValueError: a function cannot be a tool.
        """
        ...


class TaskStarter(Protocol):
    """Creates tasks of calls that run already."""

    def is_wanted(self, facts: RequestFacts, params: Model) -> bool:
        """Return whether the caller takes a task as the answer to this request."""
        ...

    async def start_from(self, call: Answering, params: Model) -> LegOutcome:
        """Create a task that goes on with what a call has recorded; return the answer to its request."""
        ...

    async def answer_of(self, call: str) -> LegOutcome:
        """Return the answer to the request of a call that has become a task, in whichever process; None if it has not.

        Args:
            call: the key of the log of the call.

        Raises:
            StoreError: whatever the store raises.
        """
        ...


class CallOffers(NamedTuple):
    """What a server offers to its own calls.

    Attributes:
        routes: serve the requests, and what a call requests from its own server, by method.
        state: what the author's lifespan yielded; None without one.
        provider: the model of the server; None without one.
        prefers_provider: whether it is asked although the client offers a model.
        tools: the server's tools, for calls that run them; None where a service has none.
        mounted: the same of the servers that are mounted in this one, by server and by prefix.
    """

    routes: Mapping[str, Callable[[RequestFacts, Model], object]]
    state: object = None
    provider: SamplingProvider | None = None
    prefers_provider: bool = False
    tools: OwnTools | None = None
    mounted: Mapping[object, CallOffers] = MappingProxyType({})


@dataclass(eq=False, repr=False)
class CallServices:
    """What all calls of a service need of it.

    Attributes:
        server_info_json: the server's name and version, as modern results state them.
        keys: seal `requestState`; None for a random key.
        audience: the server that a state is for.
        directory: the calls that a later request may carry forward.
        node: names this process among those that share the keys, until it is buried and joins their store again.
        records: counts what clients can make the server log, over all connections.
        store: keeps what may have to outlive the process.
        open_tasks: returns what makes tasks of calls.
        raised: takes the exceptions that the calls raise, for a client in the same process; None without one.
        in_process: whether the only client is in the same process, which ends with it.
        one_client: whether the process serves this one client only, and ends when it leaves.
        telemetry: makes the spans and metrics of requests; None without telemetry.
        stray_replies: counts replies of clients that no call waited for.
        failures: logs the failures of the author's functions.
        url_elicitations: the pages that users were asked to open.
        unreached: the calls that wait in another process.
        on_mail: called when an answer for a task of another process was stored.
    """

    supervisor: Supervisor
    options: ServiceOptions
    server_info_json: Encoded
    keys: KeyRing | None
    audience: str
    directory: CallDirectory[Answering, EndedCall]
    node: str
    records: RepeatedRecords
    store: Store
    open_tasks: Callable[[], TaskStarter]
    raised: RaisedErrors | None = None
    in_process: bool = False
    one_client: bool = False
    telemetry: Telemetry | None = None
    stray_replies: Counter[StrayKind] = field(default_factory=Counter[StrayKind], init=False)
    failures: FailureLog = field(default_factory=FailureLog, init=False)
    url_elicitations: UrlElicitations = field(default_factory=UrlElicitations, init=False)
    unreached: Unreached = field(default_factory=Unreached, init=False)
    on_mail: Callable[[], None] = field(default_factory=lambda: lambda: None, init=False)

    @cached_property
    def tasks(self) -> TaskStarter:
        """Makes tasks of calls."""
        return self.open_tasks()

    def name(self) -> str:
        """Return `node`."""
        return self.node

    @cached_property
    def kept(self) -> KeptResults:
        """The results that were too large to be sent."""
        return session.kept_results.KeptResults(self.options.result_ttl, self.supervisor)

    @cached_property
    def ring(self) -> KeyRing:
        """The keys, or a random one that is used for the life of the process."""
        return KeyRing.random() if self.keys is None else self.keys

    @cached_property
    def is_durable(self) -> bool:
        """Whether calls that may be replayed write what they do into a store that outlives this process."""
        return self.store.durable

    @cached_property
    def call_claims(self) -> CallClaims:
        """Which process runs a call in rounds, of those that share a durable store."""
        return recovery.claims.CallClaims(self.store, self.name, self.options.actors.park_ttl, self.settling)

    def resume_mode(self, mode: ResumeMode) -> ResumeMode:
        """Return what happens to a call of this mode whose parked actor no longer exists."""
        return ResumeMode.REPLAY if self.options.always_replay else mode

    @cached_property
    def processes(self) -> Processes:
        """The processes that share a durable store."""
        return recovery.processes.Processes(self.store, self.name, self.records)

    @cached_property
    def settling(self) -> Settling:
        """The records in the store whose last write is unknown."""
        return recovery.settling.Settling(self.supervisor, self.options.memory, self.records)

    @cached_property
    def journals(self) -> JournalStore | None:
        """Where journals go that are too large to travel; None if there is no place that outlives the process."""
        if self.store.durable:
            return stores.adapters.StoredJournals(self.store)
        given = self.options.store
        return given if isinstance(given, JournalStore) else None

    @cached_property
    def log_store(self) -> Store | None:
        """The store, if it outlives this process."""
        return self.store if self.store.durable else None

    def open_log(self, key: str, lifetime: float, count: int = 0, holding: Holding | None = None) -> CallLog:
        """Return the log of a call, each part of which expires `lifetime` seconds after it was written.

        Args:
            count: entries that it has already.
            holding: says that this process runs the call; None if no other one can take it over.
        """
        return recovery.stored_journal.CallLog(
            self.store, key, lambda: time.time() + lifetime, self.records, count, holding
        )

    @cached_property
    def sealer(self) -> Sealer:
        """Seals `requestState`; made when a call first asks a modern client, or a retry comes."""
        if self.keys is None and not self.in_process and not self.one_client:
            logger.warning(
                "requestState is sealed with a key of this process alone: a retry that comes after a restart, or to "
                "another process, is refused. Set TRIO_MCP_KEYS to a key that all of them share."
            )
        return Sealer(self.ring, audience=self.audience, ttl=self.options.actors.park_ttl)

    def note_divergence(self, what: str) -> None:
        """Report a replay that asked something else than the run before; the old answer was not used."""
        self.records.log("a replay diverged: %s", what)
        if self.options.on_divergence is not None:
            self.options.on_divergence(what)
