"""The reserved keys of `_meta`, and what a modern request says about itself in them (2026-07-28, request metadata)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import RemoteProtocolError
from ..types import LOGGING_LEVELS, ClientCapabilities, Implementation, JsonObject, LoggingLevel, ProgressToken
from .jsonrpc import INVALID_PARAMS
from .revisions import REVISIONS, Era, unsupported_version
from .validation import validated

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105  a member name, no secret

RESERVED: frozenset[str] = frozenset(
    {PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SERVER_INFO, SUBSCRIPTION_ID}
)
"""The keys that only the modern era has: never sent to a legacy peer."""


@dataclass(frozen=True, slots=True)
class RequestMeta:
    """What a modern request says about itself; nothing of it outlives the request (M-ST-1s).

    Attributes:
        client_info: for display and logs only.
        log_level: the least severe log message the client wants; None: none at all.
        raw: the whole `_meta` object.
    """

    protocol_version: str
    client_capabilities: ClientCapabilities
    client_info: Implementation | None
    log_level: LoggingLevel | None
    progress_token: ProgressToken | None
    raw: JsonObject


def read_meta(params: JsonObject) -> RequestMeta | None:
    """What `params._meta` says, or None without a protocol version in it: then the request is a legacy one.

    Raises:
        RemoteProtocolError: -32022 for a version that is unknown or is reached through `initialize`, told before
            anything else because the other keys may differ there; -32602 for a key that is missing or has the wrong
            type (M-META-1s).
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict) or PROTOCOL_VERSION not in meta:
        return None
    info = meta.get(CLIENT_INFO)
    return RequestMeta(
        _version(meta[PROTOCOL_VERSION]),
        _capabilities(meta),
        None if info is None else validated(Implementation, info, _path(CLIENT_INFO)),
        _log_level(meta.get(LOG_LEVEL)),
        _progress_token(meta),
        meta,
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
