"""A WebSocket or the lifespan of an asyncio host, served by an application on Trio."""

# The task of the host owns its `receive` and `send`, and is the only one that sends. The application, in a Trio task, has two of
# the relay. Both sides are in one thread, so that each step between two awaits sees the other side at rest.
#
#   Trio                        asyncio
#   ---------------------------------------------------------------------------------------------
#   receive: the inbox is       a task awaits the host's `receive`; what it brings goes into the inbox, and wakes the application
#   empty
#   send: into the outbox       sends from the outbox; at most one message that is not sent yet lets the application go on
#   the application ends        sends the rest, and ends
#   is cancelled                the host cancels the task: the scope of the application is cancelled, and its end is waited for

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Final

import outcome
import trio

from trio_mcp.base.groups import split_group
from trio_mcp.bridge import Guest
from trio_mcp.session.event_loop import HOME

from ..asgi.adapter import Message, Receive, Scope, Send
from .time_limits import seconds_to_send, within

AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

ENDED: Final = "Trio has ended in this event loop before the connection has"


class Relay:
    """Serves one scope.

    Args:
        receive, send: of the host.
    """

    def __init__(self, guest: Guest, scope: Scope, receive: Receive, send: Send) -> None:
        self._guest = guest
        self._scope = scope
        self._receive = receive
        self._send = send
        self._inbox = deque[Message]()
        self._outbox = deque[Message]()
        self._sent = 0
        """Bytes of the message that was sent last."""
        self._wants_message = False
        self._has_left = False
        """The client, or the host."""
        self._outcome: outcome.Outcome[None] | None = None
        self._failure: Exception | None = None
        """Of the host's `receive`."""
        self._cancel = trio.CancelScope()
        self._parked = trio.lowlevel.ParkingLot()
        self._wake: asyncio.Future[None] | None = None
        self._receiving: asyncio.Task[None] | None = None

    # on Trio

    async def receive(self) -> Message:
        """Return the next message of the host; after the client has left, that it has."""
        while not self._inbox:
            if self._has_left:
                return {"type": f"{self._scope['type']}.disconnect"}
            self._wants_message = True
            self._notify()
            await self._parked.park()
        return self._inbox.popleft()

    async def send(self, message: Message) -> None:
        """Send a message; wait while another one is not sent yet. A cancel while it waits leaves it queued.

        Raises:
            OSError: the client has left.
        """
        if self._has_left:
            raise OSError("the client has left")
        self._outbox.append(message)
        self._notify()
        while len(self._outbox) > 1 and not self._has_left:
            await self._parked.park()

    async def _run(self, app: AsgiApp) -> None:
        """Run the application, and let only a cancel out: what leaves a system task ends Trio."""
        try:
            with self._cancel:
                await app(self._scope, self.receive, self.send)
            self._outcome = outcome.Value(None)
        except BaseException as error:  # noqa: BLE001, ASYNC103  the host's task raises it
            self._contain(error)
        finally:
            self._notify()

    def _contain(self, error: BaseException) -> None:
        cancelled, rest = split_group(error, trio.Cancelled)
        # A cancel that is not of this scope is the end of Trio.
        self._outcome = outcome.Error(RuntimeError(ENDED) if rest is None else rest)
        try:
            if cancelled is not None:
                raise cancelled
        finally:
            # Their tracebacks refer to this frame.
            del error, cancelled, rest

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # on asyncio

    async def serve(self, app: AsgiApp) -> None:
        """Serve the scope to its end. Raises what the application or `receive` raises, and `RuntimeError` if Trio fails."""
        context = copy_context()
        # The functions of a server are not those of a client.
        context.run(HOME.set, None)
        self._guest.calls.add(self)
        cancelled: asyncio.CancelledError | None = None
        try:
            trio.lowlevel.spawn_system_task(self._run, app, name=f"{app!r}", context=context)
            while self._outcome is None or self._outbox:
                try:
                    await self._step()
                except asyncio.CancelledError as error:  # noqa: ASYNC103  it is raised when the application has ended
                    cancelled = cancelled or error
                    self._leave()
                    self._cancel.cancel()
            if cancelled is not None:
                raise cancelled
            self._outcome.unwrap()
            if self._failure is not None:
                raise self._failure
        finally:
            del cancelled
            self._guest.calls.discard(self)
            if self._receiving is not None:
                self._receiving.cancel()

    def end(self) -> None:
        """End it: Trio has failed."""
        if self._outcome is None:
            self._outcome = outcome.Error(RuntimeError(ENDED))
        self._notify()

    async def _step(self) -> None:
        """Send what is in the outbox, or wait for something to do."""
        while self._outbox:
            await self._send_one(self._outbox[0])
            # A cancel may have emptied it.
            if self._outbox:
                self._outbox.popleft()
            self._parked.unpark_all()
        if self._wants_message and self._receiving is None and not self._has_left:
            self._wants_message = False
            self._receiving = self._guest.loop.create_task(self._receive_one())
        if self._outcome is None:
            self._wake = self._guest.loop.create_future()
            await self._wake

    async def _send_one(self, message: Message) -> None:
        if self._has_left:
            return
        try:
            await within(seconds_to_send(self._sent), self._send(message))
            self._sent = len(message.get("text") or b"")
        # A client that reads nothing counts as gone, too (`TimeoutError`).
        except OSError:
            self._leave()

    async def _receive_one(self) -> None:
        try:
            self._add(await self._receive())
        except OSError:
            self._leave()
        except Exception as error:  # noqa: BLE001  the host's task raises it, once the application has ended
            self._failure = error
            self._leave()
        finally:
            self._receiving = None
            self._parked.unpark_all()
            self._notify()

    def _add(self, message: Message) -> None:
        if message["type"].endswith(".disconnect"):
            self._has_left = True
        self._inbox.append(message)

    def _leave(self) -> None:
        self._has_left = True
        self._outbox.clear()
        self._parked.unpark_all()
