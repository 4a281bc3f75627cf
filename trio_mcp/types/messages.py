"""The members that requests, notifications and results have in common."""

from typing import Final, Literal, TypeAlias

from .base import Integer, JsonObject, MetaModel, Model

Cursor: TypeAlias = str
ProgressToken: TypeAlias = str | int
RequestId: TypeAlias = str | int
CacheScope: TypeAlias = Literal["public", "private"]

InputResponses: TypeAlias = dict[str, JsonObject]
"""Answers by the key of their question. They are untyped until `Codec.decode_input_response` is given the question's method."""


HEARTBEAT: Final = "io.trio-mcp/heartbeat"
"""In the `_meta` of progress: true in a heartbeat, which a server sends while its tool reports nothing."""


class RequestParams(MetaModel):
    """The params of a request, and of those that have no other members."""


class InputResponseRequestParams(RequestParams):
    """The params of a request that may take several rounds (2026-07-28)."""

    input_responses: InputResponses | None = None
    request_state: str | None = None


class ResourceRequestParams(InputResponseRequestParams):
    """The params of a request about one resource."""

    uri: str


class TaskMetadata(Model):
    """In the params of a request: its sender wants it to run as a task, kept for `ttl` milliseconds (2025-11-25)."""

    ttl: Integer | None = None


class NotificationParams(MetaModel):
    """The params of a notification, and of those that have no other members."""


class Result(MetaModel):
    """A result. `result_type` exists since 2026-07-28; the codec of that revision sets it."""

    result_type: str | None = None


class EmptyResult(Result):
    """A result without members."""
