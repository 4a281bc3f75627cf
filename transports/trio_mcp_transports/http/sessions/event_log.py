"""The event log of one legacy session: numbers, ids, and a store that may fail.

An event id is `{stream}-{number}`: unique in the session, and it names the stream (L-HTTP-13s). Streams are counted as they are
opened, events from 1; number 0 is the priming event, which is never kept.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Protocol, cast

import trio

from trio_mcp.base.logs import RepeatedRecords
from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.base.values import make_tuple
from trio_mcp.errors import LimitExceeded
from trio_mcp.protocol.jsonrpc import RequestId
from trio_mcp.protocol.revisions import PROGRESS_TOKEN
from trio_mcp.storage import Change, EventsGone, EventStore, LogKey, NoSuchEvent, Store, StoreConflict
from trio_mcp.stores.adapters import StoredEvents
from trio_mcp.types import JsonObject, JsonValue, ProgressToken

from ...asgi.access import HttpRejection
from ...asgi.authentication import log_failures
from .breaker import Breaker

if TYPE_CHECKING:
    from trio_mcp.session.calls.services import CallServices

# What an earlier process has said on a stream, read from its log.

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


STORE_SECONDS: Final = 6.0
"""How long a store may take for one thing."""

"""Events that are read at once: what a replay costs in memory."""

MAX_WRITE: Final = 64 * 1024
"""Bytes of several events from the log that are sent in one write."""

NOT_KEPT: Final = "the event store did not keep what was sent"
NOT_READ: Final = "the event store did not give back what it keeps"
NOT_FORGOTTEN: Final = "the event store did not forget a session that is over"

EVENT_ID = re.compile(r"(0|[1-9][0-9]{0,11})-(0|[1-9][0-9]{0,11})(?:\.([1-9][0-9]{0,11}))?", re.ASCII)


class EventId(NamedTuple):
    """The id of an event: `STREAM-NUMBER`, or `STREAM-NUMBER.EPOCH` if a later process than the first has sent it."""

    stream: int
    number: int
    epoch: int = 0

    def encode(self) -> bytes:
        return b"%d-%d.%d" % self if self.epoch else b"%d-%d" % self[:2]

    def __str__(self) -> str:
        return self.encode().decode()


def read_event_id(text: str) -> EventId:
    """Return the id of the event that a client saw last.

    Raises:
        HttpRejection: 400, that is not an id of ours. It is not 404, which would tell the client that its session is over.
    """
    match = EVENT_ID.fullmatch(text)
    if match is None:
        # Only the first 64 characters are repeated: the rest may be megabytes.
        raise HttpRejection(400, f"The Last-Event-ID {text[:64]!r} is no event id of this server.")
    return EventId(int(match[1]), int(match[2]), int(match[3] or 0))


class PromptStore(Protocol):
    """An event store that keeps events without waiting."""

    def append_nowait(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Keep events, as `EventStore.append` does."""


@cache
def is_prompt(kind: type) -> bool:
    """Return whether the stores of this class are `PromptStore`s, and no subclass has another `append`."""
    owner = next((each for each in kind.__mro__ if "append" in vars(each)), kind)
    return "append_nowait" in vars(owner)


