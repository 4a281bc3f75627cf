"""A durable store with everything in it sealed, and with a time limit for everything that it does."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, Self

import trio

from ..base.logs import peer_logger
from ..errors import ConfigurationError
from ..protocol.sealing.at_rest import Unsealable, Vault
from ..storage import (
    Append,
    Change,
    Fenced,
    Missed,
    Notice,
    Put,
    Record,
    SharedStore,
    Store,
    StoreTimeout,
    UnreadableRecord,
)

logger = peer_logger("trio_mcp.stores")

SECONDS: Final = 5.0
"""How long the store may take for anything."""
MOST_SET_ASIDE: Final = 1000
"""Records that cannot be opened and are remembered as logged."""


class SealedStore:
    """Passes everything on to another store: values sealed, and the names of owners as digests.

    Args:
        store: what keeps it.
        name: of the store, for errors.
        seconds: how long it may take for anything.
    """

    def __init__(self, store: Store, vault: Vault, name: str, seconds: float = SECONDS) -> None:
        self._store = store
        self._vault = vault
        self._name = name
        self._seconds = seconds
        self._set_aside_before: dict[tuple[str, str], None] = {}
        self.on_done: Callable[[str, float], None] | None = None
        """Called with the name of each operation and the seconds that it took, for metrics."""

    @property
    def durable(self) -> bool:
        """Whether it outlives the process."""
        return self._store.durable

    @property
    def lapses(self) -> int:
        """How often this process was not seen to live, like `Store.lapses`."""
        return self._store.lapses

    @contextmanager
    def _within(self, operation: str) -> Generator[None]:
        """Cancel the block when the store takes too long, and report how long it took."""
        began = time.perf_counter()
        try:
            with trio.move_on_after(self._seconds):
                yield
        finally:
            if self.on_done is not None:
                self.on_done(operation, time.perf_counter() - began)

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes or none, like `Store.write`."""
        sealed = [self._sealed(change) for change in changes]
        with self._within("write"):
            return await self._store.write(sealed)
        raise self._timeout("keep something")

    async def read(self, kind: str, key: str) -> Record | None:
        """Return a record, like `Store.read`."""
        with self._within("read"):
            record = await self._store.read(kind, key)
            try:
                return None if record is None else self._opened(record)
            except Unsealable as error:
                self._set_aside(kind, {key: str(error)})
                raise UnreadableRecord(f"the {kind} {key!r:.80} cannot be opened: {error}") from None
        raise self._timeout("find something")

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        """Return records in the order of their keys, like `Store.list`."""
        # With several keys there are several names for one owner.
        names = [None] if owner is None else [owner] if not owner else self._vault.names(owner)
        found = [record for name in names for record in await self._list(kind, owner, name, after, limit)]
        return sorted(found, key=lambda record: record.key)[:limit]

    async def _list(self, kind: str, owner: str | None, name: str | None, after: str, limit: int) -> Sequence[Record]:
        """Return records of the owner who is stored under that name."""
        opened: list[Record] = []
        closed: dict[str, str] = {}
        # Keep paging: an unreadable page must not end the list.
        while len(opened) < limit:
            page = await self._page(kind, name, after, limit)
            for record in page:
                try:
                    opened.append(self._opened(record, owner))
                except Unsealable as error:
                    closed[record.key] = str(error)
            if len(page) < limit:
                break
            after = page[-1].key
        self._set_aside(kind, closed)
        return opened[:limit]

    async def _page(self, kind: str, name: str | None, after: str, limit: int) -> Sequence[Record]:
        with self._within("list"):
            return await self._store.list(kind, owner=name, after=after, limit=limit)
        raise self._timeout("list something")

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        """Return entries of a log, like `Store.entries`."""
        with self._within("entries"):
            sealed = await self._store.entries(kind, key, after, limit)
            try:
                return [
                    self._vault.open(entry, entry_place(kind, key, number))
                    for number, entry in enumerate(sealed, after + 1)
                ]
            except Unsealable as error:
                raise UnreadableRecord(f"the log {key!r:.80} of kind {kind} cannot be opened: {error}") from None
        raise self._timeout("read a log")

    async def join(self, node: str) -> None:
        """Say that this process lives under that name, like `Store.join`."""
        with trio.move_on_after(self._seconds):
            return await self._store.join(node)
        raise self._timeout("join")

    async def is_alive(self, node: str) -> bool:
        """Return whether the process of that name lives, like `Store.is_alive`."""
        with trio.move_on_after(self._seconds):
            return await self._store.is_alive(node)
        raise self._timeout("look for a process")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._store!r}>"

    def _sealed(self, change: Change) -> Change:
        if isinstance(change, Put):
            record = change.record
            value = self._vault.seal(record.value, record_place(record.kind, record.key))
            owner = self._vault.names(record.owner)[0] if record.owner else ""
            return Put(record._replace(value=value, owner=owner))
        if isinstance(change, Append):
            kind, key = change.kind, change.key
            numbered = enumerate(change.entries, change.first)
            return change._replace(
                entries=[self._vault.seal(entry, entry_place(kind, key, number)) for number, entry in numbered]
            )
        return change

    def _opened(self, record: Record, owner: str | None = None) -> Record:
        """Return a record with its value opened. Raises `Unsealable`."""
        value = self._vault.open(record.value, record_place(record.kind, record.key))
        return record._replace(value=value, owner=record.owner if owner is None else owner)

    def _set_aside(self, kind: str, closed: Mapping[str, str]) -> None:
        """Log records that cannot be opened, each of them once: a line for each reason.

        Args:
            closed: why, by the keys of the records.
        """
        keys_by_reason: dict[str, list[str]] = {}
        for key, reason in closed.items():
            if (kind, key) not in self._set_aside_before:
                self._set_aside_before[kind, key] = None
                keys_by_reason.setdefault(reason, []).append(key)
        while len(self._set_aside_before) > MOST_SET_ASIDE:
            del self._set_aside_before[next(iter(self._set_aside_before))]
        for reason, (first, *others) in keys_by_reason.items():
            # A wrong key closes everything: a line for each record would say the same thousands of times.
            what = f"{len(others) + 1} records of kind {kind}" if others else f"the {kind} {first!r:.80}"
            logger.error("%s cannot be opened: %s; set aside in the store %s", what, reason, self._name)

    def _timeout(self, what: str) -> StoreTimeout:
        return StoreTimeout(f"the store {self._name} took more than {self._seconds:g} seconds to {what}")


