"""How a client speaks each of the two eras of MCP.

`opening` finds out which era the server speaks and chooses the dialect, once. From then on the dialect does everything that
differs between the eras: nothing else in the client looks at a revision.
"""

# What differs, and why it cannot be one code path:
#
#                     LegacyDialect (up to 2025-11-25)        ModernDialect (2026-07-28)
#   opens with        initialize, then a notification         server/discover; there is no session to open
#   each request      carries its params alone                carries version, capabilities and client info in `_meta`
#   ping              ping                                    server/discover, as `ping` was removed
#   log level         logging/setLevel, kept by the server    a member of `_meta` of each request
#   changes           the session, resources/subscribe        one subscriptions/listen stream for each listener
#   changed roots     a notification                          nothing: the server asks when it needs them
#   lost session      initialize again                        cannot happen
#   x-mcp-header      not known, so no header                 arguments are repeated in headers; a tool whose
#                                                             annotation is wrong is left out of lists

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import trio

from ..errors import Disconnected, PeerError, RemoteProtocolError, RequestTimeout
from ..logs import peer_logger
from ..protocol.codec import codec_for
from ..protocol.http.parameter_headers import ParameterHeaders
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, SERVER_INFO
from ..protocol.revisions import REVISIONS, Era
from ..session import ClientSession
from ..session.client import SessionTerms
from ..types import (
    DiscoverResult,
    Implementation,
    InitializeRequestParams,
    InitializeResult,
    JsonObject,
    LoggingLevel,
    NotificationParams,
    RequestParams,
    SetLevelRequestParams,
    Tool,
)
from .changes import Listeners, OnChange
from .listen_streams import ListenStreams
from .options import ClientOptions
from .requester import Requester, ServerFacts
from .session_subscriptions import Subscriptions

logger = peer_logger("trio_mcp.client")

HANDSHAKE_TIMEOUT: Final = 30.0
"""Seconds that a server may take to answer the request that opens the conversation; it may still be starting."""


class Dialect(ABC):
    """How the client speaks the revision that it agreed on with the server.

    Attributes:
        facts: what the server declared about itself.
        listeners: the subscribers to changes, from when the session is open.
        ping_method: the request that any server answers.
        can_reopen: whether the server may lose the session, and `reopen` opens another.
        session: sends and receives.
    """

    ping_method: ClassVar[str]
    can_reopen: ClassVar[bool]
    facts: ServerFacts
    listeners: Listeners

    def __init__(self, session: ClientSession, options: ClientOptions) -> None:
        self.session = session
        self._options = options
        self._log_level: LoggingLevel | None = None if options.on_log is None else options.log_level
        """The least severe log messages that are requested; None requests none."""

    @abstractmethod
    async def apply_log_level(self) -> None:
        """Request the log messages that the program wants in a session that was just opened. A rejection is only logged."""

    @abstractmethod
    async def set_log_level(self, link: Requester, level: LoggingLevel, timeout: float) -> None:
        """Request log messages of this level and above from now on, also in a session that is reopened.

        Raises the errors of the request, if one is sent.
        """

    async def reopen(self) -> None:
        """Open a session again after the server lost it. Raises the errors of opening."""
        raise Disconnected("the server lost a session, although its revision has none")

    def announce_changed_roots(self) -> None:  # noqa: B027
        """Notify the server that the roots changed. Does nothing in an era in which the server asks for them (L-ROOT-1c)."""

    def parameter_headers(self, tool: Tool) -> ParameterHeaders | None:  # noqa: ARG002
        """Return which arguments of a tool are repeated in headers, or None: only modern revisions have that annotation.

        Raises:
            ValueError: the tool's annotations are not valid, and the client must not offer it.
        """
        return None

    @abstractmethod
    def make_listeners(self, link: Requester, on_change: OnChange) -> Listeners:
        """Return the subscribers of this era. `on_change` is called with each change, before any subscriber gets it."""


