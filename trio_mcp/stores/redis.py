"""A store in Redis: one thread for writes, one for look-ups, and one that renews the lease of this process."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final, NamedTuple, cast

import trio
from outcome import Error, capture

from ..base.groups import UnwrappedErrors
from ..base.logs import peer_logger
from ..errors import ConfigurationError
from ..storage import (
    Append,
    Change,
    EventsGone,
    Expect,
    Fenced,
    Forget,
    Missed,
    NoSuchEvent,
    Notice,
    Put,
    Record,
    Remove,
    StoreConflict,
    StoreError,
    notice_bytes,
)
from . import redis_scripts
from .batches import Batches, Outcomes
from .leases import LEASE_SECONDS, Leases, Renewal, running
from .listening import Listening
from .redis_connection import Address, Argument, Command, RedisConnection, RedisSubscription

MOST_AT_ONCE: Final = 64
MOST_BYTES: Final = 1024 * 1024
"""What one pipeline has at most, or one write if that is larger."""
MOST_NUMBER: Final = 2**53
"""Numbers of entries are exact up to this one in a script."""
LEAST_VERSION: Final = {"redis": 7, "valkey": 8}

logger = peer_logger("trio_mcp.stores")


class Request(NamedTuple):
    """A command, and what makes a result of its answer."""

    command: Command
    result: Callable[[object], object]


class RedisStore:
    """Keeps records and logs in Redis; opened by `open_redis`. Processes on several machines may use one server.

    A write that has returned survives the end of this process, and that of the server as far as its persistence goes.

    Args:
        clock: the time of this machine in Unix seconds.
    """

    durable = True

    def __init__(self, address: Address, clock: Callable[[], float]) -> None:
        self.address = address
        self.prefix = address.prefix
        self._clock = clock
        writer, reader = RedisConnection(address), RedisConnection(address)
        self.writes = self._batches(writer)
        self.reads = self._batches(reader)
        self._lease_connection = RedisConnection(address)
        self.leases = Leases(address.name, self._renew, self._leave, clock)

    def _batches(self, connection: RedisConnection) -> Batches[Request]:
        work = partial(carried_out, connection)
        return Batches(self.address.name, work, connection.close, most=MOST_AT_ONCE, most_bytes=MOST_BYTES)

    @property
    def lapses(self) -> int:
        """How often this process was buried, like `Store.lapses`."""
        return self.leases.lapses

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes or none, like `Store.write`."""
        nodes = [node.encode() for node in self.leases.nodes]
        try:
            arguments = [argument for change in changes for argument in self._arguments(change)]
        except UnicodeEncodeError as error:
            raise StoreError(f"this cannot be stored: {error}") from None
        command = self._script(redis_scripts.WRITE, len(nodes), *nodes, *arguments)
        await self.writes.add(Request(command, made), sum(len(each) for each in arguments if isinstance(each, bytes)))

    async def read(self, kind: str, key: str) -> Record | None:
        """Return a record, like `Store.read`."""
        name = self.prefix + redis_scripts.name_of("r", *encoded(kind, key))
        v, x, o, d = cast("list[bytes | None]", await self._look_up(b"HMGET", name, b"v", b"x", b"o", b"d"))
        return None if v is None else self._record(kind, key, v, cast("bytes", x), cast("bytes", o), cast("bytes", d))

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        """Return records in the order of their keys, like `Store.list`."""
        whose = "" if owner is None else f":{owner}"
        found = await self._look_up(*self._script(redis_scripts.LIST, *encoded(kind, whose, after), limit))
        rows = cast("Sequence[tuple[bytes, bytes, bytes, bytes, bytes]]", found)
        return [self._record(kind, key.decode(), *values) for key, *values in rows]

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        """Return entries of a log, like `Store.entries`."""
        number = min(after, MOST_NUMBER)
        found = await self._look_up(*self._script(redis_scripts.ENTRIES, *encoded(kind, key), number, limit))
        if found == b"gone":
            raise EventsGone(f"the entries after number {after} of this log are no longer kept")
        if found == b"none":
            raise NoSuchEvent(f"this log has no entry {after}")
        return cast("list[bytes]", found)

    async def join(self, node: str, about: bytes = b"") -> None:
        """Say that this process lives under that name, like `SharedStore.join`."""
        encoded(node)
        # In its turn behind the writes under the names before.
        answer = await self.writes.add(Request(self._renewal({**self.leases.nodes, node: about}), same))
        buried = buried_in(answer)
        self.leases.note_buried(name for name in buried if name != node)
        if node in buried:
            raise Fenced(f"a process of the name {node!r:.80} was taken for dead: use another name")
        self.leases.joined(node, about)

    async def is_alive(self, node: str) -> bool:
        """Return whether a process may still write, like `Store.is_alive`."""
        return not await self.bury(node)

    async def bury(self, node: str) -> bool:
        """Take a process for dead whose lease has lapsed, like `SharedStore.bury`."""
        may_bury = b"1" if self.leases.may_bury() else b"0"
        return await self._look_up(*self._script(redis_scripts.BURY, *encoded(node), may_bury)) == 1

    async def nodes(self) -> Mapping[str, bytes]:
        """Return the living processes, like `SharedStore.nodes`."""
        found = cast("list[bytes]", await self._look_up(*self._script(redis_scripts.NODES)))
        return {node.decode(): about for node, about in zip(found[::2], found[1::2], strict=True)}

    async def announce(self, topic: str, content: bytes) -> None:
        """Send a notice to all that listen, like `SharedStore.announce`."""
        data = notice_bytes(topic, content)
        # Behind the writes, which it may be about.
        await self.writes.add(Request((b"PUBLISH", self._channel, data), same))

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[AsyncIterator[Notice | Missed]]:
        """Return the notices from now on, like `SharedStore.listen`."""
        listening = Listening(lambda: RedisSubscription(self.address, self._channel))
        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                await nursery.start(listening.run)
                try:
                    yield listening
                finally:
                    listening.stop()

    def __repr__(self) -> str:
        return f"<RedisStore {self.address.name} namespace={self.address.namespace!r} waiting={len(self.writes)}>"

    @property
    def _channel(self) -> bytes:
        return self.prefix + b"notices"

    async def _look_up(self, *command: Argument) -> object:
        return await self.reads.add(Request(command, same))

    def _script(self, script: str, *arguments: Argument) -> Command:
        return (b"EVALSHA", digest(script), 1, self.prefix, *arguments)

    def _arguments(self, change: Change) -> Sequence[Argument]:
        match change:
            case Put(record):
                ttl, expiry = self._expiry(record.expires_at)
                kind, key, owner = record.kind.encode(), record.key.encode(), record.owner.encode()
                return (b"P", kind, key, record.version, ttl, expiry, owner, record.value)
            case Remove(kind, key, version):
                return (b"R", kind.encode(), key.encode(), b"" if version is None else version)
            case Expect(kind, key, version):
                return (b"E", kind.encode(), key.encode(), version)
            case Append(kind, key, first, entries, expires_at, keep):
                ttl, _ = self._expiry(expires_at)
                kept = b"" if keep is None else keep
                return (b"A", kind.encode(), key.encode(), first, ttl, kept, len(entries), *entries)
            case Forget(kind, key):
                return (b"F", kind.encode(), key.encode())

    def _expiry(self, at: float) -> tuple[Argument, bytes]:
        """Return in how many milliseconds something expires, and when by the clock of the store."""
        if at == math.inf:
            return b"", b"inf"
        return math.ceil((at - self._clock()) * 1000), repr(at + self.leases.offset).encode()

    def _record(self, kind: str, key: str, version: bytes, expiry: bytes, owner: bytes, value: bytes) -> Record:
        return Record(kind, key, value, owner.decode(), float(expiry) - self.leases.offset, int(version))

    # in the thread of the leases

    def _renewal(self, nodes: Mapping[str, bytes]) -> Command:
        said = [each for node, about in nodes.items() for each in (node.encode(), about)]
        return self._script(redis_scripts.RENEW, round(LEASE_SECONDS * 1000), *said)

    def _renew(self, nodes: Mapping[str, bytes]) -> Renewal:
        answer = self._ask(self._renewal(nodes))
        return Renewal(cast("list[int]", answer)[0] / 1000, buried_in(answer))

    def _leave(self) -> None:
        try:
            for node in self.leases.nodes:
                self._ask(self._script(redis_scripts.BURY, node.encode(), b"own"))
        except StoreError as error:
            logger.warning("the store does not know that this process has ended, and waits for its lease: %s", error)
        self._lease_connection.close()

    def _ask(self, command: Command) -> object:
        (answer,) = carried_out(self._lease_connection, [Request(command, same)])
        return answer.unwrap()

    def check_server(self) -> None:
        """Look at the server, and begin to count its time. Raises `ConfigurationError` if it cannot be used."""
        try:
            info = information(cast("bytes", self._ask((b"INFO",))))
            self.leases.renew()
        except StoreError as error:
            raise ConfigurationError(f"{error}. Start the server, or name another store") from None
        for problem in problems_of(info, self.address.name):
            logger.warning("%s", problem)


