"""Pages of lists, and results that a client may cache."""

from .base import Integer
from .messages import CacheScope, Cursor, RequestParams, Result


class PaginatedRequestParams(RequestParams):
    """The params of a list request; `cursor` is the `next_cursor` of the previous page, and opaque."""

    cursor: Cursor | None = None


class PaginatedResult(Result):
    """One page of a list; the last page has no `next_cursor`."""

    next_cursor: Cursor | None = None


class CacheableResult(Result):
    """A result that a client may cache for `ttl_ms` milliseconds (2026-07-28)."""

    ttl_ms: Integer | None = None
    cache_scope: CacheScope | None = None
