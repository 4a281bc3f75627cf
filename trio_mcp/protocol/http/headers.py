"""The HTTP headers that repeat what a modern request says in its body (2026-07-28, Streamable HTTP: M-HTTP-3c to M-HTTP-5b).

Intermediaries route and log by them, so a server must reject a request whose headers differ from its body.
"""

# Example: the request {"method": "tools/call", "params": {"name": "café", "_meta": {...}}} of revision 2026-07-28
#
#   mcp-method            tools/call
#   mcp-protocol-version  2026-07-28
#   mcp-name              =?base64?Y2Fmw6k=?=     a header cannot hold the é
#
# Names are in lower case, as ASGI has them; HTTP compares them without case.

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from pydantic.alias_generators import to_snake

from ...errors import RemoteProtocolError
from ...types import JsonObject, JsonValue, RequestParams
from ..jsonrpc import HEADER_MISMATCH, Request, decoded
from ..meta import PROTOCOL_VERSION

VERSION_HEADER = "mcp-protocol-version"
METHOD_HEADER = "mcp-method"
NAME_HEADER = "mcp-name"
SESSION_HEADER = "mcp-session-id"

ABOUT_TASKS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Requests whose `Mcp-Name` is for routing only, and may be missing: the extension obliges the client to send it and no server to
refuse a request without it (M-TSK-8), and clients exist that do not. One that differs from the body is refused."""

NAMED_BY: Mapping[str, str] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    **dict.fromkeys(ABOUT_TASKS, "taskId"),
}
"""The member of the params that `Mcp-Name` repeats, by method."""

MARK, END = "=?base64?", "?="


def headers_of(method: str, params: JsonObject) -> dict[str, str]:
    """Return the headers that a modern client sends with a request."""
    meta = params.get("_meta")
    version = meta.get(PROTOCOL_VERSION) if isinstance(meta, dict) else None
    return {name: encode_value(value) for name, value in mirrored_values(method, params, version)}


def headers_for(method: str, params: RequestParams) -> dict[str, str]:
    """Return the same headers, of params that are a model."""
    member = NAMED_BY.get(method)
    named: JsonObject = {} if member is None else {member: getattr(params, to_snake(member), None)}
    return headers_of(method, {"_meta": params.meta, **named})


def check_headers(headers: Mapping[str, str], version: JsonValue, request: Request) -> None:
    """Raise unless the headers of a modern request agree with its body.

    Args:
        version: the revision that the body names (`Inbound.version`).

    Raises:
        RemoteProtocolError: -32020; the message names the header that is missing, malformed or different.
    """
    params = request.params if isinstance(request.params, dict) else decoded(request.params)
    for name, wanted in mirrored_values(request.method, params, version):
        sent = headers.get(name)
        if sent is None:
            if name == NAME_HEADER and request.method in ABOUT_TASKS:
                continue
            raise header_mismatch_error(f"the header {name} is missing; the body says {wanted!r}")
        if decode_value(name, sent) != wanted:
            raise header_mismatch_error(f"the header {name} says {sent[:128]!r}, the body {wanted[:128]!r}")


def mirrored_values(method: str, params: JsonObject, version: JsonValue) -> list[tuple[str, str]]:
    """Return what headers repeat of a request that names this revision, by the name of the header."""
    member = NAMED_BY.get(method)
    values = {
        METHOD_HEADER: method,
        VERSION_HEADER: version,
        NAME_HEADER: None if member is None else params.get(member),
    }
    return [(name, value) for name, value in values.items() if isinstance(value, str)]


def encode_value(value: str) -> str:
    """Return a value for a header: as it is, or in base64 between marks if a header cannot hold it (M-HTTP-5b)."""
    # A text that looks like an encoded one is encoded too: else the server would decode it.
    plain = value.isascii() and value.isprintable() and value == value.strip()
    if plain and not (value.startswith(MARK) and value.endswith(END)):
        return value
    return f"{MARK}{base64.b64encode(value.encode()).decode()}{END}"


def decode_value(name: str, value: str) -> str:
    """Return the value that a header stands for. A value with only one of the marks is not encoded.

    Raises:
        RemoteProtocolError: -32020; the value between the marks is not base64 of UTF-8, or the value holds characters that must
            be encoded: an intermediary might read these bytes as another text than this server does.
    """
    value = value.strip(" \t")
    if not (value.isascii() and value.isprintable()):
        raise header_mismatch_error(
            f"the header {name} holds more than printable ASCII: put base64 between {MARK} and {END}"
        )
    if not (value.startswith(MARK) and value.endswith(END) and len(value) >= len(MARK) + len(END)):
        return value
    try:
        return base64.b64decode(value[len(MARK) : -len(END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise header_mismatch_error(f"the header {name} is not base64 of UTF-8 between {MARK} and {END}") from None


def header_mismatch_error(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=HEADER_MISMATCH)
