"""A channel that connects again when its connection breaks off: a command is started again, a WebSocket is opened again.

To the client it looks like HTTP: the requests that were open get no answer, a legacy session is lost, and the next request that
can begin something connects. What is sent again after that is decided where it was sent (`repeats`).
"""

# What `send_many` does with a message, by what became of the connection:
#
#     connection                          a modern request, `initialize`      another request         anything else
#     open                                sent                                sent                    sent
#     lost, the client not notified yet   dropped: fails with the others      dropped, the same       dropped
#     lost                                connects, then sent                 "session lost"          dropped
#     open again, before `initialize`     sent                                "session lost"          dropped
#
# One task opens and closes connections, one after the other: a server that is being ended is never met by its successor.

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, TypeAlias

import trio

from ..base.groups import single_exception
from ..base.logs import peer_logger
from ..errors import ServerBusy
from ..protocol.jsonrpc import Request, RequestId, Unanswered
from ..session import AnyChannel
from ..session.channel import MessageChannel, as_message_channel
from ..session.client import why_ended
from ..session.envelope import Envelope, Received, Sent

logger = peer_logger("trio_mcp.client")

LINGER: Final = 1.0
"""Seconds for which a connection that takes no more messages is still read."""

SESSION_LOST: Final = "the connection broke off, and the session ended with it"

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[AnyChannel]]


@asynccontextmanager
async def reconnecting(
    connect: Connect, *, lasting: bool = True, probed: bool = False
) -> AsyncGenerator[MessageChannel]:
    """Open a channel, and again whenever it has ended and something is to be sent; leaving the block closes it.

    Args:
        connect: returns a context manager that opens the channel.
        lasting: False for a channel that ends with the first connection on which the server said something.
        probed: the first request may be one that old servers take for fatal: one that ends without a word is connected to again.

    Raises:
        Exception: what the first `connect` raised. The failure of a later one answers what was to be sent.
    """
    channel = ReconnectingChannel(connect, lasting=lasting, probed=probed)
    async with trio.open_nursery() as nursery:
        await nursery.start(channel.keep_open)
        try:
            yield channel
        finally:
            channel.close()


