"""Which request and which call a log record belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple


class LogContext(NamedTuple):
    """What the code that runs now serves.

    Attributes:
        request: the id of the HTTP request that began it; None elsewhere, and without an access log.
        principal: who sent it; None without authentication.
        method: of the call, such as "tools/call"; None outside of calls.
        name: what is called: the name of a tool or prompt, or the URI of a resource.
    """

    request: str | None = None
    principal: str | None = None
    method: str | None = None
    name: str | None = None


LOG_CONTEXT: Final[ContextVar[LogContext]] = ContextVar("LOG_CONTEXT", default=LogContext())  # noqa: B039  a tuple
"""Inherited by the tasks of a call; threads of plain functions have it too."""
