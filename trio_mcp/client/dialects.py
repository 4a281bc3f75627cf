"""How a client speaks each of the two eras of MCP.

`opening` finds out which era the server speaks and chooses the dialect, once. From then on the dialect does everything that
differs between the eras: nothing else in the client looks at a revision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import trio

from ..base.logs import peer_logger
from ..base.named_tuples import NamedTuple
from ..errors import (
    AuthorizationError,
    Disconnected,
    PeerError,
    RemoteProtocolError,
    RequestTimeout,
    ServerBusy,
    Unreachable,
)
from ..protocol.codec import codec_for
from ..protocol.codec.models import validated
from ..protocol.http.headers import ParameterHeaders, headers_of
from ..protocol.jsonrpc import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from ..protocol.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    MODERN,
    NEWEST_LEGACY,
    PROTOCOL_VERSION,
    REVISIONS,
    SERVER_INFO,
    Era,
)
from ..session import ClientSession
from ..session.client import SessionTerms
from ..types import (
    DiscoverResult,
    Implementation,
    InitializeRequestParams,
    InitializeResult,
    JsonObject,
    JsonValue,
    LoggingLevel,
    NotificationParams,
    RequestParams,
    SetLevelRequestParams,
    Tool,
)
from .changes import Listeners, OnChange
from .options import ClientOptions
from .requester import Requester, ServerFacts
from .subscriptions import ListenStreams, Subscriptions

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
        info = shown_info(server) if isinstance(server, dict) else None
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


def shown_info(server: JsonObject) -> Implementation:
    """Return what a server says of itself. It is shown, and no more: where it is odd, it has what text there is."""
    try:
        return validated(Implementation, server, SERVER_INFO)
    except RemoteProtocolError:
        name, version = [text if isinstance(text := server.get(key), str) else "" for key in ("name", "version")]
        return Implementation(name=name, version=version)


# Finding out which era a server speaks, and opening the session in it.
#
# A modern server needs no handshake and answers `server/discover` (M-DUAL-5c, M-DUAL-6c). If it rejects the version and names
# others, the request is sent again in one of those (M-VER-2c). Another error that only modern servers send is final. Anything
# else, an error with any other code or no answer, means that the server is a legacy one: then the client sends `initialize`.

# One decision, made once, by what comes back to a modern `server/discover`:
#
#   a result that lists the revision      modern
#   -32022, lists modern revisions        modern, in the newest of them that both speak; asked once more
#   -32022, lists legacy revisions only   legacy, in the newest of them
#   -32020, -32021                        an error: only a modern server sends it, and another revision would not cure it
#   any other error, or garbage           legacy: an old server answers a method that it does not know in its own way
#   the end of the connection, HTTP 202   legacy: some old servers take any other first message for fatal, and are started or
#                                         connected to once more
#   HTTP 429 or 503                       an error: it says nothing about the era
#   nothing within `probe_timeout`        legacy: some old servers drop whatever comes before `initialize`.
#                                         A modern server that was only slow to start answers the probe late and rejects
#                                         `initialize` with -32022: modern after all
#
# The order matters. `initialize` first would find every server that speaks both eras in its older one.


MODERN_ERRORS = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY})
"""Errors that only a modern server sends, and that another revision would not cure."""


async def open_dialect(session: ClientSession, options: ClientOptions) -> Dialect:
    """Open the session in the era that `options.mode` or the server chooses, and return its dialect.

    Raises:
        RemoteProtocolError: there is no revision that both sides speak.
        PeerError, RequestTimeout, Disconnected: the server did not open it.
    """
    mode = options.mode
    revision = REVISIONS.get(mode)
    if mode == "legacy" or (revision is not None and revision.era is Era.LEGACY):
        return await open_legacy(session, options, NEWEST_LEGACY if mode == "legacy" else mode)
    if mode != "auto":
        return await open_modern(session, options, MODERN if mode == "modern" else mode, HANDSHAKE_TIMEOUT)
    try:
        # A timeout of 0 is not a probe at all, and would take every server for a legacy one: it means the default.
        return await open_modern(session, options, MODERN, options.probe_timeout or HANDSHAKE_TIMEOUT)
    except AuthorizationError:
        # It says nothing of the era, and another request would start another login.
        raise
    except (PeerError, RequestTimeout, RemoteProtocolError, Disconnected) as error:
        is_over = isinstance(error, Disconnected) and session.closed_because is not None
        if is_over or isinstance(error, Unreachable | ServerBusy):
            raise
        if isinstance(error, PeerError) and error.code in MODERN_ERRORS:
            raise
        logger.debug("the server is a legacy one: %s", error)
        version, was_silent = legacy_version_of(error), isinstance(error, RequestTimeout | Disconnected)
    # Outside of the `except`: an error of the handshake should not show that of the probe as its context.
    try:
        return await open_legacy(session, options, version)
    except PeerError as error:
        if not was_silent or error.code != UNSUPPORTED_VERSION:
            raise
        logger.debug("the server is a modern one that was slow to answer: %s", error)
    return await open_modern(session, options, MODERN, HANDSHAKE_TIMEOUT)


async def open_legacy(session: ClientSession, options: ClientOptions, version: str) -> LegacyDialect:
    dialect = LegacyDialect(session, options)
    await dialect.open(version)
    return dialect


async def open_modern(session: ClientSession, options: ClientOptions, version: str, timeout: float) -> ModernDialect:
    """Open in this modern revision, or in the newest of those that the server offers when it rejects this one."""
    dialect = ModernDialect(session, options)
    try:
        await dialect.open(version, timeout)
        return dialect
    except PeerError as error:
        # The newest that both sides speak; it may be the one that the server has just rejected.
        offered = newest_version(Era.MODERN, versions_offered_by(error))
        if offered is None:
            raise
    # Outside of the `except`, and without a loop: a server that rejects a revision from its own list is broken.
    await dialect.open(offered, timeout)
    return dialect


def legacy_version_of(error: Exception) -> str:
    """Return the revision to propose in a handshake: the newest that the error offers, or our newest if it offers none at all.

    Raises:
        RemoteProtocolError: this client speaks none of those that it offers (M-VER-2c).
    """
    offered = versions_offered_by(error)
    if offered and newest_version(Era.MODERN, offered) is None and newest_version(Era.LEGACY, offered) is None:
        theirs = ", ".join(str(version)[:32] for version in offered[:10])
        raise RemoteProtocolError(f"the server speaks {theirs}; this client speaks {', '.join(REVISIONS)}") from error
    return newest_version(Era.LEGACY, offered) or NEWEST_LEGACY


def versions_offered_by(error: Exception) -> list[JsonValue]:
    """Return the versions that the error about an unsupported version lists; none for any other error."""
    if not isinstance(error, PeerError) or error.code != UNSUPPORTED_VERSION or not isinstance(error.data, dict):
        return []
    supported = error.data.get("supported")
    return supported if isinstance(supported, list) else []


def newest_version(era: Era, offered: list[JsonValue]) -> str | None:
    return next((name for name, revision in REVISIONS.items() if revision.era is era and name in offered), None)


# The request that finds out what a server asks of a client, without a session.

METHOD = "server/discover"


class Probe(NamedTuple):
    """A POST to the endpoint of a server. A server that asks for a login rejects it, whichever era it speaks."""

    message: JsonObject
    headers: dict[str, str]


def probe() -> Probe:
    """Return the request."""
    params: JsonObject = {"_meta": {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}}
    message: JsonObject = {"jsonrpc": "2.0", "id": 0, "method": METHOD, "params": params}
    return Probe(message, {**headers_of(METHOD, params), "accept": "application/json, text/event-stream"})
