"""Sending a request again whose response was lost with its connection (RFC 9110, 9.2.2).

Lists, reads and later legs of a call are sent again as they are. The first request of a tool's call is sent again only if that
cannot run the tool twice by mistake: the server knows its idempotency key, or has listed the tool as one that does no harm.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import trio

from ..backoff import Backoff
from ..errors import Disconnected, PeerError, RemoteProtocolError, RequestRejected, SessionLost, Unreachable
from ..protocol.jsonrpc import SERVER_BUSY
from ..protocol.meta import IDEMPOTENCY_KEY, OUTCOME_UNKNOWN, REPEAT_OF
from ..session import ClientSession
from ..types import JsonObject, Model, RequestParams
from .requester import Requester
from .timeouts import timeout_error

ATTEMPTS: Final = 5
"""How often a request is sent again."""

BACKOFF: Final = Backoff(first=0.25, longest=4.0)
"""How long to wait before that: a server that restarts needs a moment."""


def with_key(meta: JsonObject | None, instance: str | None) -> JsonObject | None:
    """Return the `_meta` of a call with a new idempotency key if the server knows keys; one that the caller gave stays."""
    if instance is None:
        return meta
    key: JsonObject = {IDEMPOTENCY_KEY: secrets.token_urlsafe(16)}
    return {**key, **meta} if meta else key


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
            if error.code != SERVER_BUSY:
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
