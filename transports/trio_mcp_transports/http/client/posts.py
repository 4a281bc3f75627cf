"""Messages that get no answer of their own: notifications, and answers to what the server asked."""

from __future__ import annotations

import logging

import httpx2
import trio

from trio_mcp.protocol.jsonrpc import Answers, ErrorResponse, Message, Response, Unanswered
from trio_mcp.session import Envelope

from ...httpx.requests import error_text, read_body
from .connection import HttpConnection

logger = logging.getLogger("trio_mcp.http")


async def post_and_report(connection: HttpConnection, envelope: Envelope) -> bool:
    """Post a message and return whether the server accepted it; what went wrong is logged.

    If the server rejects an answer, the request of ours on whose response it had asked fails: it would wait for ever.
    """
    message = envelope.message
    what = type(message).__name__
    try:
        status = await post_without_reply(connection, envelope)
    except httpx2.HTTPError as error:
        logger.warning("a %s did not reach %s: %s", what, connection.url, error_text(error))
        return False
    if status >= 300:
        logger.warning("the server answered %s to a %s", status, what)
        for each in message.answers if isinstance(message, Answers) else (message,):
            await on_answer_rejected(connection, each, status)
        return False
    return True


async def post_without_reply(connection: HttpConnection, envelope: Envelope) -> int:
    """Post a message and return the status. The body is dropped, and need not end.

    Raises:
        httpx2.HTTPError: it did not arrive, or the server did not answer in time.
    """
    seconds = connection.limits.post_timeout
    status = 0
    with trio.move_on_after(seconds):
        async with connection.post(envelope.message, connection.session.of(envelope).every) as response:
            status = response.status_code
            await read_body(response, connection.limits.message)
    if not status:
        raise httpx2.ReadTimeout(f"it did not say within {seconds:g} seconds whether it took it")
    return status


async def on_answer_rejected(connection: HttpConnection, message: Message, status: int) -> None:
    """Fail the request on whose response the server asked what this message answers."""
    if not isinstance(message, Response | ErrorResponse) or message.id is None:
        return
    entry = connection.requests.asked_on(message.id)
    if entry is not None:
        entry.scope.cancel()
        why = f"the server refused the answer to its question with HTTP {status}"
        await connection.deliver(Unanswered(entry.id, why))
