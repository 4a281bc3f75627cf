"""Serving the requests that other processes pass on to this one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from trio_mcp.base.logs import peer_logger
from trio_mcp.errors import ProtocolError
from trio_mcp.protocol.http.headers import SESSION_HEADER

from ...asgi.adapter import Message, Sending, send_open
from ...asgi.requests import AuthorizedRequest
from ...asgi.responses import KnownResponse, OpenResponse, Response, rejection_of
from .frames import CHUNK, WINDOW_BYTES, Frame, Kind, LinkBroken, limits_of_front
from .link import Link, is_own_user, run_logged
from .requests import decoded_request, encoded_head, encoded_whole

logger = peer_logger("trio_mcp.link")

LAST_ACCEPT_SECONDS: Final = 0.05
"""For how long links that wait to be accepted still are: each has sent a request, perhaps, and learns that it was not read."""


class ServedHere(Protocol):
    """The application, as far as requests of other processes are concerned."""

    @property
    def is_leaving(self) -> bool:
        """Whether it takes nothing new."""
        ...

    @property
    def passes_on(self) -> bool:
        """Whether other processes get what is theirs from this one."""
        ...

    def has_session(self, session_id: str) -> bool:
        """Return whether a session is in this process."""
        ...

    async def serve_forwarded(self, incoming: AuthorizedRequest) -> Response:
        """Return the response to a request that is for this process. Raises `ProtocolError` for a refusal."""
        ...


class Owner:
    """The link from one front, at this end."""

    def __init__(self, stream: trio.SocketStream, max_body: int, here: ServedHere, nursery: trio.Nursery) -> None:
        self.link = Link(stream, limits_of_front(max_body), self._receive, self._end)
        self._here = here
        self._nursery = nursery
        self._open: dict[int, Serving] = {}
        self._last = 0
        self._is_finishing = False

    def _receive(self, frame: Frame) -> None:
        serving = self._open.get(frame.number)
        if self._is_finishing and frame.number > self._last:
            # The front learns from LAST that nothing was done for it.
            return
        if frame.kind is Kind.REQUEST:
            if frame.number != self._last + 1:
                raise LinkBroken(f"request {frame.number} follows {self._last}")
            self._last = frame.number
            serving = self._open[frame.number] = Serving(self.link, frame.number, *decoded_request(frame.data))
            self._nursery.start_soon(self._serve, serving)
        elif frame.number > self._last:
            raise LinkBroken(f"a frame about request {frame.number}, which never was")
        elif serving is not None and frame.kind is Kind.GONE:
            serving.leave()
        elif serving is not None:
            serving.widen(int.from_bytes(frame.data, "big"))

    async def _serve(self, serving: Serving) -> None:
        try:
            await serving.serve(self._here)
        finally:
            self._open.pop(serving.number, None)
            serving.over.set()

    def refuse_further(self) -> None:
        """Read no further request, and let the front know."""
        self._is_finishing = True
        self.link.post(Kind.LAST, self._last)

    async def finish(self) -> None:
        """Wait until all responses are written."""
        for serving in [*self._open.values()]:
            await serving.over.wait()
        await self.link.flush()

    def _end(self) -> None:
        for serving in self._open.values():
            serving.leave()


class Serving(Sending):
    """One request of a front, and its client.

    Attributes:
        over: set at its end.
    """

    def __init__(self, link: Link, number: int, incoming: AuthorizedRequest, begins: bool) -> None:
        super().__init__(self._send_message, is_head=False)
        self.number = number
        self.over = trio.Event()
        self._link = link
        self._incoming = incoming
        self._begins = begins
        self._window = WINDOW_BYTES
        self._is_gone = False
        """Its client, or the front, has gone."""
        self._wider: trio.Event | None = None
        """Set when the window was widened; None while that is not waited for."""
        self._ready: trio.Event | None = None
        """Set when there is something to send; None while that is not waited for."""

    def widen(self, size: int) -> None:
        """Let this number of bytes more of the body be sent. Raises `LinkBroken` for more than were."""
        self._window += size
        if self._window > WINDOW_BYTES:
            raise LinkBroken("a window that is too wide")
        if self._wider is not None:
            self._wider.set()

    def leave(self) -> None:
        """Note that its client has gone."""
        self._is_gone = True
        self.wake()
        if self._wider is not None:
            self._wider.set()

    async def serve(self, here: ServedHere) -> None:
        """Serve it to its end."""
        if self._begins and self._is_gone:
            # It came while this process hung: its client has left, or was told to send it again.
            return
        session_id = self._incoming.peer.headers.get(SESSION_HEADER)
        if session_id is not None and not here.has_session(session_id):
            # Those of a process that is leaving have ended here: it has them until it has left.
            self._link.post(Kind.LEAVING if here.is_leaving else Kind.MOVED, self.number)
            return
        if self._begins and here.is_leaving:
            self._link.post(Kind.LEAVING, self.number)
            return
        try:
            response = await here.serve_forwarded(self._incoming)
        except ProtocolError as error:
            response = rejection_of(error)
        except Exception:
            logger.exception("a request of another process failed")
            self._link.post(Kind.BROKEN, self.number)
            return
        if here.is_leaving and isinstance(response, KnownResponse) and response.status == 503:
            # It is refused as this process ends, and nothing was begun.
            self._link.post(Kind.LEAVING, self.number)
            return
        self._link.post(Kind.ACCEPTED, self.number)
        try:
            if isinstance(response, OpenResponse):
                await send_open(response, self, self)
            elif isinstance(response, KnownResponse):
                await self.whole(response)
        except Exception:
            logger.exception("the response to a request of another process failed")
        finally:
            if not self.is_complete and not self._is_gone:
                self._link.post(Kind.BROKEN, self.number)

    # as a `WaitingClient`

    def wake(self) -> None:
        if self._ready is not None:
            self._ready.set()

    async def wait(self, seconds: float) -> bool:
        if not self._is_gone:
            self._ready = trio.Event()
            with trio.move_on_after(seconds):
                await self._ready.wait()
            self._ready = None
        return not self._is_gone

    # as a `Sending`

    async def whole(self, response: KnownResponse) -> None:
        if len(response.body) > CHUNK:
            await super().whole(response)
        else:
            self._link.post(Kind.WHOLE, self.number, encoded_whole(response))
            self.status, self.size, self.is_complete = response.status, len(response.body), True

    async def break_off(self) -> None:
        """Nothing: `serve` lets the front know."""

    async def _send_message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._link.post(Kind.HEAD, self.number, encoded_head(message["status"], message["headers"]))
            return
        body: bytes = message["body"]
        # Not a stream: the front has it whole, as this process has.
        for start in range(0, len(body), CHUNK):
            await self._send_part(body[start : start + CHUNK])
        if not message["more_body"]:
            self._link.post(Kind.END, self.number)

    async def _send_part(self, part: bytes) -> None:
        while self._window < len(part) and not self._is_gone:
            self._wider = trio.Event()
            await self._wider.wait()
        self._wider = None
        if self._is_gone:
            raise BrokenPipeError("the client has gone")
        self._window -= len(part)
        self._link.post(Kind.DATA, self.number, part)


@dataclass(slots=True, eq=False)
class Owners:
    """The links from all fronts, at this end.

    Args:
        max_body: most bytes of the body of a request.
        nursery: runs the links, and serves their requests.
    """

    _max_body: int
    _here: ServedHere
    _nursery: trio.Nursery
    _open: set[Owner] = field(default_factory=set[Owner], init=False)
    _is_finishing: bool = field(default=False, init=False)

    async def accept(self, sock: trio.socket.SocketType) -> None:
        """Accept links until cancelled."""
        while True:
            accepted, _ = await sock.accept()
            if not is_own_user(accepted):
                logger.warning("a link of another user was closed")
                accepted.close()
                continue
            owner = Owner(trio.SocketStream(accepted), self._max_body, self._here, self._nursery)
            if self._is_finishing:
                owner.refuse_further()
            self._nursery.start_soon(self._run, owner)

    async def finish(self) -> None:
        """Read no further request, also of links that wait to be accepted, and wait until all responses are written."""
        self._is_finishing = True
        for owner in self._open:
            owner.refuse_further()
        await trio.sleep(LAST_ACCEPT_SECONDS)
        for owner in [*self._open]:
            await owner.finish()

    async def _run(self, owner: Owner) -> None:
        self._open.add(owner)
        try:
            await run_logged(owner.link)
        finally:
            self._open.discard(owner)
