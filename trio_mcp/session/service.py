"""The routes, the supervisor, and everything else that the connections of a server share.

A `Service` exists while a server is being served. Every connection, whatever its transport, shares its actors' nursery, its
limits and its directory of calls that modern clients may carry forward from any connection.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import trio

from .. import session, stores, telemetry
from ..base.checks import check_int
from ..base.logs import SHARED_LINES, RepeatedRecords, peer_logger
from ..base.named_tuples import NamedTuple
from ..errors import RemoteProtocolError, ResourceNotFound
from ..protocol.codec.models import PLAIN_METHOD
from ..protocol.codec.unknown import UnknownParams, Unread
from ..protocol.connection import StrayKind
from ..protocol.jsonrpc import Encoded, Request
from ..protocol.revisions import IDEMPOTENCY, REVISIONS
from ..protocol.sealing.request_state import KeyRing
from ..runtime import (
    Account,
    Outbox,
    Supervisor,
    ThreadLimiter,
    open_supervisor,
    quota,
    total_statistics,
)
from ..runtime.loop_turn import LoopTurn
from ..storage import SharedStore, Store
from ..stores import open_store
from ..stores.opening import VARIABLE as STORE_VARIABLE
from ..types import Implementation, Model, ServerCapabilities, declares
from . import tasks
from .calls.call import Call, PlainRoute, Plan, RequestCheck, Route
from .calls.directory import CallDirectory
from .calls.facts import RequestFacts
from .calls.services import CallOffers, CallServices
from .channel import MessageChannel
from .envelope import ANONYMOUS, QUEUE_SIZE, Caller, Envelope, MessageMiddleware, Peer, sent_size
from .options import WORKPLACE, ServiceOptions
from .subscriptions import Follower, Subscriptions

if TYPE_CHECKING:
    from .idempotency import IdempotencyKeys

# What a server offers, as a service uses it.

MissingScopes: TypeAlias = Callable[[Request, Callable[[], Caller | None]], frozenset[str]]
"""Returns the scopes that a request needs, if its caller, which the function returns, lacks one of them."""


CheckReader: TypeAlias = Callable[[Caller | None, str, LoopTurn], None]
"""Raises `ResourceNotFound` if a caller does not see a URI, and `RemoteProtocolError` if it lacks the scopes of it."""


def everybody_reads(_caller: Caller | None, _uri: str, _turn: LoopTurn) -> None:
    pass


def no_scopes(_request: Request, _caller: Callable[[], Caller | None]) -> frozenset[str]:
    return frozenset()


class UnknownMethods(NamedTuple):
    """What a proxy does with the messages of a client that pass unread.

    Attributes:
        serve: returns how to serve a request, and what is called with its call as soon as that has started.
        take: called with the method and the params of each notification.
        unread: which messages those are.
    """

    serve: Callable[[RequestFacts, UnknownParams], tuple[Plan, Callable[[Call], None]]]
    take: Callable[[str, UnknownParams], None]
    unread: Unread = Unread.UNKNOWN


class Offers(NamedTuple):
    """All that a server offers.

    Attributes:
        calls: what its own calls use of it, too.
        identity: the name and version of the server.
        capabilities: to declare.
        instructions: how a model should use the server.
        request_checks: checks of requests that continue a call, by method; requests that start one are checked by their route.
        threads: where plain functions run, for the statistics.
        missing_scopes: for a transport that can reject a request before it is served, as HTTP does with 403.
        check_reader: raises unless a caller may subscribe to a resource.
        message_middleware: sees each message of a client; see `middleware.py`.
        followers: of the resources that have subscribers.
        unknown: for messages that pass unread; None rejects or ignores those that no revision has.
    """

    calls: CallOffers
    identity: Implementation
    capabilities: ServerCapabilities
    instructions: str | None = None
    request_checks: Mapping[str, RequestCheck] = MappingProxyType({})
    threads: Sequence[ThreadLimiter] = ()
    missing_scopes: MissingScopes = no_scopes
    check_reader: CheckReader = everybody_reads
    message_middleware: Sequence[MessageMiddleware] = ()
    followers: Sequence[Follower] = ()
    unknown: UnknownMethods | None = None

    @property
    def unread(self) -> Unread:
        """Which messages pass unread."""
        return Unread.NONE if self.unknown is None else self.unknown.unread


logger = peer_logger("trio_mcp.session")


class Service:
    """The state that all connections of a running server share; made by `open_service`.

    Args:
        keys: seal `requestState`; None for a random key.
        channel: the only connection; None if there may be others.

    Attributes:
        offers: what the server offers now.
        routes: serve the requests, by method; with those of tasks.
        missing_scopes: see `Offers`.
        capabilities: those that the server offers now; changed by `declare`.
        store: keeps what may have to outlive the process.
        calls: the services that every call uses.
        sessions: legacy sessions that are open.
        turn: counts the work done for clients since the other tasks of the event loop last ran.
        records: counts what clients can make the server log, over all connections.
        watches_messages: whether sessions pass messages to middleware.
        takes_plain: whether plain tool calls are served without a model of their params, because nothing reads it.
        session_type: makes the sessions of a proxy, and takes what `make_session` takes; None for those of a server.
        is_fenced: another process declared this one dead, and it has not yet rejoined its store.
        rejoining: detects that; None if the store is not shared.
        on_given_up: called when a fenced process gives up its calls and sessions, and again when it has its new name.
        on_session_wanted: called with the key of a legacy session that another process asks this one for.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        offers: Offers,
        options: ServiceOptions,
        keys: KeyRing | None,
        store: Store,
        channel: MessageChannel | None = None,
    ) -> None:
        self.supervisor = supervisor
        self.identity = offers.identity
        self.options = options
        self.store = store
        self.subscriptions = Subscriptions()
        self.watches_messages = bool(offers.message_middleware)
        self.session_type: Callable[..., object] | None = None
        self.turn = LoopTurn()
        self.is_fenced = False
        self.rejoining: session.rejoining.Rejoining | None = None
        self.on_given_up: list[Callable[[], None]] = []
        self.on_session_wanted: list[Callable[[str], None]] = []
        self.sessions = 0
        self._keys: IdempotencyKeys | None = None
        self.records = RepeatedRecords(logger, lines=SHARED_LINES)
        self.calls = CallServices(
            supervisor,
            options,
            Encoded(self.identity.encode()),
            keys,
            self.identity.name,
            CallDirectory(options.outcome_grace, options.memory),
            new_node(options),
            self.records,
            store,
            lambda: self.tasks,
        )
        if options.telemetry:
            self._open_telemetry()
        if channel is not None:
            self.calls.raised, self.calls.in_process = channel.raised, channel.in_process
            self.calls.one_client = channel.one_client
        self.offers = offers
        # Here, because a transport asks for it before each request.
        self.missing_scopes = offers.missing_scopes
        routes = cast("Mapping[str, Route]", offers.calls.routes)
        self.routes: Mapping[str, Route] = {**routes, **dict.fromkeys(TASK_METHODS, self._serve_task_request)}
        # A durable store keeps the params of a call for the next process.
        is_seen = self.watches_messages or self.calls.is_durable
        self.takes_plain = isinstance(self.routes.get(PLAIN_METHOD), PlainRoute) and not is_seen
        self.subscriptions.followers = tuple(offers.followers)
        self.declare(offers.capabilities)

    def _open_telemetry(self) -> None:
        """Make spans and metrics, if the program uses OpenTelemetry."""
        observed = telemetry.open_telemetry(content=self.options.telemetry_content, process=self.calls.node)
        if observed is None:
            return
        self.calls.telemetry = observed
        telemetry.observe(self, self.identity.name, session.observing.readings_of)
        self.time_store(observed)

    def time_store(self, observed: telemetry.Telemetry) -> None:
        """Record how long the store takes; of one in memory nothing is recorded."""
        store = self.store
        if isinstance(store, stores.sealed.SealedStore):
            name, attribute = telemetry.meters.STORE, "trio_mcp.store.operation"
            store.on_done = lambda operation, seconds: observed.record(name, seconds, {attribute: operation})

    @property
    def idempotency_keys(self) -> IdempotencyKeys:
        """The idempotency keys of the calls; made for the first request that has one."""
        if self._keys is None:
            self._keys = session.idempotency.IdempotencyKeys(self.calls, lambda: self.tasks)
        return self._keys

    def close(self) -> None:
        """Forget what is kept for repeats; no call runs any more."""
        self.records.close()
        self.calls.directory.close()
        if self._keys is not None:
            self._keys.close()

    @cached_property
    def tasks(self) -> tasks.tasks.Tasks:
        """The tasks of this service; made when the first request is about tasks or becomes one."""
        return tasks.tasks.Tasks(self.calls, lambda: self.offers.calls, self.subscriptions.announce_task)

    async def share_changes(self, store: SharedStore) -> None:
        """Announce changes to the other processes that use a store, and deliver theirs."""
        calls = self.calls
        shared = session.changes.SharedChanges(
            store,
            calls.name,
            calls.processes,
            self.subscriptions,
            self.tasks.mailbox.wake,
            self._session_wanted,
            self.records,
        )
        self.subscriptions.forward = shared.tell
        calls.on_mail = partial(shared.tell, session.changes.MAIL)
        self.supervisor.spawn(shared.send)
        self.supervisor.spawn(shared.receive)
        await shared.wait_listening()

    def _session_wanted(self, key: str) -> None:
        for release in self.on_session_wanted:
            release(key)

    @cached_property
    def _task_routes(self) -> Mapping[str, Route]:
        return tasks.requests.task_routes(self.tasks)

    def _serve_task_request(self, facts: RequestFacts, params: Model) -> Model | Encoded | Plan:
        return self._task_routes[facts.method](facts, params)

    def check_subscription(self, caller: Caller | None, uri: str) -> None:
        """Raise `RemoteProtocolError` if a caller sees a resource and lacks its scopes.

        A resource that is hidden from the caller is like one that does not exist: either may be subscribed to, and `sees` decides
        on each change.
        """
        with suppress(ResourceNotFound):
            self.offers.check_reader(caller, uri, self.turn)

    def sees(self, caller: Caller | None, uri: str) -> bool:
        """Return whether a caller may know of changes of a resource."""
        try:
            self.offers.check_reader(caller, uri, self.turn)
        except (ResourceNotFound, RemoteProtocolError):
            return False
        return True

    def open_account(self, peer: Peer) -> Account:
        """Open an account of the memory budget for what is held for a client."""
        return self.options.memory.open(peer.connection, peer.principal)

    def open_outbox(self, peer: Peer = ANONYMOUS, size: int = 0) -> Outbox[Envelope]:
        """Return an outbox for messages to a client that counts what it holds; leaving its block closes it.

        Args:
            size: bytes that it takes with `QUEUE_SIZE` in it, and what exists for as long as it does; a call includes its outbox.
        """
        account = self.open_account(peer)
        if size:
            account.draw(size)
        return Outbox(self.options.outbox, account=account, size_of=sent_size, prepaid=QUEUE_SIZE)

    def declare(self, capabilities: ServerCapabilities) -> None:
        """Offer these capabilities from now on; called again when an item of a new kind is added while serving."""
        if capabilities.tools is not None:
            known = {**(capabilities.experimental or {}), IDEMPOTENCY: {"instance": self.calls.node}}
            capabilities = capabilities.model_copy(update={"experimental": known})
        self.capabilities = capabilities
        gates = {method.gate for revision in REVISIONS.values() for method in revision.requests.values()}
        closed = {gate for gate in gates if gate is not None and not declares(capabilities, gate)}
        # A table, because every request asks: the methods of each revision that are not gated, or whose gate is open.
        self.offered: dict[str, frozenset[str]] = {
            name: frozenset(method.name for method in revision.requests.values() if method.gate not in closed)
            for name, revision in REVISIONS.items()
        }

    def statistics(self) -> session.ServiceStatistics:
        """Return what runs and waits now, and how calls and replies ended."""
        return session.observing.ServiceStatistics(
            actors=self.supervisor.statistics(),
            open_questions=sum(actor.open_questions for actor in self.supervisor.actors),
            dropped=session.observing.ReplyStatistics(
                **{kind.value: self.calls.stray_replies[kind] for kind in StrayKind}
            ),
            threads=total_statistics(self.offers.threads) if self.offers.threads else None,
            memory=self.options.memory.statistics(),
            blocked=self.supervisor.watchdog.incidents,
            sessions=self.sessions,
            refusals=dict(quota.refusals),
            telemetry_failures=0 if self.calls.telemetry is None else self.calls.telemetry.failures,
        )

    def tree(self, *, limit: int = 100, max_branches: int = 500) -> session.tree.ServiceTree:
        """Return what runs now, as a tree: clients, their calls, and the branches of each call with what they wait for.

        It is a snapshot of plain values, for people and programs: `print(service.tree())` or `service.tree().to_json()`. It holds
        names and counts, no arguments, questions, answers or ids that could be used. Nothing is recorded for it in advance. Call
        it in the event loop that serves, between two awaits.

        Args:
            limit: how many calls are shown, and how many branches of each, the oldest first; the others are counted.
            max_branches: how many branches of all calls are shown. If there are more, those of calls with many are left out.

        Raises:
            ValueError: `limit` is below 1, or `max_branches` below 0.
        """
        check_int("limit", limit, least=1)
        return session.observing.tree_of(self, limit, check_int("max_branches", max_branches, least=0))

    async def drain(self, seconds: float, clean_up: float = 2.0, *, keeps_parked: bool = False) -> None:
        """Shut down: refuse new calls, give running ones `seconds`, then cancel them and answer their callers.

        Calls that wait for an answer are cancelled at once; they have `seconds`, too, if `keeps_parked` says that answers still
        come.

        Streams of changes end with their results, however few the seconds, unless they are not read (M-SUB-3s).
        """
        until = trio.current_time() + seconds
        self.supervisor.refuse_new(keeps_parked=keeps_parked)
        self.subscriptions.close()
        with trio.move_on_after(STREAM_END_TIMEOUT):
            await self.subscriptions.wait_streams_ended()
        await self.supervisor.drain(max(0, until - trio.current_time()), clean_up, keeps_parked=keeps_parked)

    def __repr__(self) -> str:
        return f"<Service {self.identity.name} {self.supervisor!r}>"


