"""What the parts of a client use of its link to the server, and which errors of the server are final.

They get these types and not the link, which knows them: the imports would close a circle.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final, Protocol, TypeVar, Unpack

import trio

from ..base.backoff import Backoff
from ..base.checks import check_seconds
from ..base.groups import single_exception
from ..errors import (
    Disconnected,
    PeerError,
    RemoteProtocolError,
    RequestRejected,
    RequestTimeout,
    ServerBusy,
    SessionLost,
    Unreachable,
)
from ..protocol.jsonrpc import SERVER_BUSY
from ..protocol.revisions import IDEMPOTENCY, OUTCOME_UNKNOWN, REPEAT_OF
from ..session import AnyChannel, ClientSession
from ..session.client import RequestOptions
from ..types import Implementation, JsonObject, Model, RequestParams, ServerCapabilities


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server declared about itself when the session was opened."""

    protocol_version: str
    capabilities: ServerCapabilities
    info: Implementation | None
    instructions: str | None

    instance: str | None = field(init=False)
    """The process that knows idempotency keys; None if the server knows none."""

    def __post_init__(self) -> None:
        known = (self.capabilities.experimental or {}).get(IDEMPOTENCY, {}).get("instance")
        object.__setattr__(self, "instance", known if isinstance(known, str) else None)


class SendRequest(Protocol):
    """Sends a request and returns its result, as `ClientSession.request` does."""

    async def __call__(self, method: str, params: RequestParams, /, **options: Unpack[RequestOptions]) -> Model: ...


class Requester(Protocol):
    """The part of the link that sends requests, and describes the server."""

    request: SendRequest

    @property
    def session(self) -> ClientSession: ...

    @property
    def facts(self) -> ServerFacts: ...

    def lost(self, why: str, /) -> None:
        """Note that the connection, or a stream of it, was lost."""

    def start(self, fn: Callable[[], Awaitable[object]], /) -> None:
        """Run a function in a task of the link; it must let only `trio.Cancelled` out."""


def would_fail_again(error: Exception) -> bool:
    """Return whether the server would reject the same request again: it has answered, and is not merely busy."""
    return isinstance(error, RequestRejected) or (isinstance(error, PeerError) and not is_busy(error))


def is_busy(error: PeerError) -> bool:
    """Return whether a server may answer the same request otherwise in a moment."""
    return error.code == SERVER_BUSY or isinstance(error, ServerBusy)


# Timing out the methods of a client.

T = TypeVar("T")

SUBSCRIBE_TIMEOUT: Final = 30.0
"""Seconds that a server may take to acknowledge a stream of changes, or to restore all subscriptions of a session."""

UNSUBSCRIBE_TIMEOUT: Final = 2.0
"""Seconds that ending a subscription may take."""


async def run_with_timeout(timeout: float, what: str, fn: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `fn`.

    Raises:
        RequestTimeout: it took longer than `timeout` seconds, and was cancelled; `what` names it.
    """
    check_seconds("timeout", timeout)
    with trio.move_on_after(timeout):
        return await fn()
    raise timeout_error(timeout, what)


def timeout_error(timeout: float, what: str) -> RequestTimeout:
    return RequestTimeout(f"{what} did not finish within {timeout:g} seconds; it was cancelled at the server")


# Sending a request again whose response was lost with its connection (RFC 9110, 9.2.2).
#
# Lists, reads and later legs of a call are sent again as they are. The first request of a tool's call is sent again only if
# that
# cannot run the tool twice by mistake: the server knows its idempotency key, or has listed the tool as one that does no harm.

ATTEMPTS: Final = 5
"""How often a request is sent again."""

BACKOFF: Final = Backoff(first=0.25, longest=4.0)
"""How long to wait before that: a server that restarts needs a moment."""


def as_repeat(meta: JsonObject | None, instance: str) -> JsonObject:
    """Return the `_meta` of a request that is sent again, which `instance` of the server may have received before."""
    return {**(meta or {}), REPEAT_OF: instance}


def is_unknown(error: PeerError) -> bool:
    """Return whether a server answered a repeat with the error that it cannot know whether the call has run."""
    return isinstance(error.data, dict) and error.data.get(OUTCOME_UNKNOWN) is True


async def send_again(session: ClientSession, lost: Disconnected, send: Callable[[], Awaitable[Model]]) -> Model:
    """Send a request again, up to `ATTEMPTS` times with growing delays, until the server answers it.

    Args:
        lost: how the response was lost.
        send: sends the request.

    Raises:
        PeerError: the server answered with an error.
        McpError: the last attempt failed, or the connection has ended, which carries no further one.
    """
    failure: Disconnected | PeerError | RemoteProtocolError = lost
    for attempt in range(ATTEMPTS):
        if session.closed_because is not None or isinstance(failure, RequestRejected):
            break
        await trio.sleep(BACKOFF.delay(attempt))
        try:
            return await send()
        except PeerError as error:
            # A server that restarts may be too busy for a moment.
            if not is_busy(error):
                raise
            failure = error
        except (Disconnected, RemoteProtocolError) as error:
            failure = error
    try:
        raise failure
    finally:
        # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
        del failure, lost


async def request_safely(link: Requester, method: str, params: RequestParams, timeout: float) -> Model:
    """Send a request that reads, again if its response is lost; all within `timeout`. Raises as `ClientSession.request` does."""
    # One scope for the first attempt too would cost every request something.
    deadline = trio.current_time() + timeout
    try:
        return await link.request(method, params, timeout=timeout)
    except (SessionLost, Unreachable):
        raise
    except Disconnected as error:
        lost = error
    try:
        with trio.move_on_at(deadline):
            return await send_again(link.session, lost, partial(link.request, method, params))
        raise timeout_error(timeout, method)
    finally:
        # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
        del lost


# Waiting for a server that is too busy: HTTP 429 and 503.


class WaitingSession(ClientSession):
    """A session whose requests are sent again, after a wait, if the server was too busy for them.

    Attributes:
        wait_if_busy: seconds that one request and its repeats may take until the last of them is sent.
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
        wait_if_busy: seconds in which the last attempt begins.

    Raises:
        ServerBusy: the server asks for a longer wait than is left.
    """
    async with AsyncExitStack() as stack:
        yield await call_when_free(lambda: stack.enter_async_context(connect()), wait_if_busy)


async def call_when_free(call: Callable[[], Awaitable[T]], seconds: float, deadline: float = math.inf) -> T:
    """Return what `call` returns; wait and call it again while it raises `ServerBusy`.

    Args:
        seconds: in which the last call has to begin.
        deadline: the same, on Trio's clock.

    Raises:
        ServerBusy: the server asks for a longer wait than is left.
    """
    deadline = min(deadline, trio.current_time() + seconds)
    for attempt in count():
        try:
            return await call()
        except Exception as error:
            # What opens a channel raises it out of a nursery.
            busy = single_exception(error)
            if not isinstance(busy, ServerBusy):
                raise
            asked = BACKOFF.delay(attempt) if busy.retry_after is None else max(busy.retry_after, BACKOFF.first)
            if asked > deadline - trio.current_time():
                raise
        await trio.sleep(asked)
    raise AssertionError
