"""What travels over a transport's channel: one message, the request it is related to, and who sent it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeAlias, cast

from pydantic_core import from_json
from typing_extensions import TypeVar

from ..base.checks import check_str, mistake
from ..base.named_tuples import NamedTuple
from ..base.values import make_tuple
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
from ..protocol.strict_json import dumps
from ..types import JsonObject, JsonValue, Model

# Who sends a request, as the author's `authenticate` has found out.

MAX_PRINCIPAL: Final = 1024
"""Characters of a principal: sessions, calls and their states carry it along."""
MAX_SCOPES: Final = 256
MAX_CLAIMS: Final = 16 * 1024
"""Bytes of the claims as JSON: each running call keeps those of its request."""

SCOPE: Final = r"[\x21\x23-\x5b\x5d-\x7e]{1,256}"
"""A scope token (RFC 6749, 3.3); longer ones are of no use in a header. Compiled when it is first used."""


class Caller:
    """An authenticated caller; `authenticate=` returns one. It cannot be changed.

    Everything that belongs to a caller (sessions, `requestState`s, limits) belongs to the principal. Scopes and claims are those
    of one request.

    Args:
        principal: names the caller, in 1 to 1,024 characters.
        scopes: what the caller may do, such as `["books:read"]`: at most 256 scope tokens of OAuth.
        claims: anything else that tools need to know, such as the claims of a token: a JSON object of at most 16 KiB.

    Raises:
        TypeError, ValueError: an argument is something else.
    """

    __slots__ = ("_claims", "principal", "scopes")

    principal: str
    scopes: frozenset[str]
    _claims: bytes

    def __init__(
        self, principal: str, scopes: Collection[str] = (), claims: Mapping[str, JsonValue] | None = None
    ) -> None:
        object.__setattr__(self, "principal", check_principal(principal))
        object.__setattr__(self, "scopes", check_scopes("scopes", scopes))
        object.__setattr__(self, "_claims", b"{}" if claims is None else encode_claims(claims))

    @property
    def claims(self) -> JsonObject:
        """A copy of the claims; decoded each time it is read."""
        return cast("JsonObject", from_json(self._claims))

    @property
    def size(self) -> int:
        """Bytes of memory that a call draws from the memory budget for it."""
        return len(self.principal) + len(self._claims) + sum(map(len, self.scopes))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Caller cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Caller cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Caller) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[str, frozenset[str], bytes]:
        return self.principal, self.scopes, self._claims

    def __repr__(self) -> str:
        # Without the claims, which may be secret.
        return f"Caller({self.principal!r}, scopes={sorted(self.scopes)})"


def caller_of(principal: str | None, known: Caller | None) -> Caller | None:
    """Return the caller that is known, or else one that has only a principal; None without a principal."""
    # Made when it is asked for: most servers need the principal only, and most tools not even that.
    return Caller(principal) if known is None and principal is not None else known


def check_principal(principal: object) -> str:
    """Return a principal if it is text that keys, digests and sealed states can hold."""
    name = check_str("principal", principal)
    # They are bytes. A lone surrogate cannot be encoded.
    name.encode()
    if not 0 < len(name) <= MAX_PRINCIPAL:
        raise ValueError(f"the principal has {len(name)} characters; 1 to {MAX_PRINCIPAL} are allowed")
    return name


def check_scopes(name: str, scopes: object) -> frozenset[str]:
    """Return scopes if they are a collection of scope tokens."""
    # A string is a collection of letters, each of which would be a scope.
    if isinstance(scopes, str) or not isinstance(scopes, Collection):
        raise TypeError(mistake(name, 'a list of scopes, such as ["books:read"]', scopes))
    if len(scopes) > MAX_SCOPES:
        raise ValueError(f"{name}: {len(scopes)} scopes; {MAX_SCOPES} are allowed")
    for scope in scopes:
        if not re.fullmatch(SCOPE, check_str(f"each of {name}", scope)):
            raise ValueError(
                f"{name}: {scope!r:.80} is no scope: 1 to 256 ASCII characters without spaces, quotes and backslashes"
            )
    return frozenset(cast("Collection[str]", scopes))


def encode_claims(claims: object) -> bytes:
    """Return claims as JSON, if they are a JSON object that is not too large."""
    if not isinstance(claims, Mapping):
        raise TypeError(mistake("claims", 'a JSON object, such as {"team": "blue"}', claims))
    data = dumps(dict(cast("Mapping[str, JsonValue]", claims)), "claims")
    if len(data) > MAX_CLAIMS:
        raise ValueError(f"the claims have {len(data)} bytes as JSON; {MAX_CLAIMS} are allowed")
    return data


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
    """

    message: M_co
    about: RequestId | None = None
    peer: Peer = ANONYMOUS
    size: int = 0
    stateless: bool = False


RECEIVED: Final = cast("type[Envelope[Received]]", Envelope)


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
    return make_tuple(RECEIVED, (message, None, peer, size, False))


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


# What things cost in the memory budget, in bytes: measured on CPython 3.11 with the memory that a thousand of each take.

CONNECTION_SIZE: Final = 32 * 1024
"""An HTTP or WebSocket connection, with what of a request head may be buffered, or of a small request or response."""

SESSION_SIZE: Final = 8 * 1024
"""A legacy session, or the session of a channel."""

SUBSCRIPTION_SIZE: Final = 1024
"""A subscription of a session to a resource, besides its URI."""

QUEUE_SIZE: Final = 8 * 1024
"""What may wait to be sent on a stream or a channel before more is drawn: the fixed cost of each includes it."""

STREAM_SIZE: Final = 4 * 1024 + QUEUE_SIZE
"""A stream that belongs to no call, or the queue of a channel."""

CALL_SIZE: Final = 16 * 1024
"""A call with its stream, besides its request and what its body uses; it takes half of it without what waits on the stream."""

HEADER_SIZE: Final = 256
"""A header of the HTTP request that started a call."""

OUTCOME_SIZE: Final = 2 * 1024
"""A call that has ended and whose outcomes are kept, besides these."""

KEY_SIZE: Final = 512
"""A call with an idempotency key, or a key that was used, besides the outcome that is kept."""

UNSETTLED_SIZE: Final = 8 * 1024
"""A record of a store that is written again by a task, besides its value."""

KEPT_RESULT_SIZE: Final = 2 * 1024
"""A result that is kept until its caller reads it, besides its content."""

PAGE_SIZE: Final = 1024
"""A URL elicitation that nothing waits for, until it is completed."""

MESSAGE_SIZE: Final = 512
"""A message that waits to be sent, besides its content."""
