"""How much the log shows of what peers and failing functions cause again and again, as `docs/limits.md` says it."""

from __future__ import annotations

from typing import Any, Final

from trio_mcp.base.logs import RepeatedRecords, peer_logger

SHOWN: Final = 10
"""Records of one kind, or tracebacks of one kind, in a minute."""


def new_records(area: str = "trio_mcp.protocol", **limits: Any) -> RepeatedRecords:
    """Return what counts the records of a logger, of which none has been shown yet."""
    return RepeatedRecords(peer_logger(area), **limits)
