"""Where messages of a server go that belong to no request of a host, and the headers that repeat arguments of its calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from ..protocol.codec.unknown import NO_PARAMS
from ..protocol.http.headers import ParameterHeaders
from ..protocol.jsonrpc import Encoded, Notification, Request
from ..protocol.strict_json import dumps
from ..runtime import Outbox
from ..session import Envelope
from ..session.envelope import sent_size
from ..types import JsonObject, JsonValue
from .rounds import as_object

MAX_UNREAD: Final = 100
"""Messages of the server that belong to no request and wait for a stream of the host (HTTP); further ones are dropped."""
MAX_UNREAD_BYTES: Final = 1024 * 1024
MAX_TOOLS: Final = 10_000
"""Tools whose arguments are repeated in headers, and whose headers are known."""


class HostStream:
    """Where messages go that belong to no request: the channel of the host, or over HTTP the stream that it has opened."""

    def __init__(self, *, shared_channel: bool) -> None:
        self._outbox: Outbox[Envelope] | None = None
        self._shared = shared_channel
        self._unread: deque[Envelope] = deque()
        self._unread_bytes = 0

    def attach(self, outbox: Outbox[Envelope] | None) -> None:
        """Set where they go; what was kept goes first."""
        self._outbox = outbox
        if outbox is not None:
            self._unread_bytes = 0
            while self._unread:
                outbox.post(self._unread.popleft(), unasked=True)

    def post(self, message: Notification | Request) -> bool:
        """Send a message, or keep it until there is a stream; return whether it was not dropped."""
        envelope: Envelope = Envelope(message)
        if self._outbox is None:
            return self._keep(envelope)
        # A host that does not read one of its streams must not hold up the others. If it has only one, the server waits.
        if self._outbox.is_full and not self._shared:
            return False
        self._outbox.post(envelope, unasked=True)
        return True

    def _keep(self, envelope: Envelope) -> bool:
        size = sent_size(envelope)
        if len(self._unread) >= MAX_UNREAD or self._unread_bytes + size > MAX_UNREAD_BYTES:
            return False
        self._unread.append(envelope)
        self._unread_bytes += size
        return True


class RepeatedArguments:
    """Which arguments of the tools in a list are repeated in headers (M-HTTP-7c)."""

    def __init__(self) -> None:
        self._known: dict[str, ParameterHeaders] = {}

    def learn(self, result: JsonObject) -> None:
        """Remember which arguments of the tools in a list are repeated in headers."""
        for name, tool in tools_of(result):
            self._known.pop(name, None)
            try:
                headers = ParameterHeaders.of(as_object(tool.get("inputSchema")))
            except ValueError:
                continue  # the host leaves the tool out, and calls it without headers
            if headers and len(self._known) < MAX_TOOLS:
                self._known[name] = headers

    def of(self, method: str, params: JsonObject, given: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request; `given` are those that it came with."""
        found = {name: value for name, value in given.items() if name.startswith("mcp-param-")}
        name, arguments = params.get("name"), params.get("arguments")
        known = self._known.get(name) if method == "tools/call" and isinstance(name, str) else None
        if found or known is None or not isinstance(arguments, dict):
            return found
        try:
            return known.headers(arguments)
        except ValueError:
            return {}  # no header can hold it: the server rejects the request


def notification(method: str, members: JsonObject) -> Notification:
    """Return a notification that is encoded, so that it is known how large it is."""
    return Notification(method, Encoded(dumps(members)) if members else NO_PARAMS)


def tools_of(result: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Yield the tools of a list by their names."""
    tools: JsonValue = result.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
            yield name, tool
