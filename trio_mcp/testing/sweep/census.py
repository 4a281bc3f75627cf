"""Counting what is left: the objects of calls and connections that are still alive, without asking the collector for help.

The collector is off while it counts, so what only a cycle keeps is found too: a busy server would carry it about until the
collector comes round.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Final

from ...protocol.connection import Connection
from ...runtime import Mailbox, Outbox
from ...session import ClientSession
from ...session.calls.asks_requests import PendingAsks
from ...session.replies import OpenRequests

ROOMS: Final = (
    "trio_mcp.runtime.",
    "trio_mcp.session.",
    "trio_mcp.client.",
    "trio_mcp.server.asking",
    "trio_mcp.server.branching",
    "trio_mcp.server.context",
)
"""Modules whose objects belong to a call or a connection; those of the author live as long as the server."""

HOLDS: Final[Mapping[type, tuple[str, ...]]] = {
    OpenRequests: ("_first", "_further", "_cancelled"),
    PendingAsks: ("mailboxes", "prompting"),
    ClientSession: ("_progress", "_streams", "_serving"),
    Connection: ("open_ids", "_asked"),
    Mailbox: ("_slots",),
    Outbox: ("items",),
}
"""What is empty in each of them when nothing runs."""


def census() -> Counter[str]:
    """How many objects of calls and connections are alive, by their type."""
    return Counter(type(each).__qualname__ for each in living())


def living() -> Iterator[object]:
    """The objects of calls and connections that are alive."""
    for each in gc.get_objects():
        if str(type(each).__module__).startswith(ROOMS):
            yield each


def held() -> Iterator[str]:
    """What the living ends of connections still wait for, as sentences."""
    for each in gc.get_objects():
        for name in HOLDS.get(type(each), ()):
            content = getattr(each, name)
            assert isinstance(content, Sized)
            if len(content):
                yield f"{each!r} holds {len(content)} in {name.strip('_')}"


@contextmanager
def only_new_objects() -> Iterator[None]:
    """For the length of the block the collector neither runs by itself nor sees what was there before."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
