"""Which era a received message belongs to. A request is classified here, once; everything after it reads the result.

A modern request names its revision in `params._meta`. Every other message follows what its session agreed on.
"""

from __future__ import annotations

from typing import NamedTuple

from ..types import JsonObject, JsonValue
from .jsonrpc import Answers, Malformed, Message, Request, Unanswered, decoded
from .meta import PROTOCOL_VERSION
from .revisions import Era


class Inbound(NamedTuple):
    """A received message and its classification.

    Attributes:
        meta: the `_meta` of a request that names its revision there; None for every other message.
        version: the revision that it names, not checked yet; None for every other message.
    """

    message: Message | Answers | Malformed | Unanswered
    era: Era = Era.LEGACY
    meta: JsonObject | None = None
    version: JsonValue = None


def classify(message: Message | Answers | Malformed | Unanswered) -> Inbound:
    """Classify a received message.

    Raises:
        RemoteProtocolError: the message holds encoded params that are not JSON.
    """
    if isinstance(message, Request):
        params = message.params
        meta = (params if isinstance(params, dict) else decoded(params)).get("_meta")
        if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
            return Inbound(message, Era.MODERN, meta, meta[PROTOCOL_VERSION])
    return Inbound(message)
