"""One request, or one WebSocket, of a guarded connection: the task that runs the app and what it may receive.

Hypercorn runs the app in the connection's nursery and feeds it through a memory channel. Three things about that hurt:
an error which is no `Exception` leaves the nursery and takes the server along; a full channel can make the app wait for
itself when it answers before having read its body; and a second `receive` after the end waits for ever.
"""

# pyright: basic
# Hypercorn's own types are partial.
from __future__ import annotations

import sys
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVarTuple, cast

import trio
from hypercorn.config import Config
from hypercorn.typing import AppWrapper, ASGIReceiveEvent, ASGISendEvent, Scope

from trio_mcp.logs import RepeatedRecords
from trio_mcp.runtime import Account

from ..asgi.failures import log_failures
from ..asgi.fast_path import FAST_PATH_KEY, RequestEvents
from .connections import connections_of

Args = TypeVarTuple("Args")
Send = Callable[[ASGISendEvent | None], Awaitable[None]]
MAX_QUEUED_BYTES = 1 << 20
# Of an ASGI event besides its payload: it is a dict.
EVENT_SIZE = 512
# Queued bytes that the fixed cost of a connection includes: the head of the request, which took their place, has been parsed.
PREPAID_BYTES = 8 * 1024
# Of a WebSocket; then its client is slowed down.
MAX_QUEUED_MESSAGES = 256
# Seconds that a write may still take once its connection is being cut.
LAST_SEND = 1.0
DISCONNECTS = frozenset({"http.disconnect", "websocket.disconnect"})


class Inbox(RequestEvents):
    """What one exchange has received and its app has not read yet.

    Bounded in messages, in bytes and by the memory budget: `put` waits while it is full, so the client is slowed down by
    TCP. The disconnect is never refused, and is given again to every later `receive`. As a context manager, it gives back
    what it has drawn.

    Args:
        account: of the connection. What is queued counts there if it is more than `PREPAID_BYTES`.
    """

    def __init__(self, max_messages: int, account: Account) -> None:
        self._account = account
        self._drawn = 0
        self._messages: deque[ASGIReceiveEvent] = deque()
        self._bytes = 0
        self._max_messages = max_messages
        self._last: ASGIReceiveEvent | None = None
        self._awaited = False
        self._stopped = False
        self._changed: trio.Event | None = None

    async def put(self, message: ASGIReceiveEvent) -> None:
        """Queue one ASGI event; waits for room, and drops what arrives after the disconnect."""
        # Taken even while the inbox is full: an app that waits for this news must not wait for room first.
        if message["type"] in DISCONNECTS:
            self._last = message
            self._notify()
            return
        while self._full() and self._last is None:
            await self._wait()
        if self._last is None and not self._merged(message):
            self._messages.append(message)
            self._count(payload_size(message))
            self._notify()

    async def receive(self) -> ASGIReceiveEvent:
        """The next event in order. A cancel loses nothing."""
        await trio.lowlevel.checkpoint_if_cancelled()
        # What came before the disconnect is received before it.
        while not self._messages:
            if self._last is not None:
                await trio.lowlevel.checkpoint()
                return self._last
            # True only inside the wait: between two calls of `receive` the app is busy, and a message handed to it then
            # would overtake its own reading.
            self._awaited = True
            try:
                await self._wait()
            finally:
                self._awaited = False
        return self._take()

    def whole_body(self) -> bytes | None:
        message = self._messages[0] if len(self._messages) == 1 else None
        if message is None or message["type"] != "http.request" or message["more_body"]:
            return None
        self._take()
        return message["body"]

    async def wait_disconnect(self) -> bool:
        self._stopped = False
        while True:
            while self._messages:
                self._take()
            if self._stopped or self._last is not None:
                return not self._stopped
            await self._wait()

    def stop_waiting(self) -> None:
        self._stopped = True
        self._notify()

    @property
    def app_is_waiting(self) -> bool:
        """Whether the app waits for the next event, and none is queued before it."""
        return self._awaited and not self._messages and self._last is None

    def _full(self) -> bool:
        if len(self._messages) >= self._max_messages or self._bytes >= MAX_QUEUED_BYTES:
            return True
        # While nothing is queued one more is let in, whatever the budget says: nothing else would end the wait.
        return bool(self._messages) and not self._account.has_room(0)

    def _take(self) -> ASGIReceiveEvent:
        message = self._messages.popleft()
        self._count(-payload_size(message))
        self._notify()
        return message

    def _count(self, size: int) -> None:
        self._bytes += size
        held = self._bytes if self._bytes > PREPAID_BYTES else 0
        if held != self._drawn:
            self._account.draw(held - self._drawn)
            self._drawn = held

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # What comes for an app that has ended is dropped; its connection may live on.
        self._last = self._last or {"type": "http.disconnect"}
        self._messages.clear()
        self._count(-self._bytes)
        self._notify()

    def _merged(self, message: ASGIReceiveEvent) -> bool:
        """Fold the empty end of a request body into its last chunk: a short request is then one event."""
        # hypercorn reports the end of a body as a separate event, which would cost a short request another turn of
        # the event loop.
        if message["type"] != "http.request" or message["body"] or not self._messages:
            return False
        last = self._messages[-1]
        if last["type"] != "http.request":
            return False
        last["more_body"] = message["more_body"]
        return True

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = trio.Event()
        await self._changed.wait()

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def payload_size(message: ASGIReceiveEvent) -> int:
    """The bytes of memory that an event takes."""
    content = cast("dict[str, bytes | str | None]", message)
    return EVENT_SIZE + sys.getsizeof(content.get("body") or content.get("bytes") or content.get("text") or b"")


class ConnectionTasks:
    """Hypercorn's task group, on a nursery that the connection owns.

    Attributes:
        account: of the connection.
    """

    def __init__(self, nursery: trio.Nursery, account: Account) -> None:
        self._nursery = nursery
        self.account = account

    async def spawn_app(
        self, app: AppWrapper, config: Config, scope: Scope, send: Send
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start `app` for one exchange; returns what feeds it."""
        fast = scope["state"].get(FAST_PATH_KEY) if scope["type"] == "websocket" else None
        inbox = Inbox(config.max_app_queue_size if fast is None else MAX_QUEUED_MESSAGES, self.account)
        if fast is not None:
            fast.inbox = inbox
        self._nursery.start_soon(run_app, app, scope, inbox, send, connections_of(config).records)
        return inbox.put

    def spawn(self, func: Callable[[*Args], Awaitable[object]], *args: *Args) -> None:
        self._nursery.start_soon(func, *args)


async def run_app(app: AppWrapper, scope: Scope, inbox: Inbox, send: Send, records: RepeatedRecords) -> None:
    """Run the app to its end. Whatever it raises ends its own exchange only; a cancel of an outer scope passes.

    `send(None)` is hypercorn's word for "the app is done": it answers 500 if nothing was sent.
    """
    try:
        with inbox, log_failures(f"the ASGI app failed in a {scope['type']} exchange", records):
            await app(scope, inbox.receive, send, trio.to_thread.run_sync, trio.from_thread.run)
    except BaseException:
        # Shielded: hypercorn must hear that the app is done, or the exchange would never be closed. Bounded, since it
        # may write a 500.
        with trio.move_on_after(LAST_SEND, shield=True):
            await send(None)
        raise
    await send(None)
