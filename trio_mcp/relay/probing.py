"""Finding out which era a server speaks, for a host that has chosen one."""

from __future__ import annotations

from typing import Final

import trio

from ..client.opening import MODERN_ERRORS, newest_version
from ..errors import RemoteProtocolError
from ..protocol.codec.validation import validated
from ..protocol.jsonrpc import UNSUPPORTED_VERSION, ErrorResponse, Response, decoded
from ..protocol.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from ..protocol.revisions import MODERN, Era
from ..types import ClientCapabilities, Implementation, JsonObject, JsonValue, Model
from .rounds import as_object
from .upstream import Reply, Upstream

PROBE_TIMEOUT: Final = 15.0
"""Seconds that a server may take to start and to answer `server/discover` before it is taken for a legacy one. It is longer than
that of a client: a host that gives up earlier sends `initialize`, which ends the wait."""


async def discovers(upstream: Upstream, given_up: trio.Event, capabilities: JsonValue, info: JsonValue) -> bool:
    """Return whether the server speaks a modern revision (M-DUAL-5c).

    Args:
        given_up: set when the host no longer waits for it; the answer is then False.
        capabilities, info: what the host declares, with what the proxy answers, and who it is. The server may be a proxy, too,
            which declares them to a legacy server.
    """
    meta: JsonObject = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}
    # Only what is well-formed: a server's error about the rest would say nothing of its era.
    if is_valid(ClientCapabilities, capabilities):
        meta[CLIENT_CAPABILITIES] = capabilities
    if is_valid(Implementation, info):
        meta[CLIENT_INFO] = info
    reply: Reply | None = None

    async def stop() -> None:
        await given_up.wait()
        nursery.cancel_scope.cancel()

    with trio.move_on_after(PROBE_TIMEOUT):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop)
            reply = await upstream.request("server/discover", {"_meta": meta}, stateless=True)
            nursery.cancel_scope.cancel()
    return is_modern(reply)


def is_valid(kind: type[Model], value: JsonValue) -> bool:
    try:
        validated(kind, value, "")
    except RemoteProtocolError:
        return False
    return True


def is_modern(reply: Reply | None) -> bool:
    """Return whether what came back to `server/discover` is of a modern server; None is silence."""
    match reply:
        case Response(_, result):
            return "supportedVersions" in decoded(result)
        case ErrorResponse(_, error) if error.code == UNSUPPORTED_VERSION:
            supported = as_object(error.data).get("supported")
            return newest_version(Era.MODERN, supported if isinstance(supported, list) else []) is not None
        case ErrorResponse(_, error):
            return error.code in MODERN_ERRORS
        case _:
            return False


def declared_in(params: JsonObject) -> tuple[JsonValue, JsonValue]:
    """Return the capabilities that a host declares in its first request, and who it is."""
    meta = params.get("_meta")
    if isinstance(meta, dict) and PROTOCOL_VERSION in meta:
        return meta.get(CLIENT_CAPABILITIES), meta.get(CLIENT_INFO)
    return params.get("capabilities"), params.get("clientInfo")
