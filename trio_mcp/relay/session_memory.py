"""The legacy session of a host on a pipe, which goes on in another one of the server when that has lost it.

Such a host cannot open another session, and takes the end of the pipe for the end of the server. The link opens a session again,
as for any client (`client/session_reconnecting.py`); here is what is said in it, because the host has said it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from ..base.logs import peer_logger
from ..client.changes import Changes, Listeners, OnChange
from ..client.dialects import ModernDialect
from ..client.lists import HarmlessTools
from ..client.options import ClientOptions
from ..client.requester import Requester, run_with_timeout
from ..errors import Disconnected, McpError, RemoteProtocolError
from ..protocol.codec.models import validated
from ..protocol.codec.unknown import UnknownParams
from ..session import ClientSession
from ..session.forwarded import ForwardedRequest
from ..session.notification_dispatch import ignore_notification
from ..types import JsonObject, JsonValue
from .rounds import as_object
from .streams import tools_of

logger = peer_logger("trio_mcp.relay")

INITIALIZED: Final = "notifications/initialized"
MAX_URIS: Final = 1000
"""Resources that are subscribed to again."""

ASK_AGAIN_SECONDS: Final = 300.0
"""Seconds after which a server that has not answered is asked a second time; many take a second `initialize` for an error."""

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


class SessionMemory(Listeners):
    """One session, as its host has set it up.

    Args:
        handshake: the params of `initialize` that the server has accepted.
        result: its answer, which is what the host knows.
        notify: passes a notification to the host.
    """

    def __init__(
        self,
        link: Requester,
        on_change: OnChange,
        handshake: JsonObject,
        result: JsonObject,
        notify: Callable[[str, UnknownParams], None],
    ) -> None:
        super().__init__(link, on_change)
        self.handshake, self._result = handshake, result
        self._notify = notify
        self._initialized: UnknownParams | None = None
        self._level: JsonObject | None = None
        self._uris: dict[str, None] = {}
        self._harmless = HarmlessTools()

    @property
    def version(self) -> JsonValue:
        """The revision that both sides agreed on."""
        return self._result.get("protocolVersion")

    def note_notification(self, method: str, params: UnknownParams) -> None:
        """Remember that the host has said that it is ready."""
        if method == INITIALIZED:
            self._initialized = params

    def note_result(self, method: str, params: JsonObject, result: JsonObject) -> None:
        """Remember what a request of the host has set, or what its result says of the tools.

        One that was rejected has set nothing, and one that waits for another session sets it there itself.
        """
        if method == "tools/list":
            self._learn(result)
        elif method == "logging/setLevel":
            self._level = params
        elif method == "resources/subscribe" and len(self._uris) < MAX_URIS:
            if isinstance(uri := params.get("uri"), str):
                self._uris[uri] = None
        elif method == "resources/unsubscribe" and isinstance(uri := params.get("uri"), str):
            self._uris.pop(uri, None)

    def _learn(self, result: JsonObject) -> None:
        """Remember which tools of a list do no more when they run twice."""
        for name, tool in tools_of(result):
            hints = as_object(tool.get("annotations"))
            is_harmless = hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True
            self._harmless.note(name, is_harmless=is_harmless)

    def is_repeatable(self, method: str, params: JsonObject) -> bool:
        """Return whether a request may be sent again although the server may have processed it."""
        if method == "tools/call":
            return isinstance(name := params.get("name"), str) and name in self._harmless
        return method in REPEATABLE

    # what the link asks of the subscribers of its session

    @property
    def needs_session(self) -> bool:
        """A server may send something to its host at any time."""
        return True

    async def begin(self, changes: Changes, /) -> None:
        """Nothing but the host subscribes."""
        raise NotImplementedError

    async def finish(self, changes: Changes, /) -> None:
        """See `begin`."""
        raise NotImplementedError

    def end(self, why: Disconnected) -> None:
        """The host has no stream that could end."""

    async def restore(self, session: ClientSession) -> None:
        """Say again what the host has said, and tell it what it may have missed.

        No answer is waited for: what the host requests next comes after these requests, and is not to wait for them.
        """
        if self._initialized is not None:
            session.pass_on(INITIALIZED, self._initialized)
        sent = [session.forward(method, params, ignore_notification) for method, params in self._requests()]
        if sent:
            self._link.start(partial(note_rejected, sent))
        logger.info("the session was opened again")
        for method, params in self._missed():
            self._notify(method, validated(UnknownParams, params, "params"))

    def _requests(self) -> Iterator[tuple[str, JsonObject]]:
        if self._level is not None:
            yield "logging/setLevel", self._level
        for uri in self._uris:
            yield "resources/subscribe", {"uri": uri}

    def _missed(self) -> Iterator[tuple[str, JsonObject]]:
        """Yield the notifications that the host may have missed, of the kinds that the server's capabilities announce."""
        capabilities = as_object(self._result.get("capabilities"))
        for kind, method in CHANGES.items():
            if as_object(capabilities.get(kind)).get("listChanged") is True:
                yield method, {}
        for uri in self._uris:
            yield "notifications/resources/updated", {"uri": uri}


async def note_rejected(sent: Sequence[ForwardedRequest]) -> None:
    """Wait for the answers, and note that the server does not take again what it took in an earlier session."""
    for each in sent:
        try:
            await each.result()
        except McpError as error:
            logger.info("the server did not take again what was set in its earlier session: %s", error)


class HostDialect(ModernDialect):
    """The dialect of a host that speaks for itself: the client adds nothing to its messages, and remembers nothing of them."""


class LastingDialect(HostDialect):
    """The dialect of such a host, whose session is opened again.

    Args:
        memory: what the host has set.
        end: ends the connection for a reason.
    """

    can_reopen = True

    def __init__(
        self, session: ClientSession, options: ClientOptions, memory: SessionMemory, end: Callable[[str], None]
    ) -> None:
        super().__init__(session, options)
        self._memory, self._end = memory, end

    async def reopen(self) -> None:
        """Open a session as the host has done; the host cannot agree to another revision, and is left then.

        Raises:
            RemoteProtocolError: the server has come back with another revision.
            PeerError, RequestTimeout, Disconnected: it did not open the session.
        """
        opening = self.session.forward("initialize", self._memory.handshake, ignore_notification)
        result = await run_with_timeout(ASK_AGAIN_SECONDS, "the handshake", opening.result)
        version = result.get("protocolVersion")
        if version != self._memory.version:
            why = f"it has come back with the revision {version!r:.40}, and the host speaks {self._memory.version}"
            self._end(why)
            raise RemoteProtocolError(why)

    def make_listeners(self, link: Requester, on_change: OnChange) -> Listeners:  # noqa: ARG002
        return self._memory
