"""What an earlier process has said on a stream, read from its log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from trio_mcp.protocol.jsonrpc import RequestId
from trio_mcp.protocol.meta import PROGRESS_TOKEN
from trio_mcp.storage import EventsGone, EventStore, LogKey
from trio_mcp.types import JsonObject, JsonValue, ProgressToken

PAGE: Final = 64
"""Events that are read at once."""


@dataclass(slots=True)
class LeftStream:
    """What is in the log of a stream.

    Attributes:
        last: the number of its newest event.
        asked: the ids of the requests to the client.
        answered: the ids of the client's requests that have their answers.
        progress: the last value that was reported under each token.
    """

    last: int = 0
    asked: set[RequestId] = field(default_factory=set)
    answered: set[RequestId] = field(default_factory=set)
    progress: dict[ProgressToken, float] = field(default_factory=dict)

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
    """Read the log of a stream; without one, or without its beginning, nothing has been said on it.

    Raises:
        Exception: whatever the store raises.
    """
    left = LeftStream()
    try:
        events: Sequence[bytes] = await store.read(key, 0, PAGE)
        while events:
            left.add(events)
            events = await store.read(key, left.last, PAGE)
    except EventsGone:
        return LeftStream()
    return left
