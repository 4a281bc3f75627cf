"""The client's half of the opening handshake (RFC 6455, 4.1), and what becomes of it when the server does not want to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias, cast

import trio
from trio_websocket import ConnectionRejected, WebSocketConnection, wrap_client_stream

from trio_mcp.groups import cause_chain
from trio_mcp.protocol.jsonrpc import ErrorResponse, parse

from ..tls import certificate_hint, is_plain_text
from .byte_stream import Address, LimitedStream
from .close_codes import SUBPROTOCOL

Failed: TypeAlias = Callable[[str], None]

CLOSED_BEFORE_UPGRADE = "it closed the connection before it had answered the upgrade"
PERHAPS_TLS = "; is it wss:// instead of ws://?"


class HandshakeRejected(Exception):
    """The server did not let the connection be opened; the text says how."""


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
        raise HandshakeRejected(tasks.failure or f"{CLOSED_BEFORE_UPGRADE}{question}")
    # A server that ignores the subprotocol does not know MCP over WebSocket, and would answer the first message with
    # anything.
    if socket.subprotocol != subprotocol:
        raise HandshakeRejected(f"it does not speak the subprotocol {subprotocol}")
    return socket


class ReaderNursery:
    """Stands for a nursery where trio-websocket starts its reader: its errors are passed to `failed` and break nothing else."""

    def __init__(self, nursery: trio.Nursery, failed: Failed, opening: trio.CancelScope) -> None:
        self.failure: str | None = None
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
            self._fail(rejection_text(rejection))
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


def error_text(error: BaseException) -> str:
    """One line about an error; Trio wraps what went wrong with each address of a host."""
    if is_plain_text(error):
        return "no TLS is spoken there; is it ws:// instead of wss://?"
    # The cause is also what was wrong with the server's answer, when the library failed in telling the server so.
    *_, cause = cause_chain(error)
    return f"{str(cause) or type(cause).__name__}{certificate_hint(cause)}"
