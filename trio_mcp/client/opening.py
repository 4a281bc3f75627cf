"""Finding out which era a server speaks, and opening the conversation in it.

A server of the modern era needs no handshake and answers `server/discover` (M-DUAL-5c, M-DUAL-6c). One that refuses the version
says which it speaks: the request is sent again in one of those (M-VER-2c). Another error that only the modern era has is final.
Anything else, an error of any other code or silence, means the handshake era: then `initialize`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..errors import PeerError, RemoteProtocolError, RequestTimeout
from ..protocol.codec import codec_for
from ..protocol.jsonrpc import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, SERVER_INFO
from ..protocol.revisions import MODERN, NEWEST_LEGACY, REVISIONS, Era
from ..session import ClientSession
from ..types import (
    ClientCapabilities,
    DiscoverResult,
    Implementation,
    InitializeRequestParams,
    InitializeResult,
    JsonValue,
    LoggingLevel,
    NotificationParams,
    RequestParams,
    ServerCapabilities,
    SetLevelRequestParams,
)

logger = logging.getLogger("trio_mcp.client")

MODERN_ERRORS = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY})
"""Errors that only a modern server answers with, and that no other revision would cure."""

HANDSHAKE_TIMEOUT = 30.0
"""Seconds a server may take to answer `initialize`; it may be starting."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What the server told of itself."""

    protocol_version: str
    capabilities: ServerCapabilities
    info: Implementation | None
    instructions: str | None


async def open_conversation(
    session: ClientSession,
    mode: str,
    capabilities: ClientCapabilities,
    info: Implementation,
    probe_timeout: float,
) -> ServerFacts:
    """Open the conversation: `mode` is "auto", "modern", "legacy", or the revision to speak.

    Raises:
        RemoteProtocolError: there is no revision that both sides speak.
        PeerError, RequestTimeout, Disconnected: the server failed to open it.
    """
    revision = REVISIONS.get(mode)
    if mode == "legacy" or (revision is not None and revision.era is Era.LEGACY):
        return await initialize(session, NEWEST_LEGACY if mode == "legacy" else mode, capabilities, info)
    if mode != "auto":
        mode = MODERN if mode == "modern" else mode
        codec_for(mode)  # names the revisions there are when this is none of them
        return await negotiate(session, mode, capabilities, info, None)
    try:
        return await negotiate(session, MODERN, capabilities, info, probe_timeout)
    except (PeerError, RequestTimeout, RemoteProtocolError) as error:
        if isinstance(error, PeerError) and error.code in MODERN_ERRORS:
            raise
        logger.debug("the server is of the handshake era: %s", error)
        version = handshake_version_of(error)
    session.stamp = {}
    return await initialize(session, version, capabilities, info)


async def negotiate(
    session: ClientSession, version: str, capabilities: ClientCapabilities, info: Implementation, timeout: float | None
) -> ServerFacts:
    """Speak a modern revision: this one, or the newest of those that the server offers when it refuses this one."""
    try:
        return await discover(session, version, capabilities, info, timeout)
    except PeerError as error:
        offered = modern_version_of(error)
        if offered is None:
            raise
    return await discover(session, offered, capabilities, info, timeout)


async def discover(
    session: ClientSession, version: str, capabilities: ClientCapabilities, info: Implementation, timeout: float | None
) -> ServerFacts:
    """Speak a modern revision: from now on every request says who asks and what it can be asked."""
    session.codec = codec_for(version)
    session.stamp = {
        PROTOCOL_VERSION: version,
        CLIENT_CAPABILITIES: session.codec.declared(capabilities),
        CLIENT_INFO: info.wire(),
    }
    result = await session.request("server/discover", RequestParams(), timeout=timeout or HANDSHAKE_TIMEOUT)
    assert isinstance(result, DiscoverResult)
    session.connection.agree(version)
    if version not in result.supported_versions:
        raise RemoteProtocolError(f"the server does not speak {version} but {', '.join(result.supported_versions)}")
    server = (result.meta or {}).get(SERVER_INFO)
    known = Implementation.model_validate(server) if isinstance(server, dict) else None
    return ServerFacts(version, result.capabilities, known, result.instructions)


async def initialize(
    session: ClientSession, version: str, capabilities: ClientCapabilities, info: Implementation
) -> ServerFacts:
    """The handshake (L-LC-1c to L-LC-3c)."""
    session.codec = codec_for(version)
    params = InitializeRequestParams(protocol_version=version, capabilities=capabilities, client_info=info)
    result = await session.request("initialize", params, timeout=HANDSHAKE_TIMEOUT)
    assert isinstance(result, InitializeResult)
    chosen = REVISIONS.get(result.protocol_version)
    if chosen is None or chosen.era is not Era.LEGACY:
        raise RemoteProtocolError(f"the server wants to speak {result.protocol_version!r}, which this client does not")
    session.connection.agree(chosen.name)
    session.codec = session.connection.codec
    session.notify("notifications/initialized", NotificationParams())
    return ServerFacts(chosen.name, result.capabilities, result.server_info, result.instructions)


async def ask_for_logs(session: ClientSession, capabilities: ServerCapabilities, level: LoggingLevel) -> None:
    """Tell the server which log messages are wanted: with every request (M-LOG-1s), or once in the handshake era."""
    if session.stamp:
        session.stamp = {**session.stamp, LOG_LEVEL: level}
    elif capabilities.logging is not None:
        try:
            await session.request("logging/setLevel", SetLevelRequestParams(level=level), timeout=HANDSHAKE_TIMEOUT)
        except (PeerError, RequestTimeout, RemoteProtocolError) as error:
            logger.debug("the server keeps its own log level: %s", error)


def modern_version_of(error: Exception) -> str | None:
    """The newest modern revision that the server's refusal offers and that we speak, be it the one it refused; else None."""
    return newest(Era.MODERN, offered_by(error))


def handshake_version_of(error: Exception) -> str:
    """The revision to propose in a handshake: the newest that the refusal offers, or our newest where it offers none at all.

    Raises:
        RemoteProtocolError: what it offers is nothing that we speak (M-VER-2c).
    """
    offered = offered_by(error)
    if offered and newest(Era.MODERN, offered) is None and newest(Era.LEGACY, offered) is None:
        theirs = ", ".join(str(version)[:32] for version in offered[:10])
        raise RemoteProtocolError(f"the server speaks {theirs}; this client speaks {', '.join(REVISIONS)}") from error
    return newest(Era.LEGACY, offered) or NEWEST_LEGACY


def offered_by(error: Exception) -> list[JsonValue]:
    """What a refused version's error says is spoken instead; nothing for any other error."""
    if not isinstance(error, PeerError) or error.code != UNSUPPORTED_VERSION or not isinstance(error.data, dict):
        return []
    supported = error.data.get("supported")
    return supported if isinstance(supported, list) else []


def newest(era: Era, offered: list[JsonValue]) -> str | None:
    return next((name for name, revision in REVISIONS.items() if revision.era is era and name in offered), None)
