"""Roots: the folders that a client works in. They are advice, not access control."""

from typing import Annotated, Literal

from .base import MAX_RECEIVED, MetaModel, Model, at_most
from .messages import RequestParams


class Root(MetaModel):
    """A folder, by its `file://` URI."""

    uri: str
    name: str | None = None


class ListRootsResult(MetaModel):
    """The answer of a client that was asked for its roots."""

    roots: Annotated[list[Root], at_most(MAX_RECEIVED)]


class ListRootsRequest(Model):
    """A question for the roots, as one of the input requests of a round (2026-07-28)."""

    method: Literal["roots/list"] = "roots/list"
    params: RequestParams | None = None
