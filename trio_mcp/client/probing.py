"""The request that finds out what a server asks of a client, without a session."""

from __future__ import annotations

from typing import NamedTuple

from ..protocol.http.headers import headers_of
from ..protocol.revisions import CLIENT_CAPABILITIES, MODERN, PROTOCOL_VERSION
from ..types import JsonObject

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
