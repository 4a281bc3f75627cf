"""What of a legacy session is said again when it is opened a second time, and which of its requests may be sent again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..errors import RemoteProtocolError
from ..protocol.jsonrpc import Batch, Encoded, Notification, Request, Response, decoded
from ..protocol.revisions import REVISIONS
from ..session import Received
from ..types import JsonObject, JsonValue
from .rounds import as_object
from .upstream import MAX_TOOLS

INITIALIZED: Final = "notifications/initialized"
MAX_URIS: Final = 1000
"""Resources that are subscribed to again."""

REPEATABLE: Final = frozenset(
    {
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "tools/list",
    }
)
"""Requests that do no more when they are processed twice (RFC 9110, 9.2.2), besides calls of tools that are listed so."""

CHANGES: Final = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}


class SessionMemory:
    """One session, as its host has set it up.

    Attributes:
        handshake: the `initialize` that the server has accepted; None while there is no session.
        result: the server's first answer to it, which is what the host knows.
    """

    def __init__(self) -> None:
        self.handshake: Request | None = None
        self.result: JsonObject = {}
        self._initialized: Notification | None = None
        self._level: JsonObject | None = None
        self._uris: dict[str, None] = {}
        self._harmless: set[str] = set()

    @property
    def version(self) -> JsonValue:
        """The revision that both sides agreed on."""
        return self.result.get("protocolVersion")

    def note(self, message: Request | Notification) -> None:
        """Remember what a message of the host sets."""
        if message.method == INITIALIZED and isinstance(message, Notification):
            self._initialized = message
        elif message.method == "logging/setLevel":
            self._level = decoded(message.params)
        elif message.method == "resources/subscribe" and len(self._uris) < MAX_URIS:
            if isinstance(uri := decoded(message.params).get("uri"), str):
                self._uris[uri] = None
        elif message.method == "resources/unsubscribe":
            uri = decoded(message.params).get("uri")
            if isinstance(uri, str):
                self._uris.pop(uri, None)

    def learn_tools(self, result: JsonObject | Encoded) -> None:
        """Remember which tools of a list do no more when they run twice."""
        tools = decoded(result).get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                hints = as_object(tool.get("annotations"))
                self._harmless.discard(name)
                is_harmless = hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
                if is_harmless and len(self._harmless) < MAX_TOOLS:
                    self._harmless.add(name)

    def members_of(self, batch: Batch) -> Sequence[Received] | None:
        """Return the messages of an array, if the revision has arrays (2025-03-26) and it is a valid one; else None."""
        version = self.version
        if not isinstance(version, str) or version not in REVISIONS or not REVISIONS[version].batches:
            return None
        try:
            return batch.messages()
        except RemoteProtocolError:
            return None  # the proxy answers it

    def is_repeatable(self, request: Request) -> bool:
        """Return whether a request may be sent again although the server may have processed it."""
        if request.method != "tools/call":
            return request.method in REPEATABLE
        name = decoded(request.params).get("name")
        return isinstance(name, str) and name in self._harmless

    def messages(self) -> Iterator[tuple[str, JsonObject] | Notification]:
        """Yield what follows a handshake: the notification, and the requests by method and params."""
        if self._initialized is not None:
            yield self._initialized
        if self._level is not None:
            yield "logging/setLevel", self._level
        for uri in self._uris:
            params: JsonObject = {"uri": uri}
            yield "resources/subscribe", params

    def changes(self) -> Iterator[Notification]:
        """Yield what to tell the host afterwards: all that it may have missed, as far as it was told that such news come."""
        capabilities = as_object(self.result.get("capabilities"))
        for kind, method in CHANGES.items():
            if as_object(capabilities.get(kind)).get("listChanged") is True:
                yield Notification(method)
        for uri in self._uris:
            yield Notification("notifications/resources/updated", {"uri": uri})


def accepted(reply: Response) -> JsonObject:
    """Return the result of a handshake."""
    return as_object(decoded(reply.result))
