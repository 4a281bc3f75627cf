"""The calls that a later request may carry forward, and the outcomes of their finished legs.

A modern call is known under an unguessable name that travels sealed in `requestState`. The directory finds its call while
it lives, and for a grace period afterwards, so that a repeated request gets the outcome that the first one got and runs
nothing.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import trio

if TYPE_CHECKING:
    from .call import Call


MAX_FINISHED = 10_000
"""Finished calls kept for repeated requests; the oldest goes first."""
MAX_FINISHED_BYTES = 64 * 1024 * 1024
"""Bytes of their encoded outcomes; the oldest goes first, the newest stays whatever its size."""


class Finished(NamedTuple):
    """A call that is over, the time until when its outcomes are kept, and their size in bytes."""

    until: float
    call: Call
    size: int


class Directory:
    """Calls by name. Names carry 128 bits from the system's generator (reliability S-41)."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._live: dict[str, Call] = {}
        self._finished: OrderedDict[str, Finished] = OrderedDict()
        self._finished_bytes = 0
        self._adopted: OrderedDict[tuple[str, str, int], None] = OrderedDict()

    def add(self, call: Call) -> str:
        """Give the call a name under which later requests find it."""
        name = secrets.token_urlsafe(16)
        self._live[name] = call
        return name

    def adopt(self, name: str, call: Call, node: str, leg: int) -> None:
        """A call that another process had named goes on here, from the state that `node` sealed at the end of `leg`."""
        self._live[name] = call
        self._adopted[name, node, leg] = None
        if len(self._adopted) > MAX_FINISHED:
            self._adopted.popitem(last=False)

    def adopted(self, name: str, node: str, leg: int) -> bool:
        """A call went on here from that very state: it must not do so twice, however long ago that was."""
        return (name, node, leg) in self._adopted

    def forget(self, name: str) -> None:
        """Drop a call at once, outcomes and all."""
        self._live.pop(name, None)
        if name in self._finished:
            self._drop(name)

    def finish(self, name: str, size: int) -> None:
        """The call is over; its outcomes, `size` bytes of them, stay for the grace period."""
        call = self._live.pop(name)
        now = trio.current_time()
        self._finished[name] = Finished(now + self._grace, call, size)
        self._finished_bytes += size
        self._evict(now)

    def find(self, name: str) -> Call | None:
        """The call of that name, living or lately finished."""
        self._evict(trio.current_time())
        live = self._live.get(name)
        if live is not None:
            return live
        finished = self._finished.get(name)
        return None if finished is None else finished.call

    def _evict(self, now: float) -> None:
        while self._finished:
            oldest = next(iter(self._finished))
            crowded = len(self._finished) > MAX_FINISHED
            heavy = self._finished_bytes > MAX_FINISHED_BYTES and len(self._finished) > 1
            if self._finished[oldest].until > now and not crowded and not heavy:
                return
            self._drop(oldest)

    def _drop(self, name: str) -> None:
        finished = self._finished.pop(name)
        self._finished_bytes -= finished.size
        finished.call.let_go()

    def __len__(self) -> int:
        return len(self._live)

    def __repr__(self) -> str:
        return f"<Directory live={len(self._live)} finished={len(self._finished)}>"
