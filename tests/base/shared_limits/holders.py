"""Fills each of the shared limits, by whatever a caller does that counts in it.

`HOLDERS` has a context manager for each limit, or one for each way to hold what it counts. It sets the limit to `LIMIT` and gives
a function that lets a caller hold one more; that returns None, or the text of the refusal. In `KEEPERS` are the limits of what is
evicted: the function keeps one more thing of a caller, and returns how many are kept of whom. A caller is the name of a
principal; None is one that is alone.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Any, TypeAlias

import pytest
import trio
from asgi_peer import JSON_HEADERS, REFUSABLE, AsgiPeer, AsgiSocket, initialize, served
from peer import EVERYTHING
from proxy_requests import Attempt, fetched_clients, provider_requests
from talk import Talk, offering
from task_talk import LegacyTask, ModernTask
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Backfill, Context, RelayServer, Server, ServiceOptions, TaskOptions, proxy
from trio_mcp.base import shared_limits
from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.base.shared_limits import SharedLimit
from trio_mcp.errors import LimitExceeded
from trio_mcp.http import HttpLimits
from trio_mcp.protocol.jsonrpc import Encoded
from trio_mcp.runtime import Account, open_supervisor
from trio_mcp.server import registration
from trio_mcp.session import Limits, MemoryBudget, Peer, Service, find_transport
from trio_mcp.session.calls.directory import CallDirectory
from trio_mcp.session.calls.url_elicitations import SessionPages, UrlElicitations
from trio_mcp.session.keyed_calls import KeyTable
from trio_mcp.session.recovery.key_store import CallKey, Claim, KeyStore
from trio_mcp.session.recovery.settling import Settling
from trio_mcp.stores import Append, Forget, LogKey, MemoryEventStore, MemoryStore, Put, Record, StoreError, StoreFull
from trio_mcp.stores.adapters import StoredEvents
from trio_mcp.types import ElicitResult
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.hypercorn.connections import Connections

LIMIT = 8

Hold: TypeAlias = Callable[[str | None], Awaitable[str | None]]
Keep: TypeAlias = Callable[[str | None], Mapping[str | None, int]]
PAGES = {**EVERYTHING, "elicitation": {"form": {}, "url": {}}}


async def wait() -> None:
    await trio.sleep_forever()


async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Well?", bool)).action


async def visit(ctx: Context) -> str:
    return (await ctx.elicit_url("Go there", "https://example.com")).action


class Callers:
    """The connections of callers to one service in memory, each opened when its caller first comes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._talks: dict[str | None, Talk] = {}
        self.numbers = itertools.count()

    def connect(self, caller: str | None) -> Talk:
        """Return one more connection of the caller."""
        return Talk(self._service, principal=caller, account=self._service.open_account(Peer(caller)))

    async def of(self, caller: str | None, *, opens: bool = False) -> Talk:
        if caller not in self._talks:
            self._talks[caller] = self.connect(caller)
            if opens:
                await self._talks[caller].initialize()
        return self._talks[caller]


@contextmanager
def limited(limit: SharedLimit, size: int = 1) -> Iterator[None]:
    """Let a shared limit have room for `LIMIT` things of this size in the module that keeps it."""
    modules = [
        each for name, each in [*sys.modules.items()] if name.startswith("trio_mcp.") and each is not shared_limits
    ]
    ((module, name),) = [(each, name) for each in modules for name, value in vars(each).items() if value is limit]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, limit._replace(limit=size * LIMIT))
        yield


async def refusal(talk: Talk) -> str | None:
    """Return the text of the error that has come, if one has."""
    await wait_all_tasks_blocked()
    for message in talk.waiting():
        if "error" in message:
            return str(message["error"]["message"])
        if message.get("result", {}).get("isError"):
            return str(message["result"]["content"][0]["text"])
    return None


@asynccontextmanager
async def callers(**options: Any) -> AsyncIterator[Callers]:
    server = offering(wait, ask, visit, **options)
    server.tool(wait, name="work", task=True)
    server.resource("a:all")(lambda: "")
    async with server.open_service() as service:
        yield Callers(service)


@asynccontextmanager
async def calling(tool: str, **options: Any) -> AsyncIterator[Hold]:
    """Hold a call of a tool of a modern client."""
    async with callers(**options) as known:

        async def hold(caller: str | None) -> str | None:
            talk = await known.of(caller)
            talk.leg(tool, capabilities=PAGES)
            return await refusal(talk)

        yield hold


