"""The response of another process, as it comes over a link."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio

from trio_mcp.protocol.jsonrpc import SERVER_BUSY

from ...asgi.access import HttpRejection
from ...asgi.responses import BrokenOff, KnownResponse, OpenResponse, StreamPart, rejection_of
from .frames import WINDOW_BYTES, Kind, LinkBroken
from .requests import Head, decoded_head, decoded_whole, without_length

LOST: Final = "The process that served this request has ended. Send it again."


class Forwarded(OpenResponse):
    """The response of an owner, as it comes.

    Args:
        post: sends a frame about the request.
        on_over: called when nothing more is expected.
    """

    __slots__ = (
        "_body",
        "_head",
        "_is_broken",
        "_is_ended",
        "_on_over",
        "_on_ready",
        "_opened",
        "_post",
        "_read",
        "accepted",
        "ends_with_front",
        "is_leaving",
        "was_refused",
    )

    def __init__(self, post: Callable[[Kind, bytes], None], on_over: Callable[[], None]) -> None:
        super().__init__()
        self.accepted = trio.Event()
        """Set when the owner has said what becomes of the request, or has ended."""
        self.was_refused = self.is_leaving = False
        """The owner does not serve it: what it is about is not there, or the owner is leaving."""
        self.ends_with_front = False
        """It is a stream that belongs to no request."""
        self._post = post
        self._on_over = on_over
        self._head: Head | None = None
        self._body = bytearray()
        self._read = 0
        """Bytes that were read since the window was widened."""
        self._is_ended = self._is_broken = self._opened = False
        self._on_ready: Callable[[], None] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the owner has ended, and has not sent all."""
        return self._is_broken

    def receive(self, kind: Kind, data: bytes) -> None:
        """Take a frame. Raises `LinkBroken` for one that may not come now."""
        is_first = not self.accepted.is_set()
        match kind:
            case Kind.ACCEPTED if is_first:
                pass
            case Kind.MOVED | Kind.LEAVING if is_first:
                self.was_refused, self.is_leaving = True, kind is Kind.LEAVING
                self._end()
            case Kind.WHOLE if not is_first and self._head is None:
                self._head, self._body[:] = decoded_whole(data)
                self._end()
            case Kind.HEAD if not is_first and self._head is None:
                self._head = decoded_head(data)
            case Kind.DATA if self._head is not None:
                self._add(data)
            case Kind.END if self._head is not None:
                self._end()
            case Kind.BROKEN:
                self.break_off()
            case _:
                raise LinkBroken(f"a frame of kind {kind} out of order")
        self.accepted.set()
        self._notify()

    def _add(self, data: bytes) -> None:
        self._body += data
        if not self._is_stream:
            # It is sent when it is whole, as the owner has it.
            self._widen(len(data))
        elif len(self._body) > WINDOW_BYTES:
            raise LinkBroken("more of a body than may be on its way")

    def _widen(self, size: int) -> None:
        # Seldom: most bodies are short, and each frame wakes the owner.
        self._read += size
        if self._read >= WINDOW_BYTES // 2:
            self._post(Kind.WINDOW, self._read.to_bytes(4, "big"))
            self._read = 0

    def break_off(self) -> None:
        """Note that nothing more comes."""
        if not self._is_ended:
            self._is_broken = True
            self._end()
        self.accepted.set()
        self._notify()

    def _end(self) -> None:
        self._is_ended = True
        self._on_over()

    def _notify(self) -> None:
        if self._on_ready is not None and self.is_ready:
            self._on_ready()

    # as of an `OpenResponse`

    @property
    def is_ready(self) -> bool:
        return self._is_ended or (self._is_stream and (bool(self._body) or not self._opened))

    @property
    def _is_stream(self) -> bool:
        return self._head is not None and any(
            name == b"content-type" and value.startswith(b"text/event-stream") for name, value in self._head[1]
        )

    def watch(self, on_ready: Callable[[], None]) -> float | None:
        if self.is_ready:
            return None
        self._on_ready = on_ready
        # The owner sends the fillers.
        return math.inf

    def stop_watching(self) -> None:
        self._on_ready = None

    @property
    def is_complete(self) -> bool:
        return self._is_ended

    def take_known(self) -> KnownResponse | None:
        if self._opened or not self._is_ended:
            return None
        if self._head is None or (self._is_broken and not self._is_stream):
            lost = rejection_of(HttpRejection(503, LOST, code=SERVER_BUSY))
            lost.add_headers(self.headers)
            return lost
        if self._is_stream:
            return None
        status, headers = self._head
        return KnownResponse(status, bytes(self._body), [*without_length(headers), *self.headers], None)

    def take_part(self) -> StreamPart | None:
        if self._is_broken and not self._body:
            # Broken off: the end of a stream would say that nothing is missing.
            return None
        assert self._head is not None
        headers = None if self._opened else [*self._head[1], *self.headers]
        self._opened = True
        body = bytes(self._body)
        self._body.clear()
        if not self._is_ended:
            self._widen(len(body))
        return StreamPart(headers, body, self._is_ended and not self._is_broken)

    def take_filler(self) -> StreamPart | None:
        return None

    async def wait_part(self) -> StreamPart:
        await trio.lowlevel.checkpoint()
        if self._is_broken:
            raise BrokenOff
        raise AssertionError("every part is there, or none will come")

    def end_response(self) -> None:
        # Credentials that are no longer accepted: the owner ends the call as for a client that has left.
        self._leave()
        self._notify()

    def finish(self) -> None:
        self._leave()

    def lose(self) -> None:
        self.stop_watching()
        self._leave()

    def _leave(self) -> None:
        if not self._is_ended:
            self._post(Kind.GONE, b"")
            self._end()