class ReconnectingChannel(MessageChannel):
    """One connection after the other; made by `reconnecting`."""

    def __init__(self, connect: Connect, *, lasting: bool, probed: bool) -> None:
        self._connect = connect
        self._lasting = lasting
        self._may_be_probe = probed
        """Nothing was received yet, and the connection may have ended because of the probe."""
        self._inner: MessageChannel | None = None
        self._ended = trio.Event()
        """Set when the connection that is open now has ended."""
        self._changed = trio.Event()
        self._news: list[Envelope[Received]] = []
        """What `receive` returns next; only while there is no connection."""
        self._reading: trio.CancelScope | None = None
        self._wanted = False
        self._failure: Exception | None = None
        """Why the last attempt to connect failed."""
        self._is_telling = False
        """The client is being notified that the connection was lost."""
        self._lacks_session = False
        """The connection was lost, and no `initialize` was sent since."""
        self._has_received = False
        self._closed = False

    # connections

    async def keep_open(self, task_status: trio.TaskStatus[None]) -> None:
        """Open the first connection, and another whenever one is wanted, until `close`. Raises what opening the first raises."""
        async with self._connect() as channel:
            self._begin(as_message_channel(channel))
            task_status.started()
            await self._ended.wait()
        while not self._closed:
            if self._wanted:
                await self._open_again()
            else:
                await self._changed.wait()

    async def _open_again(self) -> None:
        """Hold another connection until it has ended."""
        try:
            async with self._connect() as channel:
                self._begin(as_message_channel(channel))
                await self._ended.wait()
        except Exception as error:  # noqa: BLE001  whatever a transport raises: the client's request gets it
            failure = single_exception(error)
            if self._inner is not None:
                self._lose(f"the connection broke: {failure}")
            elif self._wanted:
                self._wanted, self._failure = False, failure
                self._notify()
            logger.debug("the connection was not opened again: %s", failure)

    def _begin(self, channel: MessageChannel) -> None:
        self._inner, self._ended = channel, trio.Event()
        self.network = channel.network
        self._wanted, self._failure = False, None
        if self._closed:
            self._ended.set()
        self._notify()

    def _lose(self, why: str) -> None:
        """The connection has ended, and every request that has no answer gets none."""
        self._inner = None
        self._lacks_session = self._is_telling = True
        self._news.append(Envelope(Unanswered(None, why, connection_lost=True)))
        self._ended.set()
        self._notify()

    def close(self) -> None:
        """Connect no more, and close the connection."""
        self._closed = True
        self._ended.set()
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # messages

    async def send(self, value: Envelope[Sent]) -> None:
        await self.send_many((value,))

    async def send_many(self, values: Sequence[Envelope[Sent]]) -> None:
        """Send several messages; what cannot be sent is answered by `receive`.

        Raises:
            trio.ClosedResourceError: this channel was closed.
        """
        if self._lacks_session:
            values = self._sendable(values)
            requests = [value.message.id for value in values if isinstance(value.message, Request)]
            # A cancellation, of a request to the server before this one, is no reason to start it.
            if requests and self._inner is None and not await self._reconnected(requests):
                return
        if self._closed:
            raise trio.ClosedResourceError("this channel was closed")
        inner = self._inner
        if inner is None or not values:
            # If it was lost since they were queued, they are answered with all others.
            await trio.lowlevel.checkpoint()
            return
        try:
            await inner.send_many(values)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # What the server wrote before it ended is still to be read, and its end tells why.
            if self._inner is inner and self._reading is not None:
                self._reading.deadline = trio.current_time() + LINGER

    def _sendable(self, values: Sequence[Envelope[Sent]]) -> list[Envelope[Sent]]:
        """Return the messages that a connection without a session takes, and answer the other requests."""
        if self._is_telling and not self._news and any(opens(value) for value in values):
            # Who opens a session again has been notified already; the reader may be waiting for something else.
            self._is_telling = False
        if self._is_telling:
            return []
        sendable: list[Envelope[Sent]] = []
        for value in values:
            message = value.message
            if opens(value):
                self._lacks_session = False
            if value.stateless or not self._lacks_session:
                sendable.append(value)
            elif isinstance(message, Request):
                self._answer(message.id, SESSION_LOST, session_lost=True)
        return sendable

    async def _reconnected(self, ids: Sequence[RequestId]) -> bool:
        """Connect for these requests, and return True; else answer them."""
        self._wanted, self._failure = True, None
        self._notify()
        while self._wanted and not self._closed:
            await self._changed.wait()
        if self._failure is None:
            return True
        failure, self._failure = self._failure, None
        self._lacks_session = True
        for id in ids:
            self._answer(id, str(failure), is_sent=False, error=failure if isinstance(failure, ServerBusy) else None)
        return False

    def _answer(
        self,
        id: RequestId,
        why: str,
        *,
        session_lost: bool = False,
        is_sent: bool = True,
        error: ServerBusy | None = None,
    ) -> None:
        self._news.append(Envelope(Unanswered(id, why, session_lost, is_sent, error=error)))
        self._notify()

    async def receive(self) -> Envelope[Received]:
        raise NotImplementedError("a session uses receive_many")

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        """Wait for messages. A connection that ends is a message too.

        Raises:
            trio.ClosedResourceError: this channel was closed.
            trio.EndOfChannel, trio.BrokenResourceError: the server exited before it said anything, or the channel is not lasting.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._is_telling = False
        while not self._closed:
            if self._news:
                news, self._news = self._news, []
                return news
            if self._inner is None:
                await self._changed.wait()
            elif (received := await self._read(self._inner)) is not None:
                return received
        raise trio.ClosedResourceError("this channel was closed")

    async def _read(self, inner: MessageChannel) -> Iterable[Envelope[Received]] | None:
        """Return what has come; None at the end of the connection. Raises `trio.EndOfChannel` as `receive_many`."""
        ending: Exception | None = None
        try:
            with trio.CancelScope() as self._reading:
                received = await inner.receive_many()
                self._has_received = True
                return received
        except trio.EndOfChannel:
            pass
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            ending = error
        finally:
            self._reading = None
        # Closing ends it too.
        if self._inner is inner and not self._closed:
            # A server that exits instead of its first answer, such as one that lacks a setting, would do so again.
            # One that never read the probe has not ended because of it.
            probe, self._may_be_probe = self._may_be_probe and not self._has_received and not inner.ended_unread, False
            if not probe and (not self._lasting or (inner.ended_by_itself and not self._has_received)):
                raise ending or trio.EndOfChannel
            self._lose(why_ended(inner, ending))
        return None

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    @property
    def close_reason(self) -> str | None:
        return None if self._inner is None else self._inner.close_reason

    def __repr__(self) -> str:
        return f"<ReconnectingChannel {'closed' if self._closed else self._inner or 'without a connection'}>"


def opens(value: Envelope[Sent]) -> bool:
    """Return whether a message opens a session."""
    return isinstance(value.message, Request) and value.message.method == "initialize"
