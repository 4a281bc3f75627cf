"""Count the objects of calls and connections that are still alive, before the garbage collector runs.

The collector is off meanwhile, so objects that only a reference cycle keeps alive are found too: on a busy server they would use
memory until the collector's next run.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from ...protocol.connection import Connection
from ...runtime import Mailbox, Outbox
from ...session.calls.pending_asks import PendingAsks
from ...session.notification_dispatch import NotificationDispatch
from ...session.replies import OpenRequests
from ...session.server_requests import ServerRequests

PACKAGES: Final = (
    "trio_mcp.runtime.",
    "trio_mcp.session.",
    "trio_mcp.client.",
    "trio_mcp.server.elicit.exchanges",
    "trio_mcp.server.sampling.answers",
    "trio_mcp.server.sampling.attempts",
    "trio_mcp.server.sampling.sampler",
    "trio_mcp.server.branching",
    "trio_mcp.server.context",
)
"""Modules whose objects belong to a call or a connection; those of the author live as long as the server."""

HOLDS: Final[Mapping[type, tuple[str, ...]]] = {
    OpenRequests: ("_first", "_further", "_cancelled"),
    PendingAsks: ("actors", "recorded", "earlier", "prompting"),
    NotificationDispatch: ("progress", "streams"),
    ServerRequests: ("_scopes",),
    Connection: ("open_ids", "_pending"),
    Mailbox: ("_slots",),
    Outbox: ("items",),
}
"""Attributes that are empty when nothing runs, by class."""


def census() -> Counter[str]:
    """Count the objects of calls and connections that are alive, by type."""
    return Counter(type(each).__qualname__ for each in living())


def living() -> Iterator[object]:
    """Yield the objects of calls and connections that are alive."""
    # Found through the collector's own list and not by weak references: no class has to take part, so none can be forgotten.
    for each in gc.get_objects():
        if is_counted(str(type(each).__module__)):
            yield each


@lru_cache(maxsize=4096)
def is_counted(module: str) -> bool:
    """Return whether the objects of this module's classes belong to a call or a connection."""
    return module.startswith(PACKAGES)


def held() -> Iterator[str]:
    """Yield a sentence for each attribute of `HOLDS` that is not empty."""
    for each in gc.get_objects():
        if type(each) not in HOLDS:
            continue
        for name in HOLDS[type(each)]:
            content = getattr(each, name)
            assert isinstance(content, Sized)
            if len(content):
                yield f"{each!r} holds {len(content)} in {name.strip('_')}"


@contextmanager
def only_new_objects() -> Iterator[None]:
    """In this block the collector does not run by itself, and neither it nor the census sees older objects."""
    # Frozen objects are skipped: a collection then costs as much as one run has made, and not as much as the test process holds.
    # Older garbage may be frozen too; it is collected after the block.
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def collect() -> Counter[str]:
    """Free what only reference cycles keep alive; count what is alive even so, by type, and see it no more."""
    gc.collect()
    kept = census()
    gc.freeze()
    return kept
