"""One request of a connection, and its response.

| a request          | event                               | next                                                        |
|--------------------|-------------------------------------|-------------------------------------------------------------|
| begins             | the application returns a response  | open, or known at once                                      |
| open               | its whole response is known         | written from where its call ends; over                      |
| open               | something is said before its end    | a part of a stream is written from there, or gathered       |
| open               | its call ends a stream              | the answer is written from there, or with what was gathered |
| open               | a part can only be had by waiting   | a task waits for it, and writes it; open                    |
| open               | silence, for as long as it may last | a filler is written                                         |
| open               | its credentials expire              | the stream is ended as by its call                          |
| open               | the client leaves                   | over; the application loses its client                      |

Gathering: what is said is written before the call goes on if the last part was written `GATHERING_SECONDS` ago. Else it waits for
some turns of the event loop (`Gatherer`), and what is said meanwhile, the answer too, shares its write. While the kernel takes no
more, nothing is taken from the outbox, which then slows the call down.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Final, Protocol

import trio

from ..asgi.access import Headers
from ..asgi.access_log import AccessRecord
from ..asgi.requests import Expiry
from ..asgi.responses import BrokenOff, KnownResponse, OpenResponse, StreamPart
from .body import SentBody
from .connections import ConnectionFacts
from .request_head import RequestHead
from .response import RESPONSE_500, StreamWriter, Writer, says_close, whole_response

GATHERING_SECONDS: Final = 0.005
"""A call that speaks less often than this is written at once."""


class RequestOwner(Protocol):
    """The connection, as far as one request is concerned."""

    writer: Writer
    facts: ConnectionFacts

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` in a task of the connection."""

    def limit_silence(self, seconds: float) -> None:
        """Call `OpenRequest.go_on` in `seconds`, unless the request ends before."""

    def log_failure(self, error: Exception) -> None:
        """Log an error that ends the response."""

    def end(self, discards: int | None, *, closes: bool) -> None:
        """Go on after the response has been written.

        Args:
            discards: how many bytes of the body are still to come, and are of no use; None if the connection cannot go on
                after them.
        """


class ResponseNote:
    """What is noted of a response for the access logs, ours and hypercorn's.

    Args:
        record: in ours; None without one.
        log: notes a status, or None, and headers in hypercorn's.
    """

    __slots__ = ("_is_over", "_log", "_record", "headers", "size", "status")

    def __init__(self, record: AccessRecord | None, log: Callable[[int | None, Headers], None]) -> None:
        self.status: int | None = None
        self.headers: Headers = ()
        self.size = 0
        self._record = record
        self._log = log
        self._is_over = False

    def end(self, *, is_complete: bool) -> None:
        """Write it. Once: a client may leave while the last of its response is written."""
        if self._is_over:
            return
        self._is_over = True
        self._log(self.status, self.headers)
        if self._record is not None:
            self._record.end(self.status, self.size, is_complete=is_complete)