@asynccontextmanager
async def threads() -> AsyncIterator[Hold]:
    free = threading.Event()

    def work() -> None:
        free.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration, "MAX_THREADS", LIMIT)
        async with offering(work).open_service() as service:
            known = Callers(service)

            async def hold(caller: str | None) -> str | None:
                talk = await known.of(caller)
                call = talk.leg("work")
                await wait_all_tasks_blocked()
                if not service.statistics().threads.waiting:
                    return None
                # No caller reads why: its call waits.
                talk.cancel(call)
                await wait_all_tasks_blocked()
                return f"{shared_limits.THREADS.what}: {LIMIT}, a quarter of it: {LIMIT // 4}"

            try:
                yield hold
            finally:
                free.set()


@asynccontextmanager
async def calling_limited(*before: str, **options: int) -> AsyncIterator[Hold]:
    """Hold a call of a tool with these limits, which these callers call before."""
    server = Server("s", version="1")
    server.tool(wait, **options)
    async with server.open_service() as service:
        known = Callers(service)

        async def hold(caller: str | None) -> str | None:
            talk = await known.of(caller)
            talk.leg("wait")
            return await refusal(talk)

        for caller in before:
            await hold(caller)
        yield hold


@asynccontextmanager
async def open_tasks() -> AsyncIterator[Hold]:
    async with callers(tasks=TaskOptions(open=LIMIT)) as known:

        async def hold(caller: str | None) -> str | None:
            talk = await known.of(caller)
            ModernTask(talk).create("work")
            return await refusal(talk)

        yield hold


@asynccontextmanager
async def waiting_for_tasks() -> AsyncIterator[Hold]:
    async with callers(tasks=TaskOptions(waiting=LIMIT)) as known:
        tasks: dict[str | None, LegacyTask] = {}

        async def hold(caller: str | None) -> str | None:
            if caller not in tasks:
                tasks[caller] = LegacyTask(await known.of(caller, opens=True))
                await tasks[caller].start("work")
            tasks[caller].about("tasks/result")
            return await refusal(tasks[caller].talk)

        yield hold


def subscribe(talk: Talk, uri: str) -> None:
    talk.request("resources/subscribe", {"uri": uri})


def listen(talk: Talk, uri: str) -> None:
    talk.ask("subscriptions/listen", notifications={"resourceSubscriptions": [uri]})


@asynccontextmanager
async def subscribing(
    limit: SharedLimit, size: int, subscribe: Callable[[Talk, str], None], *, legacy: bool = False
) -> AsyncIterator[Hold]:
    """Hold a subscription to a resource; this limit has room for `LIMIT` things of this size."""
    with limited(limit, size):
        async with callers() as known:

            async def hold(caller: str | None) -> str | None:
                talk = await known.of(caller, opens=legacy)
                subscribe(talk, f"a:{next(known.numbers):02}")
                return await refusal(talk)

            yield hold


@asynccontextmanager
async def awaited_pages() -> AsyncIterator[Hold]:
    with limited(shared_limits.AWAITED_PAGES):
        async with calling("visit") as hold:
            yield hold


@asynccontextmanager
async def stored_outcomes() -> AsyncIterator[Hold]:
    records, numbers = RepeatedRecords(peer_logger(__name__)), itertools.count()
    with limited(shared_limits.STORED_OUTCOMES):
        async with open_supervisor() as supervisor:
            unsettled = Settling(supervisor, MemoryBudget(), records)
            keys = KeyStore(MemoryStore(), lambda: "node", 60.0, records, supervisor, unsettled)

            async def hold(caller: str | None) -> str | None:
                claim = await keys.claim(CallKey(str(next(numbers)).encode(), b"", None, caller))
                assert isinstance(claim, Claim)
                # No caller reads why: its call has its result, which is only not stored.
                is_stored = keys.over(claim, Encoded(b" ")).stored.outcome is not None
                return (
                    None
                    if is_stored
                    else f"{shared_limits.STORED_OUTCOMES.what}: {LIMIT}, a quarter of it: {LIMIT // 4}"
                )

            yield hold


@asynccontextmanager
async def stored_records() -> AsyncIterator[Hold]:
    store, keys = MemoryStore(records=LIMIT), itertools.count()

    async def hold(caller: str | None) -> str | None:
        try:
            await store.write([Put(Record("thing", str(next(keys)), b"", caller or ""))])
        except StoreFull as error:
            return str(error)
        return None

    yield hold
    store.close()


