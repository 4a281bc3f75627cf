"""The direct way of a POST: from the bytes of a connection to the application and back, without h11 and without a task.

Nothing is refused here. A request that has not come whole, that the pattern does not match or that the application does not take
goes the long way with the same bytes: by h11, and as ASGI messages. What it costs to be written once is written there.
"""

from __future__ import annotations

import logging
from contextvars import copy_context
from time import time
from typing import Final, Protocol

import trio

from trio_mcp.runtime import Account

from ..asgi.direct import DirectApp, DirectRequest
from ..asgi.messages import Respond
from .connections import connections_of
from .direct_response import fields_bytes
from .exchange import ConnectionFacts, HttpExchange
from .open_request import OpenRequest
from .request_head import MAX_HEAD, RequestHead, read_head
from .writes import Writer

# How long a body may be, and how many seconds it may take, that has not come with its head; else it goes the long way, where its
# time is limited too.
MAX_AWAITED_BYTES: Final = 1 << 16
AWAITED_SECONDS: Final = 1.0
# Of what is received, at a time.
COPIES: Final = 3


class DirectOwner(Protocol):
    """The connection, as far as a direct request is concerned."""

    def begin_direct(self) -> None:
        """Note that a request begins: nothing more is parsed before its end."""

    def settle_deadline(self) -> None:
        """Let no deadline end what is done next; to be called before anything is awaited."""

    async def receive_more(self) -> bytes:
        """Receive what comes next of the request that has begun; b"" at the end of the connection."""
        ...

    def leave_direct(self) -> None:
        """Note that the request that has begun goes the long way."""

    def limit_silence(self, seconds: float) -> None:
        """Have `DirectWay.break_silence` called after so many seconds, unless the request ends before."""

    def is_last_direct(self) -> bool:
        """Return whether the connection is closed after this response."""
        ...

    def end_direct(self, *, closes: bool) -> None:
        """Note that the response has been written."""


class DirectWay:
    """The direct way of one connection, which takes one request at a time.

    Args:
        account: of the connection.
        nursery: of the connection.
    """

    def __init__(
        self,
        facts: ConnectionFacts,
        app: DirectApp,
        owner: DirectOwner,
        writer: Writer,
        account: Account,
        nursery: trio.Nursery,
    ) -> None:
        self.facts = facts
        self.owner = owner
        self.writer = writer
        self.account = account
        # An actor may be what starts a task here; its context variables are none of that task's business.
        self._context = copy_context()
        self._nursery = nursery
        self.request: OpenRequest | None = None
        self._app = app
        self._own_head = b""
        self._own_head_time = 0
        self._max_head = min(MAX_HEAD, facts.config.h11_max_incomplete_size)

    async def receive(self, data: bytes) -> bytes:
        """Take the request that `data` begins with, and return what comes after it; all of it goes the long way otherwise."""
        head = read_head(data, self._max_head)
        if head is None:
            return data
        self.owner.begin_direct()
        end = head.end + head.length
        if len(data) >= end:
            return await self._process(head, data, end)
        if end <= MAX_AWAITED_BYTES and self.account.has_room(COPIES * end):
            self.account.draw(COPIES * end)
            try:
                data = await self._with_rest(data, end)
                if len(data) >= end:
                    return await self._process(head, data, end)
            finally:
                self.account.give_back(COPIES * end)
        self.owner.leave_direct()
        return data

    async def _with_rest(self, data: bytes, size: int) -> bytes:
        """Return `data` with what comes of its request in a moment: many clients send a body in another segment than its head."""
        self.owner.settle_deadline()
        with trio.move_on_after(AWAITED_SECONDS):
            while len(data) < size and (more := await self.owner.receive_more()):
                data += more
        return data

    async def _process(self, head: RequestHead, data: bytes, end: int) -> bytes:
        request = OpenRequest(self, data[head.end : end])
        asked = DirectRequest(
            head.target.decode("ascii"), head.headers, self.account.connection, request.receive, request.send
        )
        if self._app.may_wait:
            self.owner.settle_deadline()
        try:
            respond = await self._app.process_directly(asked)
        except Exception as error:  # noqa: BLE001  as any other application that fails
            self.log_failure(error)
            request.fail()
            return b""
        if respond is None:
            self.owner.leave_direct()
            return data
        await self.facts.context.mark_request()
        self.request = request
        request.begin(respond)
        return data[end:]

    def break_silence(self) -> bool:
        """The time of `limit_silence` is over; return whether a request is in progress, which may take its time from then on."""
        if self.request is not None:
            self.request.go_on()
        return self.request is not None

    def lose(self) -> HttpExchange | None:
        """The connection is over; return the exchange that is to be told, if a task has one."""
        request, self.request = self.request, None
        return None if request is None else request.lose()

    def end(self, *, closes: bool) -> None:
        """The response to the request has been written."""
        self.request = None
        self.owner.end_direct(closes=closes)

    def run(self, send: Respond) -> None:
        """Run `send` in a task of the connection."""
        self._context.run(self._start_soon, send)

    def _start_soon(self, send: Respond) -> None:
        self._nursery.start_soon(send)

    def own_head(self) -> bytes:
        """Return the fields that every response has; they change once a second, with its date."""
        now = int(time())
        if now != self._own_head_time:
            self._own_head_time = now
            self._own_head = fields_bytes(self.facts.config.response_headers("h11"))
        return self._own_head

    def is_last(self) -> bool:
        """Return whether the connection is closed after this response."""
        return self.owner.is_last_direct()

    def limit_silence(self, seconds: float) -> None:
        """Have `break_silence` called after so many seconds, unless the request ends before."""
        self.owner.limit_silence(seconds)

    def log_failure(self, error: Exception) -> None:
        records = connections_of(self.facts.config).records
        records.log("the ASGI app failed in a http exchange", level=logging.ERROR, exc_info=error)
