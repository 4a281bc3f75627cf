"""What one exchange has received and its application has not read yet."""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import Self

import trio

from trio_mcp.runtime import Account

from ..asgi.messages import Message, RequestEvents

MAX_QUEUED_BYTES = 1 << 20
# Of an ASGI event besides its payload: it is a dict.
EVENT_SIZE = 512
# Queued bytes that the fixed cost of a connection includes: the head of the request, which took their place, has been parsed.
PREPAID_BYTES = 8 * 1024
# Of a WebSocket; then its client is slowed down.
MAX_QUEUED_MESSAGES = 256
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
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._max_messages = max_messages
        self._last: Message | None = None
        self._stopped = False
        self._changed: trio.Event | None = None

    async def put(self, message: Message) -> None:
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

    async def receive(self) -> Message:
        """The next event in order. A cancel loses nothing."""
        await trio.lowlevel.checkpoint_if_cancelled()
        # What came before the disconnect is received before it.
        while not self._messages:
            if self._last is not None:
                await trio.lowlevel.checkpoint()
                return self._last
            await self._wait()
        return self._take()

    def whole_body(self) -> bytes | None:
        message = self._messages[0] if len(self._messages) == 1 else None
        if message is None or message["type"] != "http.request" or message["more_body"]:
            return None
        self._take()
        body: bytes = message["body"]
        return body

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

    def _full(self) -> bool:
        if len(self._messages) >= self._max_messages or self._bytes >= MAX_QUEUED_BYTES:
            return True
        # While nothing is queued one more is let in, whatever the budget says: nothing else would end the wait.
        return bool(self._messages) and not self._account.has_room(0)

    def _take(self) -> Message:
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

    def _merged(self, message: Message) -> bool:
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


def payload_size(message: Message) -> int:
    """The bytes of memory that an event takes."""
    return EVENT_SIZE + sys.getsizeof(message.get("body") or message.get("bytes") or message.get("text") or b"")