class SealedSharedStore(SealedStore):
    """The same for a store that several processes use: notices, and what processes say about themselves, are sealed too.

    Attributes:
        on_fenced: called before a write raises `Fenced`.
        lease_seconds: after as long without a turn of the event loop, others may have buried this process; infinity where they
            bury only one that has ended.
    """

    def __init__(self, store: SharedStore, vault: Vault, name: str, seconds: float = SECONDS) -> None:
        super().__init__(store, vault, name, seconds)
        self._shared = store
        self.on_fenced: Callable[[], None] = lambda: None
        self.lease_seconds: float = getattr(store, "lease_seconds", math.inf)

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes or none, like `Store.write`."""
        try:
            await super().write(changes)
        except Fenced:
            # In the step in which the writer learns of it: it must not go on as after any other failure.
            self.on_fenced()
            raise

    async def join(self, node: str, about: bytes = b"") -> None:
        """Say that this process lives under that name, like `SharedStore.join`.

        Raises:
            ConfigurationError: another process lives whose keys are not among those of this one.
        """
        with trio.move_on_after(self._seconds):
            await self._check_keys()
            return await self._shared.join(node, self._vault.seal(about, node_place(node)))
        raise self._timeout("join")

    async def _check_keys(self) -> None:
        strangers = [node for node, about in (await self._shared.nodes()).items() if self._about(node, about) is None]
        if strangers:
            raise ConfigurationError(
                f"the process {strangers[0]!r:.80} uses the store {self._name} with another key, so that neither finds what the "
                "other stores: set TRIO_MCP_KEYS to the same keys in all processes, or name another store or namespace. To "
                "change a key, first give all processes both"
            )

    async def bury(self, node: str) -> bool:
        """Take a process for dead if it does not say that it lives, like `SharedStore.bury`."""
        with trio.move_on_after(self._seconds):
            return await self._shared.bury(node)
        raise self._timeout("look for a process")

    async def nodes(self) -> Mapping[str, bytes]:
        """Return the living processes, like `SharedStore.nodes`; without those whose keys this process does not have."""
        with trio.move_on_after(self._seconds):
            opened = {node: self._about(node, about) for node, about in (await self._shared.nodes()).items()}
            return {node: about for node, about in opened.items() if about is not None}
        raise self._timeout("list the processes")

    async def announce(self, topic: str, content: bytes) -> None:
        """Send a notice to all that listen, like `SharedStore.announce`."""
        with trio.move_on_after(self._seconds):
            return await self._shared.announce(topic, self._vault.seal(content, notice_place(topic)))
        raise self._timeout("send a notice")

    @asynccontextmanager
    async def listen(self) -> AsyncGenerator[AsyncIterator[Notice | Missed]]:
        """Return the notices from now on, like `SharedStore.listen`; without those that cannot be opened."""
        async with self._shared.listen() as sealed:
            yield OpenedNotices(sealed, self._vault)

    def _about(self, node: str, sealed: bytes) -> bytes | None:
        try:
            return self._vault.open(sealed, node_place(node))
        except Unsealable:
            return None


@dataclass(slots=True, eq=False)
class OpenedNotices:
    """Opens notices as they come."""

    _sealed: AsyncIterator[Notice | Missed]
    _vault: Vault

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice | Missed:
        while True:
            notice = await anext(self._sealed)
            if not isinstance(notice, Notice):
                return notice
            # Of a process with other keys, or of another program that uses the same server.
            with contextlib.suppress(Unsealable):
                return notice._replace(content=self._vault.open(notice.content, notice_place(notice.topic)))


def node_place(node: str) -> bytes:
    return f"node\0{node}".encode()


def notice_place(topic: str) -> bytes:
    return f"notice\0{topic}".encode()


def record_place(kind: str, key: str) -> bytes:
    """Return what binds a sealed value to its record. Neither part has a NUL, so no two places are alike."""
    return f"record\0{kind}\0{key}".encode()


def entry_place(kind: str, key: str, number: int) -> bytes:
    return f"entry\0{kind}\0{key}\0{number}".encode()
