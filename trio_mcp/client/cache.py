"""Caching responses for as long as the server allows (2026-07-28, caching: M-CACHE-2c).

A cached result belongs to a server, to a request (its method and the params that the result depends on) and, unless its scope is
public, to a principal. It is removed when it expires, when the server announces a change, or when the cache is full and it was
used least recently.
"""

# Two things are not cached on purpose. Results of tools: a tool may have effects, and the specification has no time to live for
# them. And requests that are under way: two callers that miss at the same time send two requests, because a shared one would
# have to outlive the cancel of the caller that sent it.
#
# A change that is announced while a request is under way may be older or newer than its result. A `Ticket` settles it: a result
# that was requested before the last invalidation of its server is returned to its caller, and not stored.

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

import trio

from ..base.named_tuples import NamedTuple
from ..protocol.uri.uris import is_part_of
from ..types import CacheableResult

MAX_ENTRIES = 1024
MAX_BYTES = 16 * 1024 * 1024
MAX_TTL = 24 * 3600.0


class CacheKey(NamedTuple):
    """What a result is cached under; `principal` is None if its scope is public."""

    server: Hashable
    method: str
    request_key: str | None
    context: Hashable
    principal: Hashable


class CachedResult(NamedTuple):
    """A result, when it expires, and its size in bytes."""

    result: CacheableResult
    expires_at: float
    size: int


class Ticket:
    """Held by each request to a server whose result may be stored: as long as it is valid, nothing was invalidated meanwhile."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True)
class CacheStatistics:
    """The size of a cache (results and bytes), and its hits and misses so far."""

    entries: int = 0
    bytes: int = 0
    hits: int = 0
    misses: int = 0


class ResponseCache:
    """Caches the results of one or more servers; pass it to `Client.connect(cache=...)`.

    Args:
        max_entries, max_bytes: the maximum size; the least recently used result is evicted first.
        max_ttl: seconds after which a result expires, whatever its server allows.

    Clients may share it: only a client with the same server and the same principal finds a private result. A cache is emptied
    when it is used in another `trio.run`.
    """

    def __init__(self, *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES, max_ttl: float = MAX_TTL) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._max_ttl = max_ttl
        self._entries: OrderedDict[CacheKey, CachedResult] = OrderedDict()
        self._counts = CacheStatistics()
        self._run: trio.lowlevel.TrioToken | None = None
        # The valid ticket of each server. Weak: a server without open requests takes no memory here.
        self._tickets: WeakValueDictionary[Hashable, Ticket] = WeakValueDictionary()

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self._counts.bytes = 0
        self._tickets.clear()

    def statistics(self) -> CacheStatistics:
        """Return the size of the cache, and its hits and misses so far."""
        return replace(self._counts, entries=len(self._entries))

    def __repr__(self) -> str:
        return f"<ResponseCache entries={len(self._entries)}/{self._max_entries} bytes={self._counts.bytes}/{self._max_bytes}>"

    # for its clients

    def find(self, *keys: CacheKey) -> CacheableResult | None:
        """Return the result under the first of these keys that has one, or None."""
        self._check_run()
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and entry.expires_at > trio.current_time():
                self._entries.move_to_end(key)
                self._counts.hits += 1
                # Models are frozen, but the lists in them are not, and the caller may change those.
                return entry.result.model_copy(deep=True)
            self.remove(key)
        self._counts.misses += 1
        return None

    def store(self, key: CacheKey, result: CacheableResult) -> None:
        """Store a result for as long as its server allows; a result without a time to live is not stored."""
        self._check_run()
        # Also if the new result may not be stored: the server has just said that the old one no longer holds.
        self.remove(key)
        # Limited before it is divided: the number is the server's, and an int that is too large for a float cannot be divided.
        seconds = min(max(result.ttl_ms or 0, 0), self._max_ttl * 1000) / 1000
        if not seconds or (size := len(result.encode())) > self._max_bytes:
            return
        self._entries[key] = CachedResult(result.model_copy(deep=True), trio.current_time() + seconds, size)
        self._counts.bytes += size
        while len(self._entries) > self._max_entries or self._counts.bytes > self._max_bytes:
            self.remove(next(iter(self._entries)))

    def ticket(self, server: Hashable) -> Ticket:
        """Return the ticket of a server; it is valid until the next `invalidate` for this server, or `clear`."""
        self._check_run()
        return self._tickets.setdefault(server, Ticket())

    def is_valid(self, server: Hashable, ticket: Ticket) -> bool:
        """Return whether no result of the server was invalidated since the ticket was taken."""
        return self._tickets.get(server) is ticket

    def invalidate(self, server: Hashable, is_stale: Callable[[CacheKey], bool]) -> None:
        """Remove the results of a server whose key `is_stale` accepts, of all principals."""
        self._tickets.pop(server, None)
        for key in [key for key in self._entries if key.server == server and is_stale(key)]:
            self.remove(key)

    def remove(self, key: CacheKey) -> None:
        """Remove one result, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._counts.bytes -= entry.size

    def _check_run(self) -> None:
        """Start empty in another run of Trio."""
        # Expiry is in Trio's time, and the clock of another run starts from another number.
        run = trio.lowlevel.current_trio_token()
        if run is not self._run:
            self.clear()
            self._run = run


@dataclass(frozen=True, slots=True)
class CacheView:
    """The part of a cache that one client uses.

    Attributes:
        cache: None caches nothing.
        server: the server that these results come from.
        principal: cache partition; private results are found only by the same principal.
        context: what else about the client the server's results may depend on.
    """

    cache: ResponseCache | None
    server: Hashable
    principal: Hashable
    context: Hashable = None

    def find(self, method: str, request_key: str | None) -> CacheableResult | None:
        """Return the cached result of a request; `request_key` is all that it depends on besides the method."""
        if self.cache is None:
            return None
        return self.cache.find(*self._keys(method, request_key))

    def ticket(self) -> Ticket | None:
        """Return the ticket of this server; take it before a request is sent, and give it to `store`."""
        return None if self.cache is None else self.cache.ticket(self.server)

    def store(self, method: str, request_key: str | None, result: CacheableResult, ticket: Ticket | None) -> None:
        """Store a result, unless a result of this server was invalidated since: it may be older than the change."""
        if self.cache is None or ticket is None or not self.cache.is_valid(self.server, ticket):
            return
        private, public = self._keys(method, request_key)
        kept, other = (public, private) if result.cache_scope == "public" else (private, public)
        # A server may change its mind about the scope. A public result must not hide a newer private one, or the reverse.
        self.cache.remove(other)
        self.cache.store(kept, result)

    def invalidate(self, *methods: str) -> None:
        """Remove every result of this server for these methods."""
        if self.cache is not None:
            self.cache.invalidate(self.server, lambda key: key.method in methods)

    def invalidate_resource(self, uri: str) -> None:
        """Remove the cached content of a resource, and of those that contain it."""

        def stale(key: CacheKey) -> bool:
            return key.method == "resources/read" and key.request_key is not None and is_part_of(uri, key.request_key)

        if self.cache is not None:
            self.cache.invalidate(self.server, stale)

    def _keys(self, method: str, request_key: str | None) -> tuple[CacheKey, CacheKey]:
        """Return the keys of a private and of a public result."""
        private = CacheKey(self.server, method, request_key, self.context, ("private", self.principal))
        return private, private._replace(principal=None)


NO_CACHE = CacheView(None, None, None)
"""Caches nothing."""
