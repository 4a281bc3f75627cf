"""The terms of one request: what its client can do, and how to answer it.

A modern request states its terms in `_meta` (2026-07-28, request metadata). The terms of a legacy request are those of its
session. Both are one type, so that a server never asks which era a request belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..errors import RemoteProtocolError
from ..types import LOGGING_LEVELS, ClientCapabilities, Implementation, JsonObject, LoggingLevel, ProgressToken
from .codec import CODECS, Codec
from .jsonrpc import INVALID_PARAMS, is_request_id
from .meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN, PROTOCOL_VERSION
from .revisions import NEWEST_LEGACY, REVISIONS, Era, unsupported_version
from .validation import validated


@dataclass(slots=True, eq=False)
class LogThreshold:
    """The least severe log level that is sent; None sends nothing. A session shares one, a modern request has one (M-LOG-1s)."""

    level: LoggingLevel | None

    def passes(self, level: LoggingLevel) -> bool:
        return self.level is not None and LOGGING_LEVELS.index(level) >= LOGGING_LEVELS.index(self.level)


class RequestTerms(NamedTuple):
    """What applies to one request.

    Attributes:
        codec: reads and writes the revision of this request.
        client_capabilities: what the client declared.
        client_info: for display and logs only.
        log_threshold: which log messages the client wants.
        progress_token: the token to report progress under; None for no reports.
        meta: the raw `_meta` of the request.
        asks_in_rounds: a question to the client ends the request (modern) instead of being a request itself (legacy).
    """

    codec: Codec
    client_capabilities: ClientCapabilities
    client_info: Implementation | None
    log_threshold: LogThreshold
    progress_token: ProgressToken | None
    meta: JsonObject
    asks_in_rounds: bool


LEGACY_CODEC: Final = CODECS[NEWEST_LEGACY]
NOTHING_DECLARED: Final = ClientCapabilities()


@dataclass(slots=True, eq=False)
class SessionTerms:
    """What a session has agreed on; changed by `initialize` and `logging/setLevel`."""

    codec: Codec = LEGACY_CODEC
    client_capabilities: ClientCapabilities = NOTHING_DECLARED
    client_info: Implementation | None = None
    log_threshold: LogThreshold = field(default_factory=lambda: LogThreshold("info"))

    def for_request(self, params: JsonObject) -> RequestTerms:
        """Return the terms of a legacy request with these params."""
        meta = params.get("_meta")
        if not isinstance(meta, dict):  # absent, or malformed: the codec rejects the params then
            meta = {}
        token = meta.get(PROGRESS_TOKEN)
        return RequestTerms(
            self.codec,
            self.client_capabilities,
            self.client_info,
            self.log_threshold,
            token if is_request_id(token) else None,
            meta,
            asks_in_rounds=False,
        )


def modern_terms(meta: JsonObject) -> RequestTerms:
    """Return the terms that a modern request states in its `_meta`; nothing of them outlives the request (M-ST-1s).

    Raises:
        RemoteProtocolError: -32022 for a version that is unknown or is reached through `initialize`, raised before anything
            else because the other keys may differ there; -32602 for a key that is missing or has the wrong type (M-META-1s).
    """
    codec = CODECS[_version(meta[PROTOCOL_VERSION])]
    capabilities = _capabilities(meta)
    info = meta.get(CLIENT_INFO)
    return RequestTerms(
        codec,
        capabilities,
        None if info is None else validated(Implementation, info, _path(CLIENT_INFO)),
        LogThreshold(_log_level(meta.get(LOG_LEVEL))),
        _progress_token(meta),
        meta,
        asks_in_rounds=True,
    )


def _version(value: object) -> str:
    if not isinstance(value, str):
        raise _invalid(PROTOCOL_VERSION, "must be a string")
    revision = REVISIONS.get(value)
    if revision is None or revision.era is not Era.MODERN:
        raise unsupported_version(value)
    return value


def _capabilities(meta: JsonObject) -> ClientCapabilities:
    if CLIENT_CAPABILITIES not in meta:
        raise _invalid(CLIENT_CAPABILITIES, "required since 2026-07-28; {} declares nothing")
    return validated(ClientCapabilities, meta[CLIENT_CAPABILITIES], _path(CLIENT_CAPABILITIES))


def _log_level(value: object) -> LoggingLevel | None:
    if value is None:
        return None
    for level in LOGGING_LEVELS:
        if value == level:
            return level
    raise _invalid(LOG_LEVEL, f"must be one of {', '.join(LOGGING_LEVELS)}, not {str(value)[:64]!r}")


def _progress_token(meta: JsonObject) -> ProgressToken | None:
    if PROGRESS_TOKEN not in meta:
        return None
    token = meta[PROGRESS_TOKEN]
    if isinstance(token, str) or (isinstance(token, int) and not isinstance(token, bool)):
        return token
    raise _invalid(PROGRESS_TOKEN, "must be a string or an integer")


def _invalid(key: str, problem: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"{_path(key)}: {problem}", code=INVALID_PARAMS)


def _path(key: str) -> str:
    return f'params._meta["{key}"]'
