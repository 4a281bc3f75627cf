"""The four lists of a server, page by page; each page is encoded once for each revision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from .. import types
from ..base.checks import check_int
from ..base.logs import peer_logger
from ..errors import LocalProtocolError
from ..protocol.jsonrpc import Encoded
from ..protocol.sealing.owned_names import Cursors
from ..protocol.sealing.request_state import KeyRing
from ..session import RequestFacts
from ..types import CacheScope, Implementation, Model
from .catalog import NumberedItem
from .options import check_caching

logger = peer_logger("trio_mcp.server")

PAGE_SIZE = 1000
"""Items of one page; most servers have one page."""

MAX_ENCODED = 256
"""Encoded pages to cache for one list; at one more, the cache is emptied."""


class Offer(Protocol):
    """A tool, prompt, resource or template; `model` is what a list shows."""

    @property
    def model(self) -> Model: ...


T = TypeVar("T", bound=Offer)


class Listing(Protocol[T]):
    """The items of a list, in order, as a `Catalog` has them."""

    def snapshot(self) -> tuple[NumberedItem[T], ...]:
        """Return all items; the same object until the next change."""
        ...

    def after(self, number: int) -> Sequence[NumberedItem[T]]:
        """Return the items with greater numbers than this."""
        ...


class PageSettings:
    """What is the same for all lists of a service.

    Args:
        page_size: items of one page.
        ttl: seconds for which a client may cache a page.
        keys: sign the cursors; shared by all nodes that serve the same lists. None: those in the environment, or random ones.
    """

    def __init__(
        self,
        identity: Implementation,
        page_size: int = PAGE_SIZE,
        ttl: float = 0.0,
        scope: CacheScope = "private",
        keys: KeyRing | None = None,
    ) -> None:
        check_int("page_size", page_size, least=1)
        check_caching("list_ttl", ttl, "list_scope", scope)
        self.identity = identity
        self.page_size = page_size
        self.ttl = ttl
        self.scope: CacheScope = scope
        self.keys = keys

    def with_keys(self, keys: KeyRing | None) -> PageSettings:
        """Return the same settings with other keys."""
        return PageSettings(self.identity, self.page_size, self.ttl, self.scope, keys)

    @cached_property
    def server_info_json(self) -> Encoded:
        return Encoded(self.identity.encode())

    @cached_property
    def cursors(self) -> Cursors:
        # Made by the first request for a list, so that a server without one needs no valid keys in its environment.
        return Cursors(self.keys or KeyRing.from_environment() or KeyRing.random(), self.identity.name)


class Pages(Generic[T]):
    """One list and its pages.

    Args:
        page_type: returns the type of its result.
        member: the name of the member that holds the items.
        hidden: returns the items that a client does not see, if the list depends on that.
        hideable: returns the items that some callers do not see; with any, the list is private.
    """

    __slots__ = ("_encoded", "_snapshot", "catalog", "hidden", "hideable", "member", "page_type", "settings")

    def __init__(
        self,
        catalog: Listing[T],
        settings: PageSettings,
        page_type: Callable[[], Callable[..., Model]],
        member: str,
        hidden: Callable[[RequestFacts], frozenset[T]] = lambda _facts: frozenset(),
        hideable: Callable[[], Collection[T]] = tuple,
    ) -> None:
        self.catalog = catalog
        self.settings = settings
        self.page_type = page_type
        self.member = member
        self.hidden = hidden
        self.hideable = hideable
        self._snapshot: object = None
        self._encoded: dict[tuple[str, int, frozenset[T]], Encoded] = {}

    def serve(self, facts: RequestFacts, params: Model) -> Encoded:
        """Return the requested page.

        Raises:
            RemoteProtocolError: -32602, the cursor was not issued here (L-PAG-1b).
        """
        assert isinstance(params, types.PaginatedRequestParams)
        after = 0 if params.cursor is None else self.settings.cursors.read(facts.method, params.cursor)
        # Emptied as a whole: pages that no client asks for any more need no bookkeeping, and 256 are encoded in no time.
        if self._snapshot is not (snapshot := self.catalog.snapshot()) or len(self._encoded) >= MAX_ENCODED:
            self._snapshot = snapshot
            self._encoded = {}
        key = (facts.protocol_version, after, self.hidden(facts))
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self._encoded[key] = self._encode(facts, after, key[2])
        return encoded

    def _encode(self, facts: RequestFacts, after: int, hidden: frozenset[T]) -> Encoded:
        settings = self.settings
        items = [numbered for numbered in self.catalog.after(after) if numbered.item not in hidden]
        shown = items[: settings.page_size]
        # No cursor after the last item, so that a client does not fetch an empty page.
        cursor = settings.cursors.issue(facts.method, shown[-1].number) if len(items) > len(shown) else None
        try:
            return self._encode_page(facts, shown, cursor)
        except (LocalProtocolError, ValueError):
            # Each was checked when it was registered, and its schema or its `meta` may have been changed since.
            return self._encode_page(facts, [each for each in shown if self._can_be_sent(facts, each)], cursor)

    def _encode_page(self, facts: RequestFacts, shown: Sequence[NumberedItem[T]], cursor: str | None) -> Encoded:
        settings = self.settings
        members = {self.member: [numbered.item.model for numbered in shown]}
        # M-CACHE-1s: every page says for how long and for whom it may be cached.
        scope = "private" if self.hideable() else settings.scope
        page = self.page_type()(**members, next_cursor=cursor, ttl_ms=round(settings.ttl * 1000), cache_scope=scope)
        return facts.terms.codec.encode_result(facts.method, page, settings.server_info_json)

    def _can_be_sent(self, facts: RequestFacts, each: NumberedItem[T]) -> bool:
        """Return whether an item can be listed, and log it if not."""
        try:
            self._encode_page(facts, [each], None)
        except (LocalProtocolError, ValueError) as error:
            logger.warning("%r is left out of the list, since it cannot be sent: %s", each.item, error)
            return False
        return True