@asynccontextmanager
async def unsettled() -> AsyncIterator[Hold]:
    async def fail() -> None:
        raise StoreError

    with limited(shared_limits.UNSETTLED):
        async with Server("s", version="1").open_service() as service:
            records = service.calls.settling

            async def hold(caller: str | None) -> str | None:
                try:
                    records.check_room(caller)
                except LimitExceeded as error:
                    return str(error)
                records.begin(fail, caller)
                return None

            yield hold


@asynccontextmanager
async def connections() -> AsyncIterator[Hold]:
    opened, memory = Connections(LIMIT), MemoryBudget()

    async def hold(caller: str | None) -> str | None:
        connection: Any = object()
        return opened.admit(connection, memory.open(), caller)

    yield hold
    opened.records.close()


@asynccontextmanager
async def followed_resources() -> AsyncIterator[Hold]:
    outer, far, numbers = Server("outer", version="1"), Server("far", version="1"), itertools.count()
    far.resource("a:{name}")(lambda name: name)
    outer.mount("f", proxy(far))
    with limited(shared_limits.FOLLOWED_RESOURCES):
        async with outer.open_service() as service:
            known = Callers(service)

            async def hold(caller: str | None) -> str | None:
                talk = await known.of(caller, opens=True)
                talk.request("resources/subscribe", {"uri": f"a:f/{next(numbers):02}"})
                return await refusal(talk)

            yield hold


@asynccontextmanager
async def host_connections() -> AsyncIterator[Hold]:
    outer, far = Server("outer", version="1"), Server("far", version="1")
    far.tool(wait)
    outer.mount("f", proxy(far, max_sessions=LIMIT))
    async with outer.open_service() as service:
        known = Callers(service)

        async def hold(caller: str | None) -> str | None:
            # A host is a session, and each of them needs a connection.
            talk = known.connect(caller)
            await talk.initialize()
            talk.call("f_wait")
            return await refusal(talk)

        yield hold


@asynccontextmanager
async def relaying(
    tool: Callable[..., Awaitable[object]], backfill: Backfill, *, legacy: bool = False, **options: Any
) -> AsyncIterator[Hold]:
    """Hold a call of a tool behind a proxy with these `ServiceOptions`, each in another session of the caller."""
    relay = RelayServer(partial(find_transport("memory").connect, offering(tool)), backfill, ServiceOptions(**options))
    async with relay.open_service() as service:
        known = Callers(service)

        async def hold(caller: str | None) -> str | None:
            talk = known.connect(caller)
            if legacy:
                await talk.initialize(capabilities={})
                talk.call(tool.__name__)
            else:
                talk.leg(tool.__name__, capabilities={})
            return await refusal(talk)

        yield hold


async def answer_never(_: object) -> ElicitResult:
    await trio.sleep_forever()
    raise AssertionError


ANSWERING = Backfill(on_form=answer_never, max_answering=LIMIT)


# over HTTP


