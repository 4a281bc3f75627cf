"""A store in Redis: one thread for writes, one for look-ups, and one that renews the lease of this process."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, cast

from outcome import Error, capture

from ..base.logs import peer_logger
from ..base.named_tuples import NamedTuple
from ..errors import ConfigurationError
from ..storage import (
    Append,
    Change,
    EventsGone,
    Expect,
    Fenced,
    Forget,
    NoSuchEvent,
    Put,
    Record,
    Remove,
    StoreConflict,
    StoreError,
    notice_bytes,
)
from . import redis_scripts
from .batches import Outcomes
from .leased import LeasedStore, unusable
from .leases import LEASE_SECONDS, Renewal
from .listening import Subscription
from .redis_connection import Address, Argument, Command, RedisConnection, RedisSubscription

MOST_NUMBER: Final = 2**53
"""Numbers of entries are exact up to this one in a script."""
LEAST_VERSION: Final = {"redis": 7, "valkey": 8}

logger = peer_logger("trio_mcp.stores")


class Request(NamedTuple):
    """A command, and what makes a result of its answer."""

    command: Command
    result: Callable[[object], object]


class RedisStore(LeasedStore[Request]):
    """Keeps records and logs in Redis; opened by `open_redis`. Processes on several machines may use one server.

    A write that has returned survives the end of this process, and that of the server as far as its persistence goes.

    Args:
        clock: the time of this machine in Unix seconds.
    """

    def __init__(self, address: Address, clock: Callable[[], float]) -> None:
        self.address = address
        super().__init__(address.name, lambda: RedisRequests(address), clock)

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
        name = self.address.prefix + redis_scripts.name_of("r", *encoded(kind, key))
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

    async def nodes(self) -> Mapping[str, bytes]:
        """Return the living processes, like `SharedStore.nodes`."""
        found = cast("list[bytes]", await self._look_up(*self._script(redis_scripts.NODES)))
        return {node.decode(): about for node, about in zip(found[::2], found[1::2], strict=True)}

    async def announce(self, topic: str, content: bytes) -> None:
        """Send a notice to all that listen, like `SharedStore.announce`."""
        data = notice_bytes(topic, content)
        # Behind the writes, which it may be about.
        await self.writes.add(Request((b"PUBLISH", self._channel, data), same))

    @property
    def _channel(self) -> bytes:
        return self.address.prefix + b"notices"

    async def _look_up(self, *command: Argument) -> object:
        return await self.reads.add(Request(command, same))

    def _script(self, script: str, *arguments: Argument) -> Command:
        return (b"EVALSHA", digest(script), 1, self.address.prefix, *arguments)

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

    def _renewal(self, nodes: Mapping[str, bytes]) -> Request:
        said = [each for node, about in nodes.items() for each in (*encoded(node), about)]
        return Request(self._script(redis_scripts.RENEW, round(LEASE_SECONDS * 1000), *said), renewal_of)

    def _burial(self, node: str, until: float | None) -> Request:
        latest = b"" if until is None else repr(until * 1000).encode()
        return Request(self._script(redis_scripts.BURY, *encoded(node), latest), bool)

    def _subscribe(self) -> Subscription:
        return RedisSubscription(self.address, self._channel)

    def check_server(self) -> None:
        """Look at the server, and begin to count its time. Raises `ConfigurationError` if it cannot be used."""
        try:
            info = information(self._ask(Request((b"INFO",), same)))
        except StoreError as error:
            raise unusable(error) from None
        for problem in problems_of(info, self.address.name):
            logger.warning("%s", problem)
        self.begin()


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
    # The second is there only where a primary needs replicas.
    if info.get("connected_slaves", "0") != "0" and "min_slaves_good_slaves" not in info:
        problems.append(
            f"the store {name} has replicas and takes writes without them, which a fail-over loses, and then a step may run "
            "twice: set min-replicas-to-write to 1"
        )
    return problems


def information(answer: object) -> dict[str, str]:
    """Return what INFO says."""
    return dict(re.findall(r"^(\w+):(.*?)\r?$", cast("bytes", answer).decode(errors="replace"), re.MULTILINE))


class RedisRequests:
    """A connection that makes the results of requests from the answers to their commands."""

    def __init__(self, address: Address) -> None:
        self._connection = RedisConnection(address)
        self.close = self._connection.close

    def carried_out(self, requests: Sequence[Request], /) -> Outcomes:
        """Send requests as one pipeline, and return their results. Raises `StoreError`, as `RedisConnection.exchange` does."""
        answers = self._connection.exchange([request.command for request in requests])
        return [
            Error(answer) if isinstance(answer, StoreError) else capture(request.result, answer)
            for request, answer in zip(requests, answers, strict=True)
        ]


def renewal_of(answer: object) -> Renewal:
    now, *buried = cast("list[Any]", answer)
    return Renewal(now / 1000, [node.decode() for node in buried])


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
    async with store.running():
        yield store


def open_rediss(target: str) -> AbstractAsyncContextManager[RedisStore]:
    """Open a store in Redis over TLS, like `open_redis`."""
    return open_redis(f"rediss:{target}")


def open_redis_socket(target: str) -> AbstractAsyncContextManager[RedisStore]:
    """Open a store in Redis over the socket of a path, like `open_redis`."""
    return open_redis(f"unix:{target}")
