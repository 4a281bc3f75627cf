"""Requests and notifications that no revision has: a proxy passes their members on without knowing what they mean.

Elsewhere such a request is answered with -32601, and such a notification is ignored.
"""

from __future__ import annotations

from typing import Final

from ...types import JsonObject, RequestParams, Result
from ..revisions import REVISIONS

KNOWN: Final = frozenset(
    name for revision in REVISIONS.values() for name in (*revision.requests, *revision.notifications, *revision.inputs)
)
"""The methods of all revisions. One of them is never passed on unread, also not between sides whose revisions lack it."""


class UnknownParams(RequestParams):
    """The params of a request or of a notification that no revision has."""

    def wire(self) -> JsonObject:
        """Return the members as they came: a null may mean something."""
        return {**super().wire(), **(self.__pydantic_extra__ or {})}


class UnknownResult(Result):
    """The answer to such a request."""

    def wire(self) -> JsonObject:
        """Return the members as they came, too."""
        return {**super().wire(), **(self.__pydantic_extra__ or {})}
