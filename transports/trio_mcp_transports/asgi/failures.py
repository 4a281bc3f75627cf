"""Errors of an author's code, which are logged and end nothing but what they happened in."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from types import TracebackType

import trio

from trio_mcp.groups import split_group, without
from trio_mcp.logs import RepeatedRecords, peer_logger

logger = peer_logger("trio_mcp.http")


class ClientDisconnected(OSError):
    """Raised by an app's `send` once its client has left or was cut off (ASGI 2.4: a subclass of OSError)."""

    def __init__(self) -> None:
        super().__init__("the client has left")


def log_failures(what: str, records: RepeatedRecords | None = None) -> AbstractContextManager[None, bool]:
    """Log what the block raises, SystemExit too, and go on behind it. Only a cancel is raised again.

    A client that merely left is worth a debug line only.

    Args:
        records: count failures that a peer can cause again and again.
    """
    return _LoggedFailures(what, records)


class _LoggedFailures:
    # Not a generator: each connection has one for as long as it lives, and it would take a kilobyte.

    __slots__ = ("_records", "_what")

    def __init__(self, what: str, records: RepeatedRecords | None) -> None:
        self._what = what
        self._records = records

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or isinstance(error, trio.Cancelled):
            return False
        # An app may raise anything, and each error ends its own exchange, connection or step of the shutdown only.
        cancelled, failure = split_group(error, trio.Cancelled)
        rest = without(failure, ClientDisconnected)
        if rest is not None and self._records is not None:
            self._records.log(self._what, level=logging.ERROR, exc_info=rest)
        elif rest is not None:
            logger.error("%s", self._what, exc_info=rest)
        elif failure is not None:
            logger.debug("%s: the client left", self._what)
        if cancelled is not None:
            raise cancelled from None
        return True