def problems_of(info: Mapping[str, str], name: str) -> list[str]:
    """Return what may lose data in a server. Raises `ConfigurationError` if it is too old."""
    product = "valkey" if "valkey_version" in info else "redis"
    version = info.get(f"{product}_version", "0")
    if int(version.partition(".")[0]) < LEAST_VERSION[product]:
        raise ConfigurationError(
            f"the store {name} is {product} {version}: Redis 7, Valkey 8 or a newer version is needed"
        )
    if info.get("role") == "slave":
        raise ConfigurationError(f"the store {name} is a replica, which takes no writes: name the primary")
    problems = []
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        problems.append(
            f"the store {name} evicts records when its memory is full (maxmemory-policy {policy}), and with them tasks, "
            "sessions and idempotency keys: set maxmemory-policy to noeviction"
        )
    return problems


def information(answer: bytes) -> dict[str, str]:
    """Return what INFO says."""
    return dict(re.findall(r"^(\w+):(.*?)\r?$", answer.decode(errors="replace"), re.MULTILINE))


def carried_out(connection: RedisConnection, requests: Sequence[Request]) -> Outcomes:
    """Send requests as one pipeline, and return their results."""
    answers = connection.exchange([request.command for request in requests])
    return [
        Error(answer) if isinstance(answer, StoreError) else capture(request.result, answer)
        for request, answer in zip(requests, answers, strict=True)
    ]


