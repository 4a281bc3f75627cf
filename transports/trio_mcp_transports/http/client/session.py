"""The session that a channel has opened: the headers that name it, and what they decide about a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.headers import SESSION_HEADER, VERSION_HEADER, mirrored
from trio_mcp.protocol.jsonrpc import Batch, Malformed, Message, Request, decoded
from trio_mcp.protocol.revisions import REVISIONS
from trio_mcp.session import Envelope

from .answers import session_opened

ACCEPT: Final = "application/json, text/event-stream"
CONTENT: Final[Mapping[str, str]] = {"content-type": "application/json", "accept": ACCEPT}


class PostHeaders(NamedTuple):
    """The headers of one POST.

    Attributes:
        every: all of them.
        session: those that name the session of the message; a GET for the rest of its response repeats them.
        resumable: False for a request that belongs to no session: nothing keeps the rest of its response.
    """

    every: Mapping[str, str]
    session: Mapping[str, str]
    resumable: bool


class SessionHeaders:
    """The headers that `initialize` brought, which later messages repeat (L-HTTP-17c, -20c)."""

    def __init__(self) -> None:
        self.current: Mapping[str, str] = {}
        """Session id and revision; empty before `initialize` was answered, and for a client that never sends it."""

    @property
    def has_id(self) -> bool:
        """Whether the server gave the session an id: then it has a standalone stream, and can be deleted."""
        return SESSION_HEADER in self.current

    def of(self, envelope: Envelope) -> PostHeaders:
        """Return the headers to post a message with."""
        message, extra = envelope.message, envelope.peer.headers
        if envelope.stateless:
            return PostHeaders({**extra, **CONTENT}, {}, resumable=False)
        if isinstance(message, Request):
            # Our own client says `stateless`. A program that sends its own messages may only have named the revision in them.
            own = mirrored(message.method, decoded(message.params))
            if VERSION_HEADER in own:
                return PostHeaders({**extra, **CONTENT, **own}, {}, resumable=False)
            if message.method == "initialize":
                return PostHeaders({**extra, **CONTENT}, {}, resumable=True)
        return PostHeaders({**extra, **CONTENT, **self.current}, self.current, resumable=True)

    def learn(self, request: Request, message: Message | Malformed, headers: Mapping[str, str]) -> None:
        """Remember the session if this message, which came with these headers, is the answer that opens one.

        Raises:
            RemoteProtocolError: the session id cannot be repeated in a header (L-HTTP-16s).
        """
        self.current = session_opened(request, message, headers) or self.current

    def names(self, session: Mapping[str, str]) -> bool:
        """Return whether these headers name the session that is open now."""
        return session.get(SESSION_HEADER) == self.current.get(SESSION_HEADER)

    def parts(self, message: Message | Malformed) -> Sequence[Message | Malformed]:
        """Return what the session will make of a message: those of a batch, if the revision agreed on has batches."""
        if not isinstance(message, Batch):
            return (message,)
        revision = REVISIONS.get(self.current.get(VERSION_HEADER, ""))
        try:
            return message.messages() if revision is not None and revision.batches else ()
        except RemoteProtocolError:
            return ()  # the session reports it
