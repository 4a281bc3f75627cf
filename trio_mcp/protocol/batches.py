"""What a batch may hold (2025-03-26)."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import RemoteProtocolError
from .codec.reading import classify
from .jsonrpc import INVALID_REQUEST, Malformed, Message, Request, RequestId


def checked_in_batch(message: Message | Malformed, ids: Mapping[RequestId, int]) -> Message | Malformed:
    """Return the message, or why no batch can hold this request. An id may occur once, since the answers have no order."""
    if not isinstance(message, Request):
        return message
    if ids[message.id] > 1:
        problem = f"the request id {message.id!r} stands more than once in this batch"
    elif message.method == "initialize":
        problem = "initialize cannot be part of a batch"
    elif classify(message).meta is not None:
        problem = "a request that names its revision in params._meta cannot be part of a batch: send it by itself"
    else:
        return message
    return Malformed(RemoteProtocolError(problem, code=INVALID_REQUEST, request_id=message.id))
