"""The client's half of the opening handshake (RFC 6455, 4.1), and what becomes of it when the server does not want to."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import TypeAlias, cast
from urllib.parse import urlsplit

import trio
from trio_websocket import ConnectionRejected, WebSocketConnection, wrap_client_stream

from trio_mcp.base.groups import cause_chain
from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.protocol.jsonrpc import ErrorResponse, parse

from ..connecting import certificate_hint, is_plain_text
from .close_codes import SUBPROTOCOL

# What a client's WebSocket runs over: the byte stream to a server, and what is watched on it.
#
# trio-websocket bounds a message. It does not bound what comes before the handshake is done (the body of a refusal), nor how
# many
# empty fragments make a message; and it does not say when bytes arrived last.

MAX_HANDSHAKE = 256 * 1024
"""Bytes that a server may send before the connection is open, and along with the answer that opens it."""


class Address(NamedTuple):
    """Where a WebSocket URL leads.

    Attributes:
        authority: the host, and the port where it is not the scheme's own, as the Host header says it.
        resource: the path and the query.
    """

    secure: bool
    host: str
    port: int
    authority: str
    resource: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL.

        Raises:
            ValueError: it is none of a WebSocket, has credentials in it, or a fragment (RFC 6455, 3).
        """
        parts = urlsplit(url)
        secure = parts.scheme == "wss"
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ValueError(f"{url!r:.200} is not a ws(s) URL, such as 'ws://127.0.0.1:8000/mcp'")
        # Credentials in a URL end up in logs and process lists.
        if parts.username is not None:
            raise ValueError("a ws(s) URL has no user in it: send headers={'authorization': ...}")
        if "#" in url:
            raise ValueError("a ws(s) URL has no fragment")
        # They would go into the request line as they are, where a line break would start another header.
        if not url.isascii() or any(sign.isspace() for sign in url):
            raise ValueError(f"{url!r:.200} has characters that a URL escapes")
        usual = 443 if secure else 80
        port = parts.port or usual
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(secure, parts.hostname, port, name if port == usual else f"{name}:{port}", resource)


