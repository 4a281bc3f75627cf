"""What the calls of a server share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from ...logs import FailureLog, RepeatedRecords, peer_logger
from ...protocol.connection import StrayKind
from ...protocol.jsonrpc import Encoded
from ...protocol.sealing.request_state import KeyRing, Sealer
from ...runtime import Supervisor
from ...types import Model
from ..kept_results import KeptResults
from ..options import ServiceOptions
from ..raised import RaisedErrors
from .directory import CallDirectory
from .ended import EndedCall
from .facts import RequestFacts
from .url_elicitations import UrlElicitations

C = TypeVar("C")
logger = peer_logger("trio_mcp.session")


@dataclass(eq=False)
class CallServices(Generic[C]):
    """What calls need of the service that runs them.

    Attributes:
        server_info_json: the server's name and version, as modern results state them.
        keys: seal `requestState`; None for a random key.
        audience: the server that a state is for.
        directory: the calls that a later request may carry forward.
        node: names this process among those that share the keys.
        records: counts what clients can make the server log, over all connections.
        routes: serve what a call requests from its own server, by method.
        kept: the results that were too large to be sent.
        state: what the author's lifespan yielded; None without one.
        stray_replies: counts replies of clients that no call waited for.
        raised: takes the exceptions that the calls raise, for a client in the same process; None without one.
        failures: logs the failures of the author's functions.
        in_process: whether the only client is in the same process, which ends with it.
        url_elicitations: the pages that users were asked to open.
    """

    supervisor: Supervisor
    options: ServiceOptions
    server_info_json: Encoded
    keys: KeyRing | None
    audience: str
    directory: CallDirectory[C, EndedCall]
    node: str
    records: RepeatedRecords
    routes: Mapping[str, Callable[[RequestFacts, Model], object]]
    kept: KeptResults
    state: object = None
    stray_replies: Counter[StrayKind] = field(default_factory=Counter[StrayKind])
    raised: RaisedErrors | None = None
    failures: FailureLog = field(default_factory=FailureLog)
    in_process: bool = False
    url_elicitations: UrlElicitations = field(default_factory=UrlElicitations)

    @cached_property
    def sealer(self) -> Sealer:
        """Seals `requestState`; made when a call first asks a modern client, or a retry comes."""
        keys = self.keys
        if keys is None:
            keys = KeyRing.random()
            if not self.in_process:
                logger.warning(
                    "requestState is sealed with a key of this process alone: a retry that comes after a restart, or to "
                    "another process, is refused. Set TRIO_MCP_KEYS to a key that all of them share."
                )
        return Sealer(keys, audience=self.audience, ttl=self.options.actors.park_ttl)

    def note_divergence(self, what: str) -> None:
        """Report a replay that asked something else than the run before; the old answer was not used."""
        self.records.log("a replay diverged: %s", what)
        if self.options.on_divergence is not None:
            self.options.on_divergence(what)
