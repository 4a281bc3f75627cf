"""What the parts of a client use of its link to the server, and which errors of the server are final.

They get these types and not the link, which knows them: the imports would close a circle.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, Unpack

from ..errors import PeerError, RequestRejected
from ..protocol.jsonrpc import SERVER_BUSY
from ..protocol.meta import IDEMPOTENCY
from ..session import ClientSession
from ..session.client import RequestOptions
from ..types import Implementation, Model, RequestParams, ServerCapabilities


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server declared about itself when the session was opened."""

    protocol_version: str
    capabilities: ServerCapabilities
    info: Implementation | None
    instructions: str | None

    @property
    def instance(self) -> str | None:
        """The process that knows idempotency keys; None if the server knows none."""
        known = (self.capabilities.experimental or {}).get(IDEMPOTENCY, {}).get("instance")
        return known if isinstance(known, str) else None


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
    return isinstance(error, RequestRejected) or (isinstance(error, PeerError) and error.code != SERVER_BUSY)