class OpenRequest:
    """One request, from its head until its response has been written.

    Args:
        body: if it has not come whole.
        is_last: the connection is closed after it.

    Attributes:
        note: of its response; None without an access log.
        is_lost: its client has gone.
    """

    __slots__ = (
        "_body",
        "_expiring",
        "_is_gathering",
        "_is_head",
        "_is_waiting",
        "_is_writing",
        "_keeps_alive",
        "_owner",
        "_response",
        "_stream",
        "_takes_chunks",
        "_written_at",
        "is_lost",
        "note",
    )

    def __init__(self, owner: RequestOwner, head: RequestHead, body: SentBody | None, *, is_last: bool) -> None:
        self._owner = owner
        self._body = body
        self._is_head = head.method == "HEAD"
        self._keeps_alive = head.keeps_alive and not is_last
        self._takes_chunks = head.takes_chunks
        self.note: ResponseNote | None = None
        self.is_lost = False
        self._response: OpenResponse | None = None
        """None before it and at its end."""
        self._stream: StreamWriter | None = None
        """Frames the parts of a stream; None before the first."""
        self._expiring: trio.CancelScope | None = None
        self._is_writing = False
        """A part is being waited for or written; nothing else may be before its end."""
        self._is_waiting = False
        """A task waits for a part."""
        self._is_gathering = False
        self._written_at = -inf

    @property
    def is_beginning(self) -> bool:
        """Whether the application has not begun to respond; it may still read the body."""
        return self._response is None

    def _discards(self, body: SentBody) -> int | None:
        """Return what is left of the body; see `RequestOwner.end`."""
        if self.is_lost:
            return 0
        return body.left if body.may_be_discarded else None

    def begin(self, response: KnownResponse | OpenResponse) -> None:
        """Write the response if it is known; else wait for something to write."""
        if isinstance(response, KnownResponse):
            if not self.is_lost:
                self._write(response, None)
        elif self.is_lost:
            response.lose()
        else:
            self._response = response
            if response.expiry is not None:
                self._expiring = trio.CancelScope()
                self._owner.run(partial(self._end_when_expired, response, response.expiry, self._expiring))
            self._watch(response)

    def go_on(self) -> None:
        """Send a filler, after a silence."""
        response = self._response
        # What is being written or gathered is no silence.
        if response is not None and not self._is_writing and not self._is_gathering:
            self._try(response, partial(self._write_part, response, response.take_filler))

    def lose(self) -> None:
        """The client has gone."""
        if self.is_lost:
            return
        self.is_lost = True
        response, self._response = self._response, None
        # Not while a task waits for a part: it does it then.
        if response is not None and not self._is_waiting:
            response.lose()
        self._note_end(is_complete=False)

    def fail(self) -> None:
        """Answer 500, and close."""
        if self.note is not None:
            self.note.status = 500
        self._write_pieces((RESPONSE_500,), partial(self._end, closes=True))

    def _write_pieces(self, pieces: Sequence[bytes], on_written: Callable[[], None]) -> None:
        if self._owner.writer.write_or_start(pieces, on_written):
            on_written()

    async def _end_when_expired(self, response: OpenResponse, expiry: Expiry, scope: trio.CancelScope) -> None:
        with scope:
            await expiry()
            response.end_response()

    def _watch(self, response: OpenResponse) -> None:
        silence = response.watch(self._on_ready)
        if silence is None:
            self._on_ready()
        else:
            self._owner.limit_silence(silence)

    def _on_ready(self) -> None:
        response = self._response
        if response is None or self._is_writing:
            return
        self._try(response, partial(self._send_next, response))

    def _try(self, response: OpenResponse, send: Callable[[], None]) -> None:
        """Send something from where it was said: nothing that fails here belongs to the actor that said it."""
        try:
            send()
        except Exception as error:  # noqa: BLE001
            self._owner.log_failure(error)
            self._abandon(response)

    def _send_next(self, response: OpenResponse) -> None:
        known = response.take_known() if self._stream is None else None
        if known is not None:
            self._response = None
            self._write(known, response)
        elif response.is_complete or trio.current_time() - self._written_at >= GATHERING_SECONDS:
            self._write_part(response, response.take_part)
        elif not self._is_gathering:
            self._is_gathering = True
            self._owner.facts.connections.gatherer.add(self._write_gathered)

    def _abandon(self, response: OpenResponse) -> None:
        """It could not be sent: close the connection."""
        self._response = None
        response.lose()
        self._break_off()

    def _break_off(self) -> None:
        """Answer 500 if nothing was written, and close."""
        if self._stream is None:
            self.fail()
        else:
            self._end(closes=True, is_complete=False)

    # The response in one write

    def _write(self, known: KnownResponse, response: OpenResponse | None) -> None:
        owner, facts = self._owner, self._owner.facts
        closes = not self._keeps_alive or facts.context.terminated.is_set()
        closes = closes or (self._body is not None and self._discards(self._body) is None)
        closes = closes or bool(known.headers and says_close(known.headers))
        try:
            pieces = whole_response(
                known, facts.connections.own_head(facts.config), closes=closes, is_head=self._is_head
            )
        except Exception as error:  # noqa: BLE001
            owner.log_failure(error)
            if response is not None:
                response.lose()
            self.fail()
            return
        if self.note is not None:
            self.note.status, self.note.headers, self.note.size = known.status, known.head, len(known.body)
        self._write_pieces(pieces, partial(self._end_known, response, closes=closes))

    def _end_known(self, response: OpenResponse | None, *, closes: bool) -> None:
        try:
            if response is not None:
                response.finish()
        except Exception as error:  # noqa: BLE001  see `_try`
            self._owner.log_failure(error)
            closes = True
        self._end(closes=closes)

    def _end(self, *, closes: bool, is_complete: bool = True) -> None:
        self._note_end(is_complete=is_complete)
        self._owner.end(0 if self._body is None else self._discards(self._body), closes=closes)

    def _note_end(self, *, is_complete: bool) -> None:
        if self._expiring is not None:
            self._expiring.cancel()
        if self.note is not None:
            self.note.end(is_complete=is_complete)

    # The response in parts

    def _write_gathered(self) -> None:
        self._is_gathering = False
        response = self._response
        # Else what was gathered has been written with the answer, or waits for a write.
        if response is not None and not self._is_writing:
            self._try(response, partial(self._write_part, response, response.take_part))

    def _write_part(self, response: OpenResponse, take: Callable[[], StreamPart | None]) -> None:
        part = take()
        if part is not None:
            self._write_taken(response, part)
        else:
            self._is_writing = self._is_waiting = True
            self._owner.run(partial(self._wait_part, response))

    async def _wait_part(self, response: OpenResponse) -> None:
        """Write a part that has to be waited for; a task of the connection."""
        part, breaks_off = None, self._break_off
        try:
            part = await response.wait_part()
        except BrokenOff:
            # Who raises it has logged why. An answer, of whatever status, would say what became of the request.
            breaks_off = partial(self._end, closes=True, is_complete=False)
        except Exception as error:  # noqa: BLE001
            self._owner.log_failure(error)
        finally:
            self._is_writing = self._is_waiting = False
            # Also when the connection is cut.
            if self.is_lost or part is None:
                self._response = None
                response.lose()
        if part is not None and not self.is_lost:
            self._try(response, partial(self._write_taken, response, part))
        elif not self.is_lost:
            breaks_off()

    def _write_taken(self, response: OpenResponse, part: StreamPart) -> None:
        owner = self._owner
        if self._stream is None:
            facts, headers = owner.facts, part.headers or ()
            closes = not self._keeps_alive or facts.context.terminated.is_set()
            closes = closes or (self._body is not None and self._body.left != 0)
            own = facts.connections.own_head(facts.config)
            self._stream = StreamWriter(headers, own, closes=closes, takes_chunks=self._takes_chunks)
            if self.note is not None:
                self.note.status, self.note.headers = 200, headers
        if part.is_last:
            self._response = None
        if self.note is not None:
            self.note.size += len(part.body)
        self._is_writing = True
        pieces = self._stream.framed(part.body, is_last=part.is_last)
        self._write_pieces(pieces, partial(self._end_part, response, self._stream, is_last=part.is_last))

    def _end_part(self, response: OpenResponse, stream: StreamWriter, *, is_last: bool) -> None:
        self._is_writing = False
        self._written_at = trio.current_time()
        if is_last:
            self._end_known(response, closes=stream.closes)
        elif self._response is not None:
            self._watch(response)