class LimitedStream(trio.abc.Stream):
    """A byte stream that notes when bytes arrived, and ends when too many come at a time or a write takes too long.

    Attributes:
        last_received_at: when bytes came last, on Trio's clock.
        reading: whether a task waits for bytes; otherwise the time since the last bytes says nothing about the server.
        allowance: bytes that may still come; the owner raises it with each message.
        write_deadline: seconds that the server may take to read what is written at once; a pong too, for which the
            library's reader waits.
        stalled: a write took longer, and the stream was closed.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.last_received_at = trio.current_time()
        self.reading = False
        self.allowance: float = MAX_HANDSHAKE
        self.write_deadline = inf
        self.stalled = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Raises `trio.BrokenResourceError` when more came than is allowed."""
        self.reading = True
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        finally:
            self.reading = False
        self.last_received_at = trio.current_time()
        self.allowance -= len(data)
        if self.allowance < 0:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("the server sent too much at a time")
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Raises `trio.BrokenResourceError` when the server did not read in time."""
        with trio.move_on_after(self.write_deadline) as writing:
            await self._stream.send_all(data)
        if writing.cancelled_caught:
            self.stalled = True
            # Closed at once: after a part of a frame nothing else may follow, and the reader has to end as well.
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("the server did not read in time")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def open_wire(address: Address, tls: ssl.SSLContext | None) -> LimitedStream:
    """Connect to a server, with TLS if its URL requires it. A cancel leaves nothing open.

    Raises:
        OSError: it cannot be reached; or its certificate is not one that `tls` trusts.
    """
    if not address.secure:
        return LimitedStream(await trio.open_tcp_stream(address.host, address.port))
    stream = await trio.open_ssl_over_tcp_stream(address.host, address.port, https_compatible=True, ssl_context=tls)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(stream)
        raise OSError(f"TLS: {error.__cause__ or error}") from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return LimitedStream(stream)


Failed: TypeAlias = Callable[[str], None]

CLOSED_BEFORE_UPGRADE = "it closed the connection before it had answered the upgrade"
PERHAPS_TLS = "; is it wss:// instead of ws://?"


class HandshakeRejected(Exception):
    """The server did not let the connection be opened; the text says how.

    Attributes:
        status: of its response; 0 if there was none.
        headers: of its response, with names in lower case.
    """

    def __init__(self, why: str, status: int = 0, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers


async def open_socket(
    nursery: trio.Nursery,
    wire: LimitedStream,
    address: Address,
    headers: Mapping[str, str],
    max_message: int,
    failed: Failed,
    subprotocol: str | None = SUBPROTOCOL,
) -> WebSocketConnection:
    """Ask for a WebSocket; its reader runs in the nursery, and `failed` is called when an error ends it, now or later.

    Args:
        max_message: characters of one message.
        subprotocol: what the server has to speak; None: nothing in particular.

    Raises:
        HandshakeRejected: the server did not want to, or is none of MCP.

    A cancel leaves the wire to its owner.
    """
    socket: WebSocketConnection | None = None
    opening = trio.CancelScope()
    tasks = ReaderNursery(nursery, failed, opening)
    with opening:
        socket = await wrap_client_stream(
            cast("trio.Nursery", tasks),
            cast("trio.SocketStream", wire),
            address.authority,
            address.resource,
            subprotocols=[] if subprotocol is None else [subprotocol],
            extra_headers=[(name.encode(), value.encode()) for name, value in headers.items()],
            message_queue_size=0,
            max_message_size=max_message,
            receive_buffer_size=None,
        )
    if socket is None:
        # A server that speaks TLS closes a connection without it.
        question = "" if address.secure else PERHAPS_TLS
        raise tasks.rejection or HandshakeRejected(tasks.failure or f"{CLOSED_BEFORE_UPGRADE}{question}")
    # A server that ignores the subprotocol does not know MCP over WebSocket, and would answer the first message with
    # anything.
    if socket.subprotocol != subprotocol:
        raise HandshakeRejected(f"it does not speak the subprotocol {subprotocol}")
    return socket


class ReaderNursery:
    """Stands for a nursery where trio-websocket starts its reader: its errors are passed to `failed` and break nothing else."""

    def __init__(self, nursery: trio.Nursery, failed: Failed, opening: trio.CancelScope) -> None:
        self.failure: str | None = None
        self.rejection: HandshakeRejected | None = None
        self._nursery = nursery
        self._failed = failed
        self._opening = opening

    def start_soon(self, reader: Callable[[], Awaitable[None]]) -> None:
        """As `trio.Nursery.start_soon` for the one task there is."""
        self._nursery.start_soon(self._run, reader)

    async def _run(self, reader: Callable[[], Awaitable[None]]) -> None:
        try:
            await reader()
        except ConnectionRejected as rejection:
            why = rejection_text(rejection)
            self.rejection = HandshakeRejected(why, rejection.status_code, headers_in(rejection))
            self._fail(why)
        # What the reader raises is reported to the users of the connection, and ends nothing else.
        except Exception as error:  # noqa: BLE001
            self._fail(f"the connection failed: {error_text(error)}")
        finally:
            # The library waits for a handshake that can no longer come once its reader has ended.
            self._opening.cancel()

    def _fail(self, why: str) -> None:
        self.failure = why
        self._failed(why)


def rejection_text(rejection: ConnectionRejected) -> str:
    """The status of a refusal, and the sentence in its body."""
    # The sentence is for a person: a page of HTML is cut.
    body = (rejection.body or b"")[:10_000]
    message = parse(body)
    text = message.error.message if isinstance(message, ErrorResponse) else body.decode("utf-8", "replace")
    words = " ".join(text.split())[:200]
    return f"the server answered HTTP {rejection.status_code}{': ' if words else ''}{words}"


def headers_in(rejection: ConnectionRejected) -> dict[str, str]:
    """The headers of a refusal; several of one name are joined."""
    found: dict[str, str] = {}
    for raw_name, raw_value in rejection.headers or ():
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def error_text(error: BaseException) -> str:
    """One line about an error; Trio wraps what went wrong with each address of a host."""
    if is_plain_text(error):
        return "no TLS is spoken there; is it ws:// instead of wss://?"
    # The cause is also what was wrong with the server's answer, when the library failed in telling the server so.
    *_, cause = cause_chain(error)
    return f"{str(cause) or type(cause).__name__}{certificate_hint(cause)}"