def new_node(options: ServiceOptions) -> str:
    """Return a name for a process."""
    # New at each start: a state that an earlier process has sealed is not one of this process.
    return "-".join(filter(None, (options.node, secrets.token_urlsafe(8))))


STREAM_END_TIMEOUT: Final = 0.5
"""Seconds for ending the streams of change notifications with their results."""

TASK_METHODS: Final = ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update")


@asynccontextmanager
async def open_service(
    offers: Offers, options: ServiceOptions | None = None, channel: MessageChannel | None = None
) -> AsyncIterator[Service]:
    """Open a service; leaving the block cancels the calls that still run, and waits for them all.

    It takes over the tasks of other processes: at once if they have ended, or within a few seconds when they end.

    Args:
        channel: the only connection that it will serve; None if there may be others.

    Raises:
        ConfigurationError: `TRIO_MCP_KEYS` holds no keys, or the store cannot be opened.
    """
    options = options or ServiceOptions()
    # Before any nursery, which would wrap the error.
    home, keys = options.home, options.keys or KeyRing.from_environment()
    workplace = WORKPLACE.get()
    if home is None and workplace is not None and not os.environ.get(STORE_VARIABLE):
        home, keys = workplace.store, keys or KeyRing.parse(workplace.keys_file.read_text())
    async with (
        open_store(home, keys, options.memory, offers.identity.name) as store,
        open_supervisor(options.actors, options.cancel_grace, options.watchdog) as supervisor,
    ):
        service = Service(supervisor, offers, options, keys, store, channel)
        with closing(service):
            supervisor.spawn(service.calls.directory.evict_in_time)
            if store.durable:
                await store.join(service.calls.node)
                await service.calls.processes.introduce()
                supervisor.spawn(service.calls.processes.stay_known)
                supervisor.spawn(tasks.adoption.adopt_all, service.tasks)
                if isinstance(store, SharedStore):
                    await service.share_changes(store)
                    service.rejoining = session.rejoining.Rejoining(service, store)
                    supervisor.spawn(service.rejoining.run)
            yield service
            with trio.CancelScope(shield=True):
                await supervisor.drain(0)
