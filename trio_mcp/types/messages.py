"""What requests, notifications and results have in common."""

from typing import Literal, TypeAlias

from .base import Integer, JsonObject, MetaModel

Cursor: TypeAlias = str
ProgressToken: TypeAlias = str | int
RequestId: TypeAlias = str | int
CacheScope: TypeAlias = Literal["public", "private"]

InputResponses: TypeAlias = dict[str, JsonObject]
"""Answers by the key of their question; `Codec.decode_input_response` types each by the method that was asked."""


class RequestParams(MetaModel):
    """The params of a request that defines none."""


class PaginatedRequestParams(RequestParams):
    """The params of a list request; `cursor` is the `next_cursor` of the page before, opaque."""

    cursor: Cursor | None = None


class InputResponseRequestParams(RequestParams):
    """The params of a request that can take several rounds (2026-07-28)."""

    input_responses: InputResponses | None = None
    request_state: str | None = None


class ResourceRequestParams(InputResponseRequestParams):
    """The params of a request about one resource."""

    uri: str


class NotificationParams(MetaModel):
    """The params of a notification that defines none."""


class Result(MetaModel):
    """A result. `result_type` is only on the wire since 2026-07-28, where the codec fills it in."""

    result_type: str | None = None


class EmptyResult(Result):
    """A result that only says: done."""


class PaginatedResult(Result):
    """One page; `next_cursor` is absent on the last."""

    next_cursor: Cursor | None = None


class CacheableResult(Result):
    """A result that may be kept for `ttl_ms` milliseconds (2026-07-28)."""

    ttl_ms: Integer | None = None
    cache_scope: CacheScope | None = None
