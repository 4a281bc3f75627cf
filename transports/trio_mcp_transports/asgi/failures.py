"""Errors of an author's code, which are logged and end nothing but what they happened in."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

import trio

from trio_mcp.groups import split_group, without
from trio_mcp.logs import RepeatedRecords, peer_logger

logger = peer_logger("trio_mcp.http")


class ClientDisconnected(OSError):
    """Raised by an app's `send` once its client has left or was cut off (ASGI 2.4: a subclass of OSError)."""

    def __init__(self) -> None:
        super().__init__("the client has left")


@contextmanager
def log_failures(what: str, records: RepeatedRecords | None = None) -> Generator[None]:
    """Log what the block raises, SystemExit too, and go on behind it. Only a cancel is raised again.

    A client that merely left is worth a debug line only.

    Args:
        records: count failures that a peer can cause again and again.
    """
    try:
        yield
    except trio.Cancelled:
        raise
    # An app may raise anything, and each error ends its own exchange, connection or step of the shutdown only.
    except BaseException as error:
        cancelled, failure = split_group(error, trio.Cancelled)
        rest = without(failure, ClientDisconnected)
        if rest is not None and records is not None:
            records.log(what, level=logging.ERROR, exc_info=rest)
        elif rest is not None:
            logger.error("%s", what, exc_info=rest)
        elif failure is not None:
            logger.debug("%s: the client left", what)
        if cancelled is not None:
            raise cancelled from None
