"""What travels over a transport's channel: one message, the request it is related to, and who sent it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, TypeAlias, cast

from typing_extensions import TypeVar

from ..errors import RemoteProtocolError
from ..protocol.json_limits import JsonLimits, measure
from ..protocol.jsonrpc import (
    Answers,
    Encoded,
    ErrorResponse,
    Malformed,
    Message,
    RequestId,
    Response,
    Unanswered,
    parse,
    unreadable,
)
from ..quick_tuple import make_tuple
from ..types import Model
from .caller import Caller, caller_of
from .sizes import MESSAGE_SIZE

Sent: TypeAlias = Message | Answers
"""What a session may send: a message, or the answers to a batch."""

Received: TypeAlias = Message | Malformed | Unanswered
"""What a channel may receive: a message, bytes that are not a message (`Malformed`), a `Batch`, or `Unanswered`."""

M_co = TypeVar("M_co", bound=Sent | Received, default=Sent, covariant=True)


class Peer(NamedTuple):
    """The other end of a connection, as far as the transport has verified it.

    Attributes:
        principal: the authenticated identity, or None if the transport does not authenticate (pipes, memory).
        headers: the HTTP headers of the request that brought the message, names in lower case; empty elsewhere.
        connection: tells its connection from others, for the memory budget and the limits that callers share. Behind a trusted
            proxy it is the address that this names. None if there is no other, as on a pipe.
        known_caller: the principal with its scopes and claims; None if it has none, or without a principal. Read `caller`.
    """

    principal: str | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    connection: Hashable | None = None
    known_caller: Caller | None = None

    @property
    def caller(self) -> Caller | None:
        """The authenticated caller, or None."""
        return caller_of(self.principal, self.known_caller)


ANONYMOUS = Peer()


class Envelope(NamedTuple, Generic[M_co]):
    """One message on a channel: `Envelope[Received]`, or `Envelope[Sent]` (`Envelope` for short).

    The parameter exists for type checkers only. Types that are only received (`Malformed`, `Unanswered`) cannot be sent, so no
    channel has to check for them.

    Attributes:
        message: the message.
        about: the request that this message belongs to. HTTP selects the response stream by it; other transports ignore it.
        peer: the sender; `ANONYMOUS` for an outgoing message.
        size: bytes of memory that a received message takes; 0 for an outgoing one, see `sent_size`.
        stateless: for an outgoing message, whether it belongs to no session: a request carries all its context, `peer.headers`
            hold every header that describes it, and closing its response cancels it (2026-07-28).
        raw: the bytes of the message, for a channel that carries bytes (`MessageChannel.carry_bytes`); None elsewhere.
    """

    message: M_co
    about: RequestId | None = None
    peer: Peer = ANONYMOUS
    size: int = 0
    stateless: bool = False
    raw: bytes | None = None


_RECEIVED: Final = cast("type[Envelope[Received]]", Envelope)


class MessageFacts(NamedTuple):
    """A request or notification of a client, for message middleware.

    Attributes:
        method: such as "tools/call".
        id: of the request; None for a notification.
        params: decoded.
        peer: who sent it: `principal`, `headers` (HTTP) and `connection`.
        size: bytes of memory that the message takes.
    """

    method: str
    id: RequestId | None
    params: Model
    peer: Peer
    size: int


MessageMiddleware: TypeAlias = Callable[[MessageFacts], None]
"""A plain function, which must not block. It rejects the message by raising."""


def received(data: bytes, limits: JsonLimits, peer: Peer = ANONYMOUS) -> Envelope[Received]:
    """Return the message in these bytes; `Envelope(Malformed(...))` if they are not one."""
    try:
        measured = measure(data, limits)
    except RemoteProtocolError as error:
        return Envelope(unreadable(error, data), peer=peer)
    message = parse(data, limits, measured)
    size = 0 if type(message) is Malformed else measured.size
    return make_tuple(_RECEIVED, (message, None, peer, size, False, None))


def answer_envelope(answer: Response | ErrorResponse, request_id: RequestId) -> Envelope[Sent]:
    """Return the envelope in which a request is answered."""
    return make_tuple(Envelope, (answer, request_id, ANONYMOUS, 0, False, None))


def sent_size(envelope: Envelope) -> int:
    """Return the bytes of memory that a message takes until it has been sent."""
    message = envelope.message
    # Most messages are answers.
    if type(message) is Response:
        result = message.result
        return MESSAGE_SIZE + (len(result.raw) if type(result) is Encoded else 0)
    return sum(map(content_size, message.answers)) if isinstance(message, Answers) else content_size(message)


def content_size(message: Message) -> int:
    """Return the bytes of memory that a message to be sent takes."""
    if isinstance(message, ErrorResponse):
        return MESSAGE_SIZE
    content = message.result if isinstance(message, Response) else message.params
    return MESSAGE_SIZE + (len(content.raw) if isinstance(content, Encoded) else 0)
