"""The four listings of a server, page by page; each page is encoded once for each revision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from ..protocol.jsonrpc import Encoded
from ..protocol.sealing.cursors import Cursors
from ..session import RequestFacts
from ..types import (
    CacheScope,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Model,
    PaginatedRequestParams,
)
from .catalog import Catalog, NumberedItem
from .options import check_scope, check_ttl
from .prompts import Prompt
from .resources import Resource, Template
from .tool import Tool

T = TypeVar("T")


PAGE_SIZE = 1000
"""Items of one page; most servers have one."""

MAX_ENCODED = 256
"""Encoded pages that are kept for one listing; all of them go when there would be more."""


class PageHints(NamedTuple):
    """What every page says of itself: where the next begins, and for how long and for whom it may be kept (M-CACHE-1s)."""

    next_cursor: str | None
    ttl_ms: int
    cache_scope: CacheScope


@dataclass(frozen=True, slots=True)
class ListOptions:
    """`page_size` in items, `ttl` in seconds."""

    page_size: int = PAGE_SIZE
    ttl: float = 0.0
    scope: CacheScope = "private"

    def __post_init__(self) -> None:
        if isinstance(self.page_size, bool) or not isinstance(self.page_size, int):
            raise TypeError(f"page_size: a number of items, such as 100, not {self.page_size!r}")
        if self.page_size < 1:
            raise ValueError(f"page_size: a page has at least one item, not {self.page_size}")
        check_ttl("list_ttl", self.ttl)
        check_scope("list_scope", self.scope)

    def hints(self, next_cursor: str | None) -> PageHints:
        return PageHints(next_cursor, round(self.ttl * 1000), self.scope)


PageOf = Callable[[Sequence[T], PageHints], Model]


@dataclass(slots=True)
class Pages(Generic[T]):
    """One listing and its pages. `hidden` names what a client is not shown, where a listing may depend on that."""

    listing: Catalog[T]
    options: ListOptions
    signature: Encoded
    cursors: Callable[[], Cursors]
    make_page: PageOf[T]
    hidden: Callable[[RequestFacts], frozenset[T]] = lambda _facts: frozenset()
    _table: object = None
    _encoded: dict[tuple[str, int, frozenset[T]], Encoded] = field(default_factory=dict)

    def serve(self, facts: RequestFacts, params: Model) -> Encoded:
        """The page that was asked for.

        Raises:
            RemoteProtocolError: -32602, the cursor was not issued here (L-PAG-1b).
        """
        assert isinstance(params, PaginatedRequestParams)
        after = 0 if params.cursor is None else self.cursors().read(facts.method, params.cursor)
        if self._table is not (table := self.listing.snapshot()) or len(self._encoded) >= MAX_ENCODED:
            self._table = table
            self._encoded = {}
        key = (facts.protocol_version, after, self.hidden(facts))
        encoded = self._encoded.get(key)
        if encoded is None:
            encoded = self._encoded[key] = self._encode(facts, after, key[2])
        return encoded

    def _encode(self, facts: RequestFacts, after: int, hidden: frozenset[T]) -> Encoded:
        size = self.options.page_size
        places: list[NumberedItem[T]] = [place for place in self.listing.after(after) if place.item not in hidden]
        shown = places[:size]
        cursor = self.cursors().issue(facts.method, shown[-1].number) if len(places) > size else None
        page = self.make_page([place.item for place in shown], self.options.hints(cursor))
        return facts.codec.encode_result(facts.method, page, self.signature)


def page_of_tools(tools: Sequence[Tool], hints: PageHints) -> Model:
    return ListToolsResult(tools=[tool.model for tool in tools], **hints._asdict())


def page_of_prompts(prompts: Sequence[Prompt], hints: PageHints) -> Model:
    return ListPromptsResult(prompts=[prompt.model for prompt in prompts], **hints._asdict())


def page_of_resources(resources: Sequence[Resource], hints: PageHints) -> Model:
    return ListResourcesResult(resources=[resource.model for resource in resources], **hints._asdict())


def page_of_templates(templates: Sequence[Template], hints: PageHints) -> Model:
    return ListResourceTemplatesResult(resource_templates=[template.model for template in templates], **hints._asdict())
