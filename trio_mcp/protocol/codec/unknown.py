"""Messages that pass unread: a proxy sends their members on without knowing what they mean.

Between sides of different eras, those are the requests and notifications that no revision has. Between sides of one revision,
every message may pass so. Where there is no proxy such a request is answered with -32601, and such a notification is ignored.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ...types import JsonObject, Model, RequestParams, Result
from ..revisions import REVISIONS

KNOWN: Final = frozenset(
    name for revision in REVISIONS.values() for name in (*revision.requests, *revision.notifications, *revision.inputs)
)
"""The methods of all revisions. One of them is never passed on unread, also not between sides whose revisions lack it."""


class Unread(Enum):
    """Which messages of a peer are events with `UnknownParams`, for a proxy."""

    NONE = "none"
    UNKNOWN = "unknown"
    """Those that no revision has."""
    ALL = "all"
    """All but cancellations: both sides of the proxy speak one revision."""

    def covers(self, method: str, *, is_known: bool) -> bool:
        """Return whether messages of a method pass unread.

        Args:
            is_known: the revision of the message has the method.
        """
        return self is Unread.ALL or (self is Unread.UNKNOWN and not is_known and method not in KNOWN)


class UnknownParams(RequestParams):
    """The params of a request or of a notification that passes unread."""

    def wire(self) -> JsonObject:
        """Return the members as they came: a null may mean something."""
        members = dict(self.__pydantic_extra__ or {})
        return members if self.meta is None else {"_meta": self.meta, **members}


NO_PARAMS: Final[JsonObject] = {}
"""Those of a message without params; never written to."""


def is_without_members(params: Model) -> bool:
    """Return whether params that pass unread have no members: the message is then sent without them."""
    return type(params) is UnknownParams and not params.__pydantic_extra__ and params.meta is None


class UnknownResult(Result):
    """The answer to such a request."""

    def wire(self) -> JsonObject:
        """Return the members as they came, too."""
        members = dict(self.__pydantic_extra__ or {})
        if self.result_type is not None:
            members = {"resultType": self.result_type, **members}
        return members if self.meta is None else {"_meta": self.meta, **members}
