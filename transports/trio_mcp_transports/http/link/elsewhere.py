"""Requests for what another process has: the front passes them to the owner, and its response back.

    the front has authenticated, checked and parsed a request; it names
        a session or a call of this process, or none          serves it here
        one of a process that answers on its link             passes it on
        one of a process whose socket is gone                 serves it here, which claims what it is about when that has ended
        one of a process of another machine                   serves it here, when that has released it; else it is refused
    the owner
        accepts it                                            the response is what the owner sends
        says that it does not have it                         looks again
        says that it is leaving, or has not read it           waits until the owner has left, and looks again
        ends before it has accepted it                        looks again, for what may be sent twice; else 503
        ends after that                                       503, or breaks off the response

The owner serves a request as any other of its application, with the caller that the front has authenticated: no token crosses a
link. The limits that callers share count the connection at the front, by the name that the front gives it. On one machine the end
of a process is the end of its socket, and its parent kills one that hangs: a link needs no signs of life.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from trio_mcp.base.logs import peer_logger
from trio_mcp.base.values import JsonValue
from trio_mcp.protocol.http.headers import SESSION_HEADER
from trio_mcp.protocol.jsonrpc import SERVER_BUSY, Batch, Request as RpcRequest
from trio_mcp.session import Envelope, Received, Service
from trio_mcp.session.options import Workplace
from trio_mcp.storage import Store, StoreError

from ...asgi.access import HttpRejection
from ...asgi.requests import AuthorizedRequest, check_room
from ...asgi.responses import Response
from ..sessions.stored import SESSION_KIND, SessionHeld, session_key
from .forwarded import Forwarded
from .frames import LIMITS_OF_OWNER, MAX_HEAD, Frame, Kind, LinkBroken
from .link import Link, is_own_user, run_logged
from .owner import Owners, ServedHere
from .places import Places
from .requests import encoded_request

logger = peer_logger("trio_mcp.link")

ACCEPT_SECONDS: Final = 15.0
"""For how long an owner is waited for: longer than its parent lets it hang."""
UNWATCHED_SECONDS: Final = 0.1
"""For how long a client that leaves need not be noticed while its owner is waited for."""
LEAVE_SECONDS: Final = 15.0
"""For how long a process is waited for that is about to leave."""
CLAIM_SECONDS: Final = 3.0
"""For how long a session is looked for that another process is taking over."""
FLUSH_SECONDS: Final = 1.0
"""For how long a process that leaves writes what is left of its responses."""
LOOK_SECONDS: Final = 0.05
LOOKS: Final = 4
"""How often a request is passed on, or looked up, before it is served here."""


def socket_path(folder: Path, node: str) -> Path:
    """Return where a process listens for links: a short name, since the path of a socket may have 107 bytes."""
    return folder / f"l{hashlib.sha256(node.encode()).hexdigest()[:12]}"


def mark_of(socket: Path) -> Path:
    """Return the file that shows that a process listens here, or has listened: one of another machine has none."""
    return socket.with_suffix(".mark")


@dataclass(slots=True, eq=False)
class Front:
    """The link to one owner, from this end.

    Attributes:
        link: None until it is open.
        open: the responses that are expected, by number.
        ended: set when the link is over.
        last: the number of the last request that the owner has read; None while it reads more.
    """

    link: Link | None = None
    open: dict[int, Forwarded] = field(default_factory=dict[int, Forwarded])
    ended: trio.Event = field(default_factory=trio.Event)
    last: int | None = None
    _count: int = 0

    def send(self, data: bytes) -> Forwarded:
        """Pass a request on."""
        assert self.link is not None
        self._count = number = self._count + 1
        response = self.open[number] = Forwarded(partial(self._post, number), partial(self._forget, number))
        if self.last is None:
            self.link.post(Kind.REQUEST, number, data)
        else:
            response.receive(Kind.LEAVING, b"")
        return response

    def _forget(self, number: int) -> None:
        self.open.pop(number, None)

    def _post(self, number: int, kind: Kind, data: bytes) -> None:
        if self.link is not None:
            self.link.post(kind, number, data)

    def receive(self, frame: Frame) -> None:
        if frame.kind is Kind.LAST:
            self._note_last(frame.number)
            return
        # Of a request that was left: the owner had sent it before it knew.
        response = self.open.get(frame.number)
        if response is not None:
            response.receive(frame.kind, frame.data)
        elif not 0 < frame.number <= self._count:
            raise LinkBroken(f"a frame about request {frame.number}, which never was")

    def _note_last(self, last: int) -> None:
        if self.last is not None or last > self._count:
            raise LinkBroken(f"{last} is not the last of {self._count} requests")
        self.last = last
        for number, response in [*self.open.items()]:
            if number > last:
                response.receive(Kind.LEAVING, b"")

    def end(self) -> None:
        """Note that the link is over."""
        for response in [*self.open.values()]:
            response.break_off()
        self.ended.set()


class Elsewhere:
    """Passes requests on to the processes that have what they are about.

    Args:
        nursery: owns the links.
        here: the application of this process.
    """

    def __init__(
        self,
        service: Service,
        store: Store,
        workplace: Workplace,
        max_body: int,
        here: ServedHere,
        nursery: trio.Nursery,
    ) -> None:
        self._service = service
        self._store = store
        self._places = Places(service, store)
        self._workplace = workplace
        self._max_body = max_body
        self._here = here
        self._nursery = nursery
        self._fronts: dict[str, Front] = {}
        self._opening = trio.Lock()

    async def serve_message(
        self, envelope: Envelope[Received], incoming: AuthorizedRequest, here: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Return the response to a POST, that of another process if it is about what that one has.

        Args:
            here: serves it in this process.
        """
        return await self._serve(partial(self._carry_message, envelope, incoming), here)

    async def serve_session(self, incoming: AuthorizedRequest, here: Callable[[], Awaitable[Response]]) -> Response:
        """Return the response to a GET or a DELETE, as `serve_message` does."""
        return await self._serve(partial(self._carry_session_request, incoming), here)

    @property
    def stays(self) -> bool:
        """Whether other processes go on when this one ends."""
        return not self._workplace.is_ending

    def end_streams(self) -> None:
        """End the streams that belong to no request: this process is leaving."""
        for front in self._fronts.values():
            for response in [*front.open.values()]:
                if response.ends_with_front:
                    response.end_response()

    async def _serve(
        self, carry: Callable[[], Awaitable[Response | None]], here: Callable[[], Awaitable[Response]]
    ) -> Response:
        until = trio.current_time() + CLAIM_SECONDS
        while True:
            carried = await carry() if self._here.passes_on else None
            if carried is not None:
                return carried
            try:
                return await here()
            except SessionHeld as held:
                if trio.current_time() > until or not self.looks_for(held):
                    raise
                await trio.sleep(LOOK_SECONDS)

    async def _carry_message(self, envelope: Envelope[Received], incoming: AuthorizedRequest) -> Response | None:
        """Pass on a POST if it is about what another process has; None if it is to be served here."""
        message = envelope.message
        session_id = incoming.peer.headers.get(SESSION_HEADER)
        if session_id is not None:
            # A request may be one that was begun: only what does nothing when it comes twice is sent again.
            begins = isinstance(message, RpcRequest | Batch)
            return await self._carry_session(session_id, incoming, begins=begins, is_repeatable=not begins)
        params = message.params if isinstance(message, RpcRequest) else None
        state = params.get("requestState") if isinstance(params, dict) else None
        if state is None:
            return None
        # Who continues a call claims its leg first.
        return await self._carry(partial(self._node_of_state, state), incoming)

    async def _carry_session_request(self, incoming: AuthorizedRequest) -> Response | None:
        """Pass on a GET or a DELETE if another process has the session; None if it is to be served here."""
        session_id = incoming.peer.headers.get(SESSION_HEADER)
        if session_id is None:
            return None
        response = await self._carry_session(
            session_id, incoming, begins=incoming.request.method == "GET", is_repeatable=True
        )
        if isinstance(response, Forwarded):
            response.expiry = incoming.expiry
            response.ends_with_front = incoming.request.method == "GET"
        return response

    async def _carry_session(
        self, session_id: str, incoming: AuthorizedRequest, *, begins: bool, is_repeatable: bool
    ) -> Response | None:
        if self._here.has_session(session_id):
            return None
        key = session_key(session_id)
        find = partial(self._places.of_session, SESSION_KIND, key, incoming.peer.principal)
        return await self._carry(find, incoming, key, begins=begins, is_repeatable=is_repeatable)

    async def _node_of_state(self, state: JsonValue) -> str | None:
        await trio.lowlevel.checkpoint()
        return self._places.of_state(state)

    async def _carry(
        self,
        find: Callable[[], Awaitable[str | None]],
        incoming: AuthorizedRequest,
        key: str = "",
        *,
        begins: bool = False,
        is_repeatable: bool = True,
    ) -> Response | None:
        """Pass a request on to the process that `find` returns; None if there is none.

        Args:
            key: of the session that it is about.
            begins: it begins something, which a process that is leaving does not.
            is_repeatable: it may be sent again to another process.
        """
        for _ in range(LOOKS):
            node = await find()
            if node is None:
                break
            front = await self._front(node)
            if front is None:
                if self._is_near(node):
                    await self._wait_gone(node)
                break
            data = encoded_request(incoming, self._service.calls.node, begins=begins)
            if len(data) > MAX_HEAD + self._max_body:
                raise HttpRejection(431, "The headers of this request are too long.")
            with self._service.open_account(incoming.peer) as account:
                # It waits here while the owner hangs.
                check_room(account, len(data))
                account.draw(len(data))
                response = await self._accepted(front, incoming, data)
            is_answered = not response.was_refused and not response.is_lost
            if is_answered or (response.is_lost and not is_repeatable):
                return response.take_known() or response
            self._places.forget_session(key)
            if response.is_leaving:
                await self._wait_left(find, node, front, key)
        # Its record names the next owner, or is to be claimed.
        self._places.forget_session(key)
        return None

    def looks_for(self, held: SessionHeld) -> bool:
        """Return whether a session is looked for here: its record has, or soon has, the name of a process that can be reached."""
        return held.node is None or self._is_near(held.node)

    def _is_near(self, node: str) -> bool:
        """Return whether a process is, or was, one of this machine."""
        return mark_of(socket_path(self._workplace.folder, node)).exists()

    async def _wait_left(self, find: Callable[[], Awaitable[str | None]], node: str, front: Front, key: str) -> None:
        """Wait until a process that is leaving has ended, or has released what a request is about."""
        with trio.move_on_after(LEAVE_SECONDS):
            while not front.ended.is_set():
                await trio.sleep(LOOK_SECONDS)
                self._places.forget_session(key)
                if await find() != node:
                    return

    async def _wait_gone(self, node: str) -> None:
        """Wait until a process that has closed its links has ended, so that what it had can be claimed."""
        with trio.move_on_after(LEAVE_SECONDS):
            # A store that fails is seen by who serves the request here.
            with suppress(StoreError):
                while await self._store.is_alive(node):  # noqa: ASYNC110  nothing notifies of it
                    await trio.sleep(LOOK_SECONDS)

    async def _accepted(self, front: Front, incoming: AuthorizedRequest, data: bytes) -> Forwarded:
        """Send a request, and wait until the owner says what becomes of it. A client that leaves is noticed."""
        response = front.send(data)

        async def wait() -> None:
            with trio.move_on_after(ACCEPT_SECONDS):
                await response.accepted.wait()

        try:
            # To watch a client costs more than all else here.
            with trio.move_on_after(UNWATCHED_SECONDS):
                await response.accepted.wait()
            if not response.accepted.is_set():
                with trio.CancelScope() as scope:
                    await incoming.request.watch(wait(), scope)
        except BaseException:
            response.lose()
            raise
        if not response.accepted.is_set():
            response.lose()
            raise HttpRejection(
                503, "The process that has this did not answer. Try again in a moment.", code=SERVER_BUSY
            )
        return response

    def _open_front(self, node: str) -> Front | None:
        front = self._fronts.get(node)
        return None if front is None or front.ended.is_set() else front

    async def _front(self, node: str) -> Front | None:
        """Return the link to a process; None if it has gone."""
        front = self._open_front(node)
        if front is not None:
            return front
        async with self._opening:
            front = self._open_front(node)
            if front is not None:
                return front
            try:
                stream = await trio.open_unix_socket(str(socket_path(self._workplace.folder, node)))
            except OSError:
                self._fronts.pop(node, None)
                return None
            if not is_own_user(stream.socket):
                await trio.aclose_forcefully(stream)
                return None
            front = self._fronts[node] = Front()
            front.link = Link(stream, LIMITS_OF_OWNER, front.receive, front.end)
            self._nursery.start_soon(run_logged, front.link)
            return front


@asynccontextmanager
async def open_links(
    workplace: Workplace, service: Service, store: Store, max_body: int, here: ServedHere
) -> AsyncGenerator[Elsewhere]:
    """Accept the links of other processes in the block, and open those to them when they are needed."""
    path = socket_path(workplace.folder, service.calls.node)
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM) as sock:
        await sock.bind(str(path))
        path.chmod(0o600)
        mark_of(path).touch(0o600)
        sock.listen(128)

        def move() -> None:
            # Who still looks for the name before finds no socket.
            nonlocal path
            path = path.rename(socket_path(workplace.folder, service.calls.node))
            mark_of(path).touch(0o600)

        service.on_given_up.append(move)
        async with trio.open_nursery() as nursery:
            owners = Owners(max_body, here, nursery)
            nursery.start_soon(owners.accept, sock)
            try:
                yield Elsewhere(service, store, workplace, max_body, here, nursery)
            finally:
                # Who finds no socket knows that this process has left.
                path.unlink(missing_ok=True)
                with trio.move_on_after(FLUSH_SECONDS, shield=True):
                    await owners.finish()  # noqa: ASYNC102  it has a shield and a time limit
                nursery.cancel_scope.cancel()
