"""Caching responses for as long as the server allows (2026-07-28, caching: M-CACHE-2c).

A cached result belongs to a server, to a request (its method and the params that the result depends on) and, unless its scope is
public, to a principal. It is removed when it expires, when the server announces a change, or when the cache is full and it was
used least recently.
"""

# Two things are not cached on purpose. Results of tools: a tool may have effects, and the specification has no time to live for
# them. And requests that are under way: two callers that miss at the same time send two requests, because a shared one would
# have to outlive the cancel of the caller that sent it.
#
# A change that is announced while a request is under way may be older or newer than its result. `changes` settles it: a result
# that was requested before the last invalidation is returned to its caller, and not stored.

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import NamedTuple

import trio

from ..protocol.uri.parts import is_part_of
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
        self.changes = 0
        """Number of invalidations so far. A result that was requested before the last one is not stored."""

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self._counts.bytes = 0
        self.changes += 1

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

    def invalidate(self, is_stale: Callable[[CacheKey], bool]) -> None:
        """Remove the results whose key `is_stale` accepts, of all principals."""
        self.changes += 1
        for key in [key for key in self._entries if is_stale(key)]:
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

    def generation(self) -> int:
        """Return the number of invalidations so far; take it before a request is sent, and give it to `store`."""
        return 0 if self.cache is None else self.cache.changes

    def store(self, method: str, request_key: str | None, result: CacheableResult, generation: int) -> None:
        """Store a result, unless something was invalidated since `generation`: it may be older than the change."""
        if self.cache is None or generation != self.cache.changes:
            return
        private, public = self._keys(method, request_key)
        kept, other = (public, private) if result.cache_scope == "public" else (private, public)
        # A server may change its mind about the scope. A public result must not hide a newer private one, or the reverse.
        self.cache.remove(other)
        self.cache.store(kept, result)

    def invalidate(self, *methods: str) -> None:
        """Remove every result of this server for these methods."""
        if self.cache is not None:
            self.cache.invalidate(lambda key: key.server == self.server and key.method in methods)

    def invalidate_resource(self, uri: str) -> None:
        """Remove the cached content of a resource, and of those that contain it."""

        def stale(key: CacheKey) -> bool:
            ours = key.server == self.server and key.method == "resources/read"
            return ours and key.request_key is not None and is_part_of(uri, key.request_key)

        if self.cache is not None:
            self.cache.invalidate(stale)

    def _keys(self, method: str, request_key: str | None) -> tuple[CacheKey, CacheKey]:
        """Return the keys of a private and of a public result."""
        private = CacheKey(self.server, method, request_key, self.context, ("private", self.principal))
        return private, private._replace(principal=None)


NO_CACHE = CacheView(None, None, None)
"""Caches nothing."""
