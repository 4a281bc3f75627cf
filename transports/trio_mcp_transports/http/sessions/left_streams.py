"""What an earlier process has said on a stream, read from its log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from trio_mcp.protocol.jsonrpc import RequestId
from trio_mcp.protocol.meta import PROGRESS_TOKEN
from trio_mcp.storage import EventsGone, EventStore, LogKey, NoSuchEvent
from trio_mcp.types import JsonObject, JsonValue, ProgressToken

PAGE: Final = 64
"""Events that are read at once."""

MOST_EVENTS: Final = 1 << 40
"""Larger than the number of any event."""


@dataclass(slots=True)
class LeftStream:
    """What is in the log of a stream.

    Attributes:
        last: the number of its newest event.
        asked: the ids of the requests to the client.
        answered: the ids of the client's requests that have their answers.
        progress: the last value that was reported under each token.
        is_whole: its beginning is there; without it, more may have been said than is known.
    """

    last: int = 0
    asked: set[RequestId] = field(default_factory=set)
    answered: set[RequestId] = field(default_factory=set)
    progress: dict[ProgressToken, float] = field(default_factory=dict)
    is_whole: bool = True

    def add(self, events: Iterable[bytes]) -> None:
        """Count events, and read what they say."""
        for event in events:
            self.last += 1
            message = cast("JsonValue", json.loads(event))
            for each in message if isinstance(message, list) else [message]:
                if isinstance(each, dict):
                    self._read(each)

    def _read(self, message: JsonObject) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params")
        if isinstance(id, str | int):
            (self.answered if method is None else self.asked).add(id)
        elif method == "notifications/progress" and isinstance(params, dict):
            token, value = params.get(PROGRESS_TOKEN), params.get("progress")
            if isinstance(token, str | int) and isinstance(value, int | float):
                self.progress[token] = value


async def read_stream(store: EventStore, key: LogKey) -> LeftStream:
    """Read the log of a stream; without one nothing has been said on it.

    Raises:
        Exception: whatever the store raises.
    """
    left = LeftStream()
    while (events := await events_after(store, key, left.last)) is not None:
        if not events:
            return left
        left.add(events)
    first = await first_event(store, key)
    if first is None:
        return LeftStream()
    # The log has lost its beginning: that was read, if anything, while it was lost.
    left = LeftStream(first - 1, is_whole=False)
    while events := await events_after(store, key, left.last):
        left.add(events)
    return left


async def events_after(store: EventStore, key: LogKey, after: int) -> Sequence[bytes] | None:
    """Return the next events, none at the end; None if they are not stored any more. Raises whatever the store raises."""
    try:
        return await store.read(key, after, PAGE)
    except EventsGone:
        return None


async def first_event(store: EventStore, key: LogKey) -> int | None:
    """Return the number of the oldest event that is stored, found by bisection; None if there is none.

    Raises:
        Exception: whatever the store raises.
    """
    if await is_gone(store, key, MOST_EVENTS):
        return None
    gone, there = 0, 1
    while await is_gone(store, key, there):
        gone, there = there, 2 * there
    while there - gone > 1:
        middle = (gone + there) // 2
        if await is_gone(store, key, middle):
            gone = middle
        else:
            there = middle
    return there + 1


async def is_gone(store: EventStore, key: LogKey, after: int) -> bool:
    """Return whether events after this number are no longer stored; not if there never were any."""
    try:
        await store.read(key, after, 1)
    except EventsGone:
        return True
    except NoSuchEvent:
        return False
    return False
