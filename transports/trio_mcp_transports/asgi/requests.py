"""A request as the application gets it, from our own connection or from an ASGI server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from io import BytesIO
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import trio

from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.errors import LimitExceeded
from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.runtime import Account
from trio_mcp.session import Peer

from .access import Headers, HttpRejection, read_headers
from .access_log import AccessRecord

T = TypeVar("T")

Expiry: TypeAlias = Callable[[], Awaitable[None]]
"""Returns when the credentials of an open connection are no longer accepted: its headers came once, and may expire."""


class Watch(Protocol):
    """Awaits a coroutine in the task of the caller."""

    async def __call__(self, work: Coroutine[Any, Any, T], scope: trio.CancelScope) -> T:
        """Return what `work` returns. If the client leaves before that, cancel `scope`, where the server notices that."""
        ...


async def unwatched(work: Coroutine[Any, Any, T], scope: trio.CancelScope) -> T:  # noqa: ARG001  the client is not watched
    """Await `work`; the server does not notice that the client leaves."""
    return await work


class Body:
    """The body of a request.

    Attributes:
        whole: all of it, if it has come; None if it has to be received.
    """

    __slots__ = ("whole",)

    def __init__(self, whole: bytes | None = None) -> None:
        self.whole = whole

    async def receive(self) -> bytes:
        """Receive the next part of a body that has not come whole; b"" at its end.

        Raises:
            HttpRejection: 400, the client went away in the middle, or broke the framing.
        """
        raise NotImplementedError


NO_BODY: Final = Body(b"")


class Request:
    """One request, also for a WebSocket.

    Args:
        lines: the headers as they came, in place of `headers`.

    Attributes:
        path: decoded, with `root_path` in front of it, except where a proxy has removed that and only a setting names it.
        query: what follows the question mark, as it was sent.
        client: the address and the port of the client; None if it has none.
        connection: tells its connection from others: an object under our own server, else the client's address. For a request
            that came through a trusted proxy it is the address of the client that this names.
        origin: of the web page that sent it; None if none did.
        websocket: the subprotocols that the client of a WebSocket offers; None for any other request.
        watch: see `Watch`.
        record: in the access log; None without one, and for probes.
    """

    __slots__ = (
        "_headers",
        "_lines",
        "body",
        "client",
        "connection",
        "method",
        "origin",
        "path",
        "query",
        "record",
        "root_path",
        "scheme",
        "watch",
        "websocket",
    )

    def __init__(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None,
        body: Body,
        *,
        lines: Headers = (),
        query: str = "",
        root_path: str = "",
        scheme: str = "http",
        client: tuple[str, int] | None = None,
        connection: Hashable = None,
        websocket: list[str] | None = None,
        watch: Watch = unwatched,
    ) -> None:
        self.method = method
        self.path = path
        self.body = body
        self.query = query
        self.root_path = root_path
        self.scheme = scheme
        self.client = client
        self.connection = connection
        self.websocket = websocket
        self.watch = watch
        self.record: AccessRecord | None = None
        self._headers = headers
        self._lines = lines
        self.origin = self.header("origin")

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by lower-case name.

        Raises:
            HttpRejection: 400, see `read_headers`.
        """
        if self._headers is None:
            self._headers, self._lines = read_headers(self._lines), ()
        return self._headers

    @headers.setter
    def headers(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def header(self, name: str) -> str | None:
        """Return a header, the first one if it came twice."""
        if self._headers is not None:
            return self._headers.get(name)
        raw = name.encode("latin-1")
        return next((value.decode("latin-1") for each, value in self._lines if each == raw), None)

    def describe(self, record: AccessRecord) -> None:
        """Note in a record of the access log what the client has sent; nothing of the request is kept."""
        method = self.method if self.websocket is None else "WEBSOCKET"
        record.describe(method, self.path, None if self.client is None else str(self.client[0]))

    @property
    def root(self) -> str:
        """The path below which the application is mounted, without a slash at its end; empty at the top."""
        return self.root_path.rstrip("/")

    @property
    def route(self) -> str:
        """The path below the one where the application is mounted."""
        root = self.root
        if root and self.path.startswith(root) and self.path[len(root) :][:1] in ("", "/"):
            return self.path[len(root) :] or "/"
        return self.path

    @property
    def routes(self) -> tuple[str, ...]:
        """The paths that it may mean: below the root, and as it is, where both may be a path of the application."""
        # Mounted at `/mcp` by what removes the prefix, the application serves `/mcp/mcp` as `/mcp`.
        below = self.route
        return (below,) if below == self.path else (below, self.path)


class AuthorizedRequest(NamedTuple):
    """A request whose sender may call; nothing of its body has been read.

    Attributes:
        expiry: of the credentials of an open connection; None without authentication.
        is_usual: a head like that of this request has passed all checks of a POST (`PostChecks`).
    """

    request: Request
    peer: Peer
    expiry: Expiry | None = None
    is_usual: bool = False


def check_room(account: Account, size: int, peak: int = 0) -> None:
    """Raise `HttpRejection` (503) unless the memory budget has room for these bytes.

    Args:
        peak: the bytes that they are at a time, within one step.
    """
    try:
        account.check(size)
        if peak:
            account.check_step(peak)
    except LimitExceeded as error:
        # The connection is closed: what is still to come has no room either.
        raise HttpRejection(503, str(error), [(b"connection", b"close")], code=SERVER_BUSY) from None


async def read_body(request: Request, limit: int, seconds: float, account: Account) -> bytes:
    """Return the whole body of a request.

    Args:
        account: counts what has arrived of it.

    Raises:
        HttpRejection: 413 over `limit` bytes, 408 after `seconds`, 400 when the client went away in the middle, 503 when the
            memory budget has no room for it.
    """
    whole = request.body.whole
    if whole is not None:
        if len(whole) > limit:
            raise too_large(limit)
        return whole
    announced = request.header("content-length")
    # Checked before a byte is read. No size has twenty digits, and `int` of many digits is slow.
    length = int(announced) if announced is not None and announced.isdecimal() and len(announced) < 20 else 0
    if length > limit:
        raise too_large(limit)
    check_room(account, length)
    with trio.move_on_after(seconds):
        return await received_body(request.body, limit, account)
    raise HttpRejection(408, f"The body did not arrive within {seconds:g} seconds.", [(b"connection", b"close")])


async def received_body(body: Body, limit: int, account: Account) -> bytes:
    """Receive a body in parts; see `read_body`."""
    # Not a list of chunks: joined, they would be there twice, and leave holes in the heap as large as they were.
    whole = BytesIO()
    size = 0
    while chunk := await body.receive():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        check_room(account, len(chunk))
        account.draw(len(chunk))
        whole.write(chunk)
    # Without a copy: it is the bytes that were written to, cut to their length.
    return whole.getvalue()


def too_large(limit: int) -> HttpRejection:
    """Return the rejection of a body over the limit, in bytes."""
    # The connection is closed: the rest of the body may be without end, and is not read.
    return HttpRejection(413, f"A message has at most {limit} bytes.", [(b"connection", b"close")])
