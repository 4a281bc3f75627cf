"""Waiting for a server that is too busy: HTTP 429 and 503."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import count
from typing import TypeVar, Unpack

import trio

from ..base.groups import single_exception
from ..errors import ServerBusy
from ..session import AnyChannel, ClientSession
from ..session.client import RequestOptions
from ..types import Model, RequestParams
from .requester import BACKOFF

T = TypeVar("T")


class WaitingSession(ClientSession):
    """A session whose requests are sent again, after a wait, if the server was too busy for them.

    Attributes:
        wait_if_busy: seconds that one request waits in all.
    """

    wait_if_busy: float

    async def request(self, method: str, params: RequestParams, **options: Unpack[RequestOptions]) -> Model:
        """Send a request as `ClientSession.request` does, again and again; all within its `timeout`.

        Raises:
            ServerBusy: the server asks for a longer wait than is left.
        """
        deadline = trio.current_time() + options.get("timeout", math.inf)
        send = super().request

        def send_again() -> Awaitable[Model]:
            options["timeout"] = max(0.0, deadline - trio.current_time())
            return send(method, params, **options)

        return await call_when_free(send_again, self.wait_if_busy, deadline)


@asynccontextmanager
async def opened_when_free(
    connect: Callable[[], AbstractAsyncContextManager[AnyChannel]], wait_if_busy: float
) -> AsyncGenerator[AnyChannel]:
    """Open a channel whose server may be too busy for a connection: wait, and try again.

    Args:
        connect: returns a context manager that opens the channel.
        wait_if_busy: seconds to wait in all.

    Raises:
        ServerBusy: the server asks for a longer wait than is left.
    """
    async with AsyncExitStack() as stack:
        yield await call_when_free(lambda: stack.enter_async_context(connect()), wait_if_busy)


async def call_when_free(call: Callable[[], Awaitable[T]], left: float, deadline: float = math.inf) -> T:
    """Return what `call` returns; wait and call it again while it raises `ServerBusy`.

    Args:
        left: seconds to wait in all.
        deadline: when the last call has to begin, on Trio's clock.

    Raises:
        ServerBusy: the server asks for a longer wait than is left.
    """
    for attempt in count():
        try:
            return await call()
        except Exception as error:
            # What opens a channel raises it out of a nursery.
            busy = single_exception(error)
            if not isinstance(busy, ServerBusy):
                raise
            asked = BACKOFF.delay(attempt) if busy.retry_after is None else max(busy.retry_after, BACKOFF.first)
            if asked > min(left, deadline - trio.current_time()):
                raise
        left -= asked
        await trio.sleep(asked)
    raise AssertionError
