"""What a server allows to be kept, kept for as long as it allows (2026-07-28, caching: M-CACHE-2c).

An entry belongs to a server, to a request (its method and what of its params the result depends on) and, unless its scope is
public, to a principal. It ends when its time is up, when the server tells that it changed, or when others need the room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

import trio

from ..protocol.uri.parts import is_part_of
from ..types import CacheableResult

MAX_ENTRIES = 1024
MAX_BYTES = 16 * 1024 * 1024
MAX_TTL = 24 * 3600.0


class Key(NamedTuple):
    """What an entry is found by; `principal` is None for a public one."""

    server: Hashable
    method: str
    what: str | None
    context: Hashable
    principal: Hashable


@dataclass(frozen=True, slots=True)
class Entry:
    """A result, when it ends, and its size in bytes."""

    result: CacheableResult
    ends: float
    size: int


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """How much is kept, and how often something was found or not."""

    entries: int
    bytes: int
    found: int
    missed: int


class ResponseCache:
    """Keeps results for clients, of one server or of several; pass it to `Client.connect(cache=...)`.

    Args:
        max_entries, max_bytes: how much is kept; what was not used for longest goes first.
        max_ttl: seconds after which an entry ends, whatever its server allows.

    Clients may share it: a private entry is only ever found by a client with the same server and the same principal. It belongs
    to one run of Trio; what another run kept is dropped.
    """

    def __init__(self, *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES, max_ttl: float = MAX_TTL) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._max_ttl = max_ttl
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._bytes = 0
        self._found = 0
        self._missed = 0
        self._run: trio.lowlevel.TrioToken | None = None
        self.changes = 0
        """How often something was dropped because it had changed. A result that was asked for before that is not kept."""

    def clear(self) -> None:
        """Drop everything."""
        self._entries.clear()
        self._bytes = 0
        self.changes += 1

    def statistics(self) -> CacheStatistics:
        return CacheStatistics(len(self._entries), self._bytes, self._found, self._missed)

    def __repr__(self) -> str:
        return f"<ResponseCache entries={len(self._entries)}/{self._max_entries} bytes={self._bytes}/{self._max_bytes}>"

    # for its clients

    def find(self, *keys: Key) -> CacheableResult | None:
        """What is kept under the first of these keys that has something."""
        self._check_run()
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and entry.ends > trio.current_time():
                self._entries.move_to_end(key)
                self._found += 1
                return entry.result.model_copy(deep=True)  # its lists can be changed by whoever gets it
            self._remove(key)
        self._missed += 1
        return None

    def keep(self, key: Key, result: CacheableResult) -> None:
        """Keep a result for as long as it says; one without a time is not kept."""
        self._check_run()
        self._remove(key)
        seconds = (
            min(max(result.ttl_ms or 0, 0), self._max_ttl * 1000) / 1000
        )  # in this order: it may be too large to divide
        if not seconds:
            return
        size = len(result.encode())
        if size > self._max_bytes:
            return
        self._entries[key] = Entry(result.model_copy(deep=True), trio.current_time() + seconds, size)
        self._bytes += size
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    def drop(self, is_stale: Callable[[Key], bool]) -> None:
        """Drop what has changed, for every principal."""
        self.changes += 1
        for key in [key for key in self._entries if is_stale(key)]:
            self._remove(key)

    def forget(self, key: Key) -> None:
        """Drop one entry."""
        self._remove(key)

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size

    def _check_run(self) -> None:
        """Trio's clock starts anew with each run."""
        run = trio.lowlevel.current_trio_token()
        if run is not self._run:
            self.clear()
            self._run = run


@dataclass(frozen=True, slots=True)
class CacheView:
    """What one client sees of a cache.

    Attributes:
        cache: None keeps nothing.
        server: whose results these are.
        principal: who asks; private entries are found by the same one only.
        context: what else of the client its server's results may depend on.
    """

    cache: ResponseCache | None
    server: Hashable
    principal: Hashable
    context: Hashable = None

    def find(self, method: str, what: str | None) -> CacheableResult | None:
        """The kept answer to a request: `what` is all that its result depends on beside the method."""
        if self.cache is None:
            return None
        return self.cache.find(self._private(method, what), self._public(method, what))

    def ticket(self) -> int:
        """To be taken before a request is sent, and given to `keep`."""
        return 0 if self.cache is None else self.cache.changes

    def keep(self, method: str, what: str | None, result: CacheableResult, ticket: int) -> None:
        """Keep an answer, unless something changed since `ticket`: the answer may be older than the news."""
        if self.cache is None or ticket != self.cache.changes:
            return
        private, public = self._private(method, what), self._public(method, what)
        kept, other = (public, private) if result.cache_scope == "public" else (private, public)
        self.cache.forget(other)
        self.cache.keep(kept, result)

    def drop(self, *methods: str) -> None:
        """Drop every answer of this server to these methods."""
        if self.cache is not None:
            self.cache.drop(lambda key: key.server == self.server and key.method in methods)

    def drop_resource(self, uri: str) -> None:
        """Drop what was read from a resource, and from those that it is a part of."""

        def stale(key: Key) -> bool:
            ours = key.server == self.server and key.method == "resources/read"
            return ours and key.what is not None and is_part_of(uri, key.what)

        if self.cache is not None:
            self.cache.drop(stale)

    def _private(self, method: str, what: str | None) -> Key:
        return Key(self.server, method, what, self.context, ("private", self.principal))

    def _public(self, method: str, what: str | None) -> Key:
        return Key(self.server, method, what, self.context, None)
