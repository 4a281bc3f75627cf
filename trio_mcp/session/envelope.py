"""What travels over a transport's channel: one message, whom it is about, and who sent it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from ..protocol.jsonrpc import Answers, Malformed, Message, RequestId, Unanswered


class Peer(NamedTuple):
    """Who is at the other end, as far as the transport has verified it.

    Attributes:
        principal: the authenticated identity, or None when the transport authenticates nobody (pipes, memory).
        headers: the HTTP headers of the request that brought the message, names in lower case; empty elsewhere.
    """

    principal: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})


ANONYMOUS = Peer()


class Envelope(NamedTuple):
    """One message on its way to or from a peer.

    Attributes:
        message: the message; `Malformed` (a `Batch` too) and `Unanswered` only ever arrive, `Answers` are only ever sent.
        about: the request this message belongs to. HTTP picks the response stream by it; pipes ignore it.
        peer: who sent it; `ANONYMOUS` on the way out.
        size: bytes of the message as it came, for the caps; 0 on the way out.
        stateless: on the way out, whether the message belongs to no session: a request carries all its context, `peer.headers`
            hold every header that describes it, and closing its response cancels it (2026-07-28).
    """

    message: Message | Answers | Malformed | Unanswered
    about: RequestId | None = None
    peer: Peer = ANONYMOUS
    size: int = 0
    stateless: bool = False