class LegacyDialect(Dialect):
    """A session that `initialize` opens and the server remembers."""

    ping_method = "ping"
    can_reopen = True

    async def open(self, version: str) -> None:
        """Propose a revision, and accept the one that the server answers with (L-LC-1c to L-LC-3c).

        Raises:
            RemoteProtocolError: the server wants a revision that this client does not speak in this era.
            PeerError, RequestTimeout, Disconnected: the server did not open the session.
        """
        session, options = self.session, self._options
        session.terms = SessionTerms(codec_for(version), {}, stateless=False)
        params = InitializeRequestParams(
            protocol_version=version, capabilities=options.handlers.capabilities, client_info=options.info
        )
        result = await session.request("initialize", params, timeout=HANDSHAKE_TIMEOUT)
        assert isinstance(result, InitializeResult)
        # The server may answer with another revision, and the client must accept it or disconnect (L-LC-3c). A modern one is no
        # answer to `initialize`.
        chosen = REVISIONS.get(result.protocol_version)
        if chosen is None or chosen.era is not Era.LEGACY:
            raise RemoteProtocolError(
                f"the server wants to speak {result.protocol_version!r}, which this client does not"
            )
        session.connection.set_version(chosen.name)
        # Before the notification, which must already be encoded in the agreed revision.
        session.terms = SessionTerms(session.connection.terms.codec, {}, stateless=False)
        session.notify("notifications/initialized", NotificationParams())
        self.facts = ServerFacts(chosen.name, result.capabilities, result.server_info, result.instructions)

    async def reopen(self) -> None:
        # Their questions were asked in the session that was lost.
        self.session.cancel_handlers()
        # Before the session is open, and not after: the transport may learn at once that nothing is announced in it.
        self.listeners.begin_session()
        # The revision of the last session and not the newest: calls that wait are going to be sent again as they are.
        await self.open(self.facts.protocol_version)

    async def apply_log_level(self) -> None:
        # Without the capability the server would reject the request, and the program asked for logs only in passing.
        if self._log_level is None or self.facts.capabilities.logging is None:
            return
        params = SetLevelRequestParams(level=self._log_level)
        try:
            await self.session.request("logging/setLevel", params, timeout=HANDSHAKE_TIMEOUT)
        except (PeerError, RequestTimeout, RemoteProtocolError) as error:
            logger.debug("the server keeps its own log level: %s", error)

    async def set_log_level(self, link: Requester, level: LoggingLevel, timeout: float) -> None:
        self._log_level = level
        await link.request("logging/setLevel", SetLevelRequestParams(level=level), timeout=timeout)

    def announce_changed_roots(self) -> None:
        self.session.notify("notifications/roots/list_changed", NotificationParams())

    def make_listeners(self, link: Requester, on_change: OnChange) -> Listeners:
        return Subscriptions(link, on_change)


class ModernDialect(Dialect):
    """Requests that carry all their context; the server keeps nothing between them."""

    ping_method = "server/discover"
    can_reopen = False

    async def open(self, version: str, timeout: float = HANDSHAKE_TIMEOUT) -> None:
        """Discover the server in this revision.

        Raises:
            RemoteProtocolError: the server answered, but does not list this revision.
            PeerError, RequestTimeout, Disconnected: the server could not be discovered.
        """
        session, options = self.session, self._options
        codec = codec_for(version)
        meta: JsonObject = {
            PROTOCOL_VERSION: version,
            CLIENT_CAPABILITIES: codec.declared(options.handlers.capabilities),
            CLIENT_INFO: options.info.wire(),
        }
        session.terms = SessionTerms(codec, meta, stateless=True)
        result = await session.request("server/discover", RequestParams(), timeout=timeout)
        assert isinstance(result, DiscoverResult)
        session.connection.set_version(version)
        # A server may answer in a revision without listing it, if it ignores the version. Its next answers could be anything.
        if version not in result.supported_versions:
            raise RemoteProtocolError(f"the server does not speak {version} but {', '.join(result.supported_versions)}")
        server = (result.meta or {}).get(SERVER_INFO)
        info = Implementation.model_validate(server) if isinstance(server, dict) else None
        self.facts = ServerFacts(version, result.capabilities, info, result.instructions)

    async def apply_log_level(self) -> None:
        if self._log_level is not None:
            terms = self.session.terms
            # M-LOG-1s
            self.session.terms = terms._replace(request_meta={**terms.request_meta, LOG_LEVEL: self._log_level})
            # A checkpoint in this era too: a program that loops over it must behave the same with both.
            await trio.lowlevel.checkpoint()

    async def set_log_level(self, link: Requester, level: LoggingLevel, timeout: float) -> None:  # noqa: ARG002
        self._log_level = level
        await self.apply_log_level()

    def parameter_headers(self, tool: Tool) -> ParameterHeaders:
        return ParameterHeaders.of(tool.input_schema)

    def make_listeners(self, link: Requester, on_change: OnChange) -> Listeners:
        return ListenStreams(link, on_change)
