"""Finding out which era a server speaks, and opening the session in it.

A modern server needs no handshake and answers `server/discover` (M-DUAL-5c, M-DUAL-6c). If it rejects the version and names
others, the request is sent again in one of those (M-VER-2c). Another error that only modern servers send is final. Anything
else, an error with any other code or no answer, means that the server is a legacy one: then the client sends `initialize`.
"""

# One decision, made once, by what comes back to a modern `server/discover`:
#
#   a result that lists the revision      modern
#   -32022, lists modern revisions        modern, in the newest of them that both speak; asked once more
#   -32022, lists legacy revisions only   legacy, in the newest of them
#   -32020, -32021                        an error: only a modern server sends it, and another revision would not cure it
#   any other error, or garbage           legacy: an old server answers a method that it does not know in its own way
#   nothing within `probe_timeout`        legacy: some old servers drop whatever comes before `initialize`.
#                                         A modern server that was only slow to start answers the probe late and rejects
#                                         `initialize` with -32022: modern after all
#
# The order matters. `initialize` first would find every server that speaks both eras in its older one.

from __future__ import annotations

from ..errors import PeerError, RemoteProtocolError, RequestTimeout
from ..logs import peer_logger
from ..protocol.jsonrpc import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION
from ..protocol.revisions import MODERN, NEWEST_LEGACY, REVISIONS, Era
from ..session import ClientSession
from ..types import JsonValue
from .dialects import HANDSHAKE_TIMEOUT, Dialect, LegacyDialect, ModernDialect
from .options import ClientOptions

logger = peer_logger("trio_mcp.client")

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
    except (PeerError, RequestTimeout, RemoteProtocolError) as error:
        if isinstance(error, PeerError) and error.code in MODERN_ERRORS:
            raise
        logger.debug("the server is a legacy one: %s", error)
        version, was_silent = legacy_version_of(error), isinstance(error, RequestTimeout)
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