class EventLog:
    """What was sent on the streams of one session. Each stream is written by its one holder.

    Args:
        records: counts how often the store failed.
        breaker: of the store.
        services: have what makes writes again that the store has not made.
    """

    __slots__ = (
        "_breaker",
        "_principal",
        "_records",
        "_services",
        "_session",
        "_store",
        "is_left",
        "opened",
        "opened_before",
        "sealed",
    )

    def __init__(
        self,
        store: EventStore,
        principal: str | None,
        session: str,
        records: RepeatedRecords,
        breaker: Breaker,
        services: CallServices,
    ) -> None:
        self._store = store
        self._breaker = breaker
        self._records = records
        self._services = services
        self._principal = principal
        self._session = session
        self.opened = 0
        """Streams that were ever opened; their numbers are 1 to this."""
        self.opened_before = 0
        """Streams that earlier processes may have opened."""
        self.sealed = False
        """The session is over: nothing is kept any more, except for a moment what was being written then."""
        self.is_left = False
        """Another process writes it: nothing is kept or forgotten here."""

    async def append(self, stream: int, first: int, events: Sequence[bytes], *, is_last: bool = False) -> bool:
        """Keep events, and return whether they are kept. A store that fails costs them their place, not their way to the client.

        Args:
            is_last: the answer is among them, for which a client may come back; they are kept later if the store fails now.
        """
        if self.sealed or self.is_left or not events:
            return True
        append = partial(self._store.append, self._key(stream), first, events)
        return await self.written(append, stream, events, self._breaker, is_last=is_last)

    async def written(
        self,
        write: Callable[[], Awaitable[None]],
        stream: int,
        events: Sequence[bytes],
        breaker: Breaker,
        *,
        is_last: bool,
    ) -> bool:
        """Make a write that keeps events of a stream; return whether it is made, or will be when the store works again.

        Args:
            breaker: of the store; one that hangs must not hold up each stream, and each of its events.
            is_last: the write is made later if the store fails now, and there is room for it until then.
        """
        is_kept = False
        try:
            is_kept = await breaker.run(write)
        except StoreConflict:
            # Another process has what would be written, also later.
            is_kept = True
            raise
        finally:
            # The session ended while the store was writing: `forget` came first and found nothing, so it is repeated. A
            # cancel comes with the end of the application, so this runs for a cancelled write too.
            if self.sealed:
                await self.forget(stream)  # noqa: ASYNC102  it has a shield and a time limit
            elif is_last and not is_kept:
                is_kept = self._keep_later(write, events)
        return is_kept

    def _keep_later(self, write: Callable[[], Awaitable[None]], events: Sequence[bytes]) -> bool:
        """Keep events when the store works again; return False if there is no room for them until then."""
        settling, size = self._services.settling, sum(map(len, events))
        try:
            settling.check_room(self._principal)
        except LimitExceeded:
            return False
        if not settling.has_room(size, self._principal):
            return False
        settling.begin(write, self._principal, size)
        return True

    def appending(self, stream: int, first: int, events: Sequence[bytes]) -> Sequence[Change]:
        """Return the changes that keep events in the store of the sessions, for a write that makes others too."""
        if self.sealed or self.is_left or not events:
            return ()
        return cast(StoredEvents, self._store).appending(self._key(stream), first, events)

    def is_in(self, store: Store) -> bool:
        """Return whether the events are kept in this store, together with the sessions."""
        return isinstance(self._store, StoredEvents) and self._store.is_in(store)

    @property
    def is_prompt(self) -> bool:
        """Whether `append_nowait` can be used."""
        return is_prompt(type(self._store)) and not self._breaker.is_open

    def append_nowait(self, stream: int, first: int, events: Sequence[bytes]) -> None:
        """Keep events as `append` does, without waiting."""
        if self.sealed or self.is_left or not events:
            return
        with log_failures(NOT_KEPT, self._records):
            cast(PromptStore, self._store).append_nowait(self._key(stream), first, events)

    async def read(self, stream: int, after: int) -> Sequence[bytes]:
        """Some of the events after that number, in order; none at the end of what is kept.

        Raises:
            HttpRejection: 400 when they are no longer kept, or there never were any; 503 when the store fails.
        """
        last = EventId(stream, after)
        try:
            with trio.fail_after(STORE_SECONDS):
                return await self._store.read(self._key(stream), after, PAGE)
        except EventsGone:
            raise HttpRejection(
                400, f"Some events after {last} are no longer kept: the stream cannot be resumed."
            ) from None
        except NoSuchEvent:
            raise never_sent(EventId(stream, after)) from None
        except Exception as error:  # noqa: BLE001  whatever a store raises
            raise self._not_read(error) from None

    def _not_read(self, error: Exception) -> HttpRejection:
        self._records.log(NOT_READ, level=logging.ERROR, exc_info=error)
        return HttpRejection(503, "The event log cannot be read now.")

    async def check_answered(self, stream: int) -> None:
        """Raise `HttpRejection` if an earlier process has opened a stream, and ended before it was answered.

        Its call was not kept, so nothing more comes: a client that got an empty response would ask again and again.
        """
        if stream > self.opened_before:
            return
        try:
            with trio.fail_after(STORE_SECONDS):
                left = await self.left(stream)
        except Exception as error:  # noqa: BLE001  whatever a store raises
            raise self._not_read(error) from None
        if not left.answered:
            raise HttpRejection(400, "The server was restarted, and what was to come on this stream is lost.")

    async def forget(self, stream: int | None = None) -> None:
        """Keep nothing more of one stream, or of all. It is done even when everything else is cancelled."""
        if not self.opened:
            return
        # Shielded: it may run while the application is being cancelled, and events that stay in a shared store now are
        # never deleted.
        with log_failures(NOT_FORGOTTEN, self._records), trio.CancelScope(shield=True):
            with trio.fail_after(STORE_SECONDS):
                await self._store.forget(self._principal, self._session, stream)

    async def left(self, stream: int) -> LeftStream:
        """Return what an earlier process has said on a stream. Raises whatever the store raises."""
        return await read_stream(self._store, self._key(stream))

    def _key(self, stream: int) -> LogKey:
        return make_tuple(LogKey, (self._principal, self._session, stream))


def never_sent(event: EventId) -> HttpRejection:
    return HttpRejection(400, f"An event {event} was never sent in this session.")


def first_of(events: Sequence[bytes]) -> Sequence[bytes]:
    """Return the first events, for one write: at least one, and more while they are small."""
    size = count = 0
    for event in events:
        size += len(event)
        if count and size > MAX_WRITE:
            break
        count += 1
    return events[:count]
