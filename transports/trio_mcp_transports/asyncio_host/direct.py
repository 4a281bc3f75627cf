"""One HTTP request of an asyncio host, answered in the task of the host."""

# Our application begins in that task, too: most requests are answered, or their calls started, without waiting. Where it would
# wait, it goes on in a Trio task, and this one waits for that. What a call says is sent from here.
#
#   the application                   this task
#   ---------------------------------------------------------------------------------------------------
#   returns a response at once        sends it, or waits for what its call says
#   would wait (`move_to_trio`)       waits for the Trio task that goes on
#   its call says something           is woken, and sends it
#   runs for `LOOK_SECONDS`           starts to wait for a disconnect
#   a part has to be waited for       waits for a Trio task that does
#   its client does not read          waits for it, `seconds_to_send`; then the client counts as gone
#   Trio fails                        sends 503, unless the response has begun
#
# A cancel is the end of the client.

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import suppress
from contextvars import copy_context
from types import coroutine
from typing import Any, Final, Protocol, TypeVar

from trio_mcp.bridge import Guest, TrioCall
from trio_mcp.session.event_loop import HOME, NEEDS_TRIO

from ..asgi.adapter import AsgiBody, Message, Receive, Scope, Send, Sending, request_of
from ..asgi.requests import Expiry, Request
from ..asgi.responses import BrokenOff, KnownResponse, OpenResponse, Response, StreamPart
from .time_limits import seconds_to_send, within

T = TypeVar("T")

FIRST_SECONDS: Final = 0.1
"""How long the beginning of a body is waited for here. Then the application waits for it, which has a deadline."""

LOOK_SECONDS: Final = 0.01
"""After these it is looked whether the client leaves: most calls have ended by then, and need no task for it."""

ENDED: Final = "Trio has ended in this event loop before the response has"
UNAVAILABLE: Final = KnownResponse(
    503, b"This server is not running. Try again in a moment.", content_type=b"text/plain"
)