def buried_in(answer: object) -> list[str]:
    """Return the processes that were buried of those whose leases were to be renewed."""
    return [node.decode() for node in cast("list[bytes]", answer)[1:]]


def same(answer: object) -> object:
    return answer


def made(answer: object) -> None:
    """Raise unless a write was made."""
    if answer == redis_scripts.CONFLICT:
        raise StoreConflict("a record has another version than a change expects")
    if answer == redis_scripts.FENCED:
        raise Fenced("another process has taken this one for dead, and nothing that it writes is stored")


def encoded(*texts: str) -> list[bytes]:
    """Return texts as bytes. Raises `StoreError` for one that no key can be."""
    try:
        return [text.encode() for text in texts]
    except UnicodeEncodeError as error:
        raise StoreError(f"this cannot be looked for: {error}") from None


_DIGESTS: Final = {script: hashlib.sha1(script.encode()).hexdigest().encode() for script in redis_scripts.ALL}  # noqa: S324


def digest(script: str) -> bytes:
    """Return how Redis names a script."""
    return _DIGESTS[script]


def address_of(target: str) -> Address:
    """Return the address that a URL names, whose scheme "redis:" may be missing. Raises `ConfigurationError`."""
    return Address(f"redis:{target}" if target.startswith("//") else target)


@asynccontextmanager
async def open_redis(target: str, *, clock: Callable[[], float] = time.time) -> AsyncIterator[RedisStore]:
    """Open a store in Redis; leaving the block writes what waits, and says that this process has ended.

    Args:
        target: the URL, whose scheme "redis:" may be missing; `?namespace=` tells servers apart that share it.
        clock: the time in Unix seconds.

    Raises:
        ConfigurationError: the server cannot be used.
    """
    store = RedisStore(address_of(target), clock)
    await trio.to_thread.run_sync(store.check_server)
    async with running(store.leases, store.writes, store.reads):
        yield store


def open_rediss(target: str) -> AbstractAsyncContextManager[RedisStore]:
    """Open a store in Redis over TLS, like `open_redis`."""
    return open_redis(f"rediss:{target}")


def open_redis_socket(target: str) -> AbstractAsyncContextManager[RedisStore]:
    """Open a store in Redis over the socket of a path, like `open_redis`."""
    return open_redis(f"unix:{target}")
