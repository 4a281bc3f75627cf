"""The proxy's connection to the server: a bounded queue to it, and the requests that the proxy sends itself."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from ..errors import RequestRejected
from ..protocol.http.headers import ParameterHeaders, headers_of
from ..protocol.jsonrpc import (
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    Unanswered,
)
from ..runtime import Outbox
from ..session import Envelope, MessageChannel, Peer
from ..session.envelope import sent_size
from ..types import JsonObject

MAX_UNSENT: Final = 4096
"""Messages that wait for a server that does not read."""
MAX_UNSENT_BYTES: Final = 16 * 1024 * 1024
MAX_TOOLS: Final = 10_000
"""Tools whose arguments are repeated in headers, and whose headers are known."""

Reply: TypeAlias = Response | ErrorResponse | Malformed | Unanswered
"""What ends the wait for an answer of the server."""


class Upstream:
    """One connection to the server.

    Args:
        channel: the connection; its owner closes it.

    Attributes:
        carries: the channel sends the bytes of an envelope that has them. It then needs no headers.
    """

    def __init__(self, channel: MessageChannel) -> None:
        self.channel = channel
        self.carries = channel.carry_bytes()
        self._outbox: Outbox[Envelope] = Outbox(MAX_UNSENT)
        self._unsent_bytes = 0
        # Random, so that no host uses these ids for its requests.
        self._prefix = f"relay-{secrets.token_hex(8)}-"
        self._numbers = itertools.count(1)
        self._replies: dict[RequestId, Callable[[Reply], None]] = {}
        self._headers: dict[str, ParameterHeaders] = {}

    @property
    def is_full(self) -> bool:
        """Whether the server is so far behind that nothing more is queued for it."""
        return self._outbox.is_full or self._unsent_bytes > MAX_UNSENT_BYTES

    def post(self, envelope: Envelope) -> None:
        """Queue a message."""
        self._unsent_bytes += envelope.size
        self._outbox.post(envelope)

    def answer(self, reply: Response | ErrorResponse) -> None:
        """Queue an answer of the proxy to a request of the server."""
        answer: Envelope = Envelope(reply)
        self.post(answer._replace(size=sent_size(answer)))

    def send(
        self, request: Request, params: JsonObject, given: Mapping[str, str], *, stateless: bool, size: int = 0
    ) -> None:
        """Queue a request as a separate message.

        Args:
            params: those of the request.
            given: the headers that it came with; those that repeat arguments go on.
            size: bytes of memory that it takes.
        """
        headers: dict[str, str] = {}
        if stateless and not self.carries:
            headers = {**headers_of(request.method, params), **self._repeated(request.method, params, given)}
        self.post(Envelope(request, about=request.id, peer=Peer(headers=headers), size=size, stateless=stateless))

    def cancel(self, request_id: RequestId, params: JsonObject, *, stateless: bool) -> None:
        """Queue the cancellation of a request."""
        notice = Notification("notifications/cancelled", {**params, "requestId": request_id})
        self.post(Envelope(notice, about=request_id, stateless=stateless))

    def new_id(self) -> RequestId:
        """Return an id that no request of the host has."""
        return f"{self._prefix}{next(self._numbers)}"

    def is_own_id(self, request_id: RequestId | None) -> bool:
        """Return whether `new_id` has made an id."""
        return isinstance(request_id, str) and request_id.startswith(self._prefix)

    async def request(
        self,
        method: str,
        params: JsonObject,
        on_reply: Callable[[Reply], None] = lambda _reply: None,
        *,
        stateless: bool,
    ) -> Reply:
        """Send a request of the proxy, and return what answers it. A cancel forgets it, and cancels it at a modern server.

        Args:
            on_reply: called with the reply before the message behind it is read.
        """
        request_id = self.new_id()
        replies: list[Reply] = []
        answered = trio.Event()

        def take(reply: Reply) -> None:
            del self._replies[request_id]
            replies.append(reply)
            answered.set()
            on_reply(reply)

        self._replies[request_id] = take
        try:
            self.send(Request(request_id, method, params), params, {}, stateless=stateless)
            await answered.wait()
            return replies[0]
        finally:
            unanswered = self._replies.pop(request_id, None) is not None
            # `initialize` cannot be cancelled (L-CAN-1b).
            if unanswered and stateless:
                self.cancel(request_id, {}, stateless=stateless)

    def take_reply(self, request_id: RequestId | None, reply: Reply) -> bool:
        """Hand a reply to the request of the proxy that waits for it; False if none does."""
        take = None if request_id is None else self._replies.get(request_id)
        if take is None:
            return False
        take(reply)
        return True

    def fail_all(self, why: Unanswered) -> None:
        """End the wait of all requests of the proxy."""
        for take in list(self._replies.values()):
            take(why)

    def learn_headers(self, result: JsonObject) -> None:
        """Remember which arguments of the tools in a list are repeated in headers (M-HTTP-7c)."""
        tools = result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                schema = tool.get("inputSchema")
                self._headers.pop(name, None)
                try:
                    headers = ParameterHeaders.of(schema if isinstance(schema, dict) else {})
                except ValueError:
                    continue  # the host leaves the tool out, and calls it without headers
                if headers and len(self._headers) < MAX_TOOLS:
                    self._headers[name] = headers

    async def write(self) -> None:
        """Send what is queued until the outbox is closed; raises what the channel raises."""
        while envelopes := await self._outbox.take():
            size = sum(envelope.size for envelope in envelopes)
            await self.channel.send_many(envelopes)
            self._unsent_bytes -= size
            # Not kept while this waits.
            del envelopes

    def _repeated(self, method: str, params: JsonObject, given: Mapping[str, str]) -> dict[str, str]:
        found = {name: value for name, value in given.items() if name.startswith("mcp-param-")}
        name, arguments = params.get("name"), params.get("arguments")
        known = self._headers.get(name) if method == "tools/call" and isinstance(name, str) else None
        if found or known is None or not isinstance(arguments, dict):
            return found
        try:
            return known.headers(arguments)
        except ValueError:
            return {}  # no header can hold it: the server rejects the request


def failure_text(error: Exception, what: str) -> str:
    """Return why there is no answer of the server: its rejection as it is, which names the server, or else what happened."""
    return str(error) if isinstance(error, RequestRejected) else f"{what}: {error}"