async def authenticate(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-user")


@asynccontextmanager
async def over_http(open_one: Callable[[AsgiPeer, dict[str, str]], Awaitable[str | None]]) -> AsyncIterator[Hold]:
    """Hold what `open_one` opens with these headers; it returns the text of its refusal."""
    limits = HttpLimits(sessions=LIMIT, websockets=LIMIT)
    app = asgi_app(Server("s", version="1"), authenticate=authenticate, limits=limits, sse_path="/sse")
    async with served(app) as peer:

        async def hold(caller: str | None) -> str | None:
            return await open_one(peer, {**JSON_HEADERS, "x-user": str(caller)})

        yield hold


async def open_session(peer: AsgiPeer, headers: dict[str, str]) -> str | None:
    reply = await peer.post(initialize({}), headers)
    if reply.status != 200:
        return str(reply.json["error"]["message"])
    # One that was only opened makes room for others.
    session = {**headers, "mcp-session-id": reply.headers["mcp-session-id"]}
    for number in range(2):
        assert (await peer.post({"jsonrpc": "2.0", "id": number, "method": "ping"}, session)).status == 200
    return None


async def open_stream(peer: AsgiPeer, headers: dict[str, str]) -> str | None:
    reply = peer.start(b"", {**headers, "accept": "text/event-stream"}, method="GET", path="/sse")
    await wait_all_tasks_blocked()
    return None if reply.status == 200 else str(reply.json["error"]["message"])


async def open_websocket(peer: AsgiPeer, headers: dict[str, str]) -> str | None:
    socket = AsgiSocket(peer.app, headers, extensions=REFUSABLE)
    peer.nursery.start_soon(socket.run)
    await wait_all_tasks_blocked()
    return None if socket.sent[0]["type"] == "websocket.accept" else str(socket.sent[1]["body"])


@asynccontextmanager
async def attempting(limit: SharedLimit, opened: Callable[[], AbstractContextManager[Attempt]]) -> AsyncIterator[Hold]:
    """Hold what this does until it is cancelled, or returns why it is refused."""
    with limited(limit), opened() as attempt:
        async with trio.open_nursery() as nursery:

            async def hold(caller: str | None) -> str | None:
                refused: list[str] = []

                async def noted() -> None:
                    refused.append(await attempt(caller))

                nursery.start_soon(noted)
                await wait_all_tasks_blocked()
                return refused[0] if refused else None

            yield hold
            nursery.cancel_scope.cancel()


HOLDERS: Sequence[tuple[SharedLimit, Callable[[], AbstractAsyncContextManager[Hold]]]] = [
    (shared_limits.RUNNING_CALLS, lambda: calling("wait", actors=Limits(actors=LIMIT))),
    (shared_limits.RUNNING_CALLS, lambda: relaying(wait, Backfill(), actors=Limits(actors=LIMIT))),
    (shared_limits.PARKED_CALLS, lambda: calling("ask", actors=Limits(parked=LIMIT))),
    (shared_limits.THREADS, threads),
    (shared_limits.TOOL_PLACES, lambda: calling_limited(limit=LIMIT)),
    (shared_limits.TOOL_QUEUE, lambda: calling_limited("first", limit=1, queue=LIMIT)),
    (shared_limits.OPEN_TASKS, open_tasks),
    (shared_limits.WAITING_FOR_TASKS, waiting_for_tasks),
    (shared_limits.SUBSCRIPTIONS, lambda: subscribing(shared_limits.SUBSCRIPTIONS, 1, subscribe, legacy=True)),
    (shared_limits.SUBSCRIPTIONS, lambda: subscribing(shared_limits.SUBSCRIPTIONS, 1, listen)),
    (
        shared_limits.SUBSCRIBED_CHARACTERS,
        lambda: subscribing(shared_limits.SUBSCRIBED_CHARACTERS, len("a:00"), subscribe, legacy=True),
    ),
    (
        shared_limits.SUBSCRIBED_CHARACTERS,
        lambda: subscribing(shared_limits.SUBSCRIBED_CHARACTERS, len("a:00"), listen),
    ),
    (shared_limits.AWAITED_PAGES, awaited_pages),
    (shared_limits.STORED_OUTCOMES, stored_outcomes),
    (shared_limits.UNSETTLED, unsettled),
    (shared_limits.SESSIONS, lambda: over_http(open_session)),
    (shared_limits.SSE_STREAMS, lambda: over_http(open_stream)),
    (shared_limits.WEBSOCKETS, lambda: over_http(open_websocket)),
    (shared_limits.CONNECTIONS, connections),
    (shared_limits.HOST_CONNECTIONS, host_connections),
    (shared_limits.FOLLOWED_RESOURCES, followed_resources),
    (shared_limits.ANSWERED_QUESTIONS, lambda: relaying(ask, ANSWERING, legacy=True)),
    (shared_limits.ANSWERED_QUESTIONS, lambda: relaying(ask, ANSWERING)),
    (shared_limits.STORED_RECORDS, stored_records),
    (shared_limits.FETCHED_CLIENTS, lambda: attempting(shared_limits.FETCHED_CLIENTS, fetched_clients)),
    (shared_limits.PROVIDER_REQUESTS, lambda: attempting(shared_limits.PROVIDER_REQUESTS, provider_requests)),
]

NEVER_ALONE = {
    *(shared_limits.SESSIONS, shared_limits.SSE_STREAMS, shared_limits.WEBSOCKETS, shared_limits.STORED_OUTCOMES),
    *(shared_limits.EVENTS, shared_limits.EVENT_BYTES, shared_limits.STORED_EVENT_BYTES),
}
"""Limits of servers with many connections, and one in which all callers without a principal are one."""


# what is evicted


@asynccontextmanager
async def finished(limit: SharedLimit, size: int) -> AsyncIterator[Keep]:
    with limited(limit, size), closing(CallDirectory[str, str](60, MemoryBudget())) as calls:
        names: dict[str, str | None] = {}

        def keep(caller: str | None) -> Mapping[str | None, int]:
            name = calls.add("call")
            names[name] = caller
            calls.finish(name, "ended", size, caller)
            return Counter(caller for name, caller in names.items() if calls.find(name) is not None)

        yield keep


@asynccontextmanager
async def keyed(limit: SharedLimit, size: int, *, grace: float = 60) -> AsyncIterator[Keep]:
    """Keep the outcome of a call under a key, of this size; without a grace period only the key."""
    with limited(limit, size), closing(KeyTable(grace, MemoryBudget())) as calls:
        keys: list[CallKey] = []

        def keep(caller: str | None) -> Mapping[str | None, int]:
            key = CallKey(str(len(keys)).encode(), b"", None, caller)
            keys.append(key)
            calls.begin(key).end_as_task(None, Encoded(b" " * size))
            find = calls.find if grace else calls.was_used
            return Counter(key.owner for key in keys if find(key))

        yield keep


@asynccontextmanager
async def replayed() -> AsyncIterator[Keep]:
    with limited(shared_limits.REPLAYED_STATES), closing(CallDirectory[str, str](60, MemoryBudget())) as calls:
        names: dict[str, str | None] = {}

        def keep(caller: str | None) -> Mapping[str | None, int]:
            name = str(len(names))
            names[name] = caller
            calls.register_replayed(name, "call", "node", 1, caller)
            return Counter(caller for name, caller in names.items() if calls.was_replayed(name, "node", 1))

        yield keep


@asynccontextmanager
async def left_pages() -> AsyncIterator[Keep]:
    with limited(shared_limits.LEFT_PAGES):
        pages, memory = UrlElicitations(), MemoryBudget()
        accounts: list[tuple[str | None, Account]] = []

        def keep(caller: str | None) -> Mapping[str | None, int]:
            account = memory.open(None, caller)
            accounts.append((caller, account))
            SessionPages(pages, account, lambda _: None).add(str(len(accounts)))
            return Counter(caller for caller, account in accounts if account.drawn)

        yield keep


@asynccontextmanager
async def events_in_memory(**limits: int) -> AsyncIterator[Keep]:
    store = MemoryEventStore(memory=MemoryBudget(), **limits)
    numbers = itertools.count()

    def keep(caller: str | None) -> Mapping[str | None, int]:
        store.append_nowait(LogKey(caller, str(next(numbers)), 1), 1, [b" "])
        return Counter(stream.principal for stream in store._streams)  # noqa: SLF001

    yield keep


@asynccontextmanager
async def stored_events(**limits: int) -> AsyncIterator[Keep]:
    events = StoredEvents(MemoryStore(memory=MemoryBudget()), **limits)
    streams, numbers = dict[str, str | None](), itertools.count()

    def keep(caller: str | None) -> Mapping[str | None, int]:
        key = LogKey(caller, str(next(numbers)), 1)
        appended, *removed = events.appending(key, 1, [b" "])
        assert isinstance(appended, Append)
        streams[appended.key] = caller
        for change in removed:
            assert isinstance(change, Forget)
            del streams[change.key]
        return Counter(streams.values())

    yield keep


KEEPERS: Mapping[SharedLimit, Callable[[], AbstractAsyncContextManager[Keep]]] = {
    shared_limits.LEFT_PAGES: left_pages,
    shared_limits.KEYED_OUTCOMES: lambda: keyed(shared_limits.KEYED_OUTCOMES, 1),
    shared_limits.KEYED_OUTCOME_BYTES: lambda: keyed(shared_limits.KEYED_OUTCOME_BYTES, 100_000),
    shared_limits.USED_KEYS: lambda: keyed(shared_limits.USED_KEYS, 1, grace=0),
    shared_limits.FINISHED_CALLS: lambda: finished(shared_limits.FINISHED_CALLS, 1),
    shared_limits.FINISHED_BYTES: lambda: finished(shared_limits.FINISHED_BYTES, 100_000),
    shared_limits.REPLAYED_STATES: replayed,
    shared_limits.EVENTS: lambda: events_in_memory(total_events=LIMIT),
    shared_limits.EVENT_BYTES: lambda: events_in_memory(total_bytes=LIMIT),
    shared_limits.STORED_EVENT_BYTES: lambda: stored_events(total_bytes=LIMIT),
}