@coroutine
def resumed(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await the rest of a coroutine that has begun already, which `await` refuses."""
    result: T = yield from work
    return result


class RespondingApp(Protocol):
    """What this needs of an application: see `HttpApp` and `McpApp`."""

    async def respond(self, request: Request) -> Response:
        """Return the response to a request."""

    def may_begin_on_asyncio(self, path: str) -> bool:
        """Return whether `respond` may begin on asyncio for a POST to this path."""


class HostedRequest:
    """Serves one request.

    Args:
        receive, send: of the host.
    """

    def __init__(self, guest: Guest, scope: Scope, receive: Receive, send: Send) -> None:
        self._guest = guest
        self._scope = scope
        self._receive = receive
        self._sending = Sending(send, is_head=scope["method"] == "HEAD")
        self._context = copy_context()
        # The functions of a server are not those of a client.
        self._context.run(HOME.set, None)
        self._first: Message | None = None
        """The first message of the body, until the application has it."""
        self._response: Response | None = None
        self._wake: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle
        self._looking: asyncio.Task[None] | None = None
        self._look_at = 0.0
        """When that begins, by the clock of the loop."""
        self._has_left = False
        """The client."""

    async def serve(self, app: RespondingApp) -> None:
        """Serve it to its end. Raises what the application raises; if Trio fails, the response is 503."""
        first = self._first = await self._receive_first()
        request = request_of(self._scope, AsgiBody(self._receive_on_trio))
        if first is not None and first["type"] == "http.request" and not first.get("more_body", False):
            request.body.whole = first.get("body", b"")
        self._guest.calls.add(self)
        try:
            await self._respond(app, request)
            if isinstance(self._response, OpenResponse):
                await self._send_open(self._response)
            elif isinstance(self._response, KnownResponse):
                # The server may raise it in `send` once the client has gone.
                with suppress(OSError):
                    await self._sending.whole(self._response)
        except RuntimeError:
            await self._reject()  # noqa: ASYNC120  the response says it, and it is raised then
            raise
        finally:
            self._end()
            if request.record is not None:
                sent = self._sending
                request.record.end(sent.status, sent.size, is_complete=sent.is_complete)

    def end(self) -> None:
        """Wake the task: Trio has failed."""
        self._notify()

    async def _respond(self, app: RespondingApp, request: Request) -> None:
        """Set the response of the application."""
        work = app.respond(request)
        path = request.route if request.root_path else request.path
        if request.body.whole is not None and request.method == "POST" and app.may_begin_on_asyncio(path):
            try:
                wanted = self._context.run(work.send, None)
            except StopIteration as done:
                self._response = done.value
                return
            assert wanted is NEEDS_TRIO, wanted

        async def go_on() -> None:
            self._response = await resumed(work)

        await TrioCall(self._guest, go_on).result(self._context)

    async def _receive_first(self) -> Message | None:
        """Return the first message of the host, which is nearly always there; None if its client is slow."""
        try:
            return await within(FIRST_SECONDS, self._receive())
        except TimeoutError:
            return None

    async def _receive_on_trio(self) -> Message:
        """Return the next message of the host."""
        first, self._first = self._first, None
        return first if first is not None else await self._guest.run(self._receive_one())

    async def _receive_one(self) -> Message:
        return await self._receive()

    # responses whose calls may still run

    async def _send_open(self, response: OpenResponse) -> None:
        """Send a response while its call runs, to its end, or until its client leaves."""
        expiring = None
        self._look_at = self._guest.loop.time() + LOOK_SECONDS
        if response.expiry is not None:
            end = self._end_when_expired(response, response.expiry)
            expiring = self._guest.loop.create_task(end, name="waiting until credentials expire")
        try:
            # A host may raise it in `send` once the client has gone, and may then never report a disconnect. A client that reads
            # nothing counts as gone, too (`TimeoutError`).
            with suppress(OSError):
                size = 0
                while not self._sending.is_complete:
                    try:
                        taken = await self._next_part(response)
                    except BrokenOff:
                        await self._sending.break_off()
                        return
                    if taken is None:
                        return
                    if isinstance(taken, KnownResponse):
                        await self._sending.whole(taken)
                    else:
                        await within(seconds_to_send(size), self._sending.part(taken))
                        size = len(taken.body)
        finally:
            if expiring is not None:
                expiring.cancel()

    async def _next_part(self, response: OpenResponse) -> KnownResponse | StreamPart | None:
        """Wait for something to send, and take it; None if the client has gone."""
        is_silent = await self._is_silent(response)
        if self._has_left:
            return None
        if self._guest.is_ending:
            raise RuntimeError(ENDED)
        known = response.take_known() if self._sending.status is None and not is_silent else None
        if known is not None:
            return known
        taken = response.take_filler() if is_silent else response.take_part()
        if taken is not None:
            return taken
        return await TrioCall(self._guest, response.wait_part).result(self._context)

    async def _is_silent(self, response: OpenResponse) -> bool:
        """Wait until there is something to send, the client has left, or a filler is due; return whether it may be due."""
        loop = self._guest.loop
        self._wake = loop.create_future()
        silence = response.watch(self._notify)
        if silence is None:
            if self._looking is None and loop.time() >= self._look_at:
                self._look()
            return False
        if self._looking is None:
            # At a fixed time: a call that says something again and again would put it off, and uvicorn drops what is sent to a
            # client that has left.
            self._timer = loop.call_at(self._look_at, self._look_and_wait, silence)
        else:
            self._timer = loop.call_later(silence, self._notify)
        try:
            await self._wake
        finally:
            self._timer.cancel()
            is_silent = not response.is_ready
            response.stop_watching()
        return is_silent

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _look_and_wait(self, silence: float) -> None:
        self._look()
        self._timer = self._guest.loop.call_later(silence, self._notify)

    def _look(self) -> None:
        self._looking = self._guest.loop.create_task(self._wait_for_disconnect(), name="waiting for a client to leave")

    async def _wait_for_disconnect(self) -> None:
        # Further parts of the body, if there are any, mean nothing here.
        with suppress(OSError):
            while (await self._receive())["type"] != "http.disconnect":
                pass
        self._has_left = True
        self._notify()

    async def _end_when_expired(self, response: OpenResponse, expiry: Expiry) -> None:
        await TrioCall(self._guest, expiry).result(self._context)
        response.end_response()

    def _end(self) -> None:
        self._guest.calls.discard(self)
        if self._looking is not None:
            self._looking.cancel()
        # The end of Trio is that of its calls.
        if isinstance(self._response, OpenResponse) and not self._guest.is_ending:
            if self._sending.is_complete:
                self._response.finish()
            else:
                self._response.lose()

    async def _reject(self) -> None:
        """Send 503 if Trio has failed before the response began."""
        if self._guest.is_ending and self._sending.status is None and not self._has_left:
            with suppress(OSError):
                await self._sending.whole(UNAVAILABLE)
