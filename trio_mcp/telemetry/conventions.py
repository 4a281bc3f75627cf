"""The conventions of OpenTelemetry for MCP: names of spans and attributes, and which answers are errors.

They are those of `model/mcp` in open-telemetry/semantic-conventions-genai, whose stability is *development*. What they have no
name for begins with `trio_mcp.`. Nothing that a client chooses freely becomes a name: what no server offers is `_other`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from pydantic_core import to_json

from ..protocol.codec.models import Params
from ..protocol.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RESOURCE_NOT_FOUND, ErrorDetail
from ..types import JsonValue

Value: TypeAlias = str | bool | int | float
Attributes: TypeAlias = dict[str, Value]

OTHER: Final = "_other"
"""Stands for a name that the server does not have."""
OTHER_ERROR: Final = "_OTHER"
"""Stands for the code of an error; the value of `error.type` for all that an instrumentation does not know."""
TOOL_ERROR: Final = "tool_error"
MAX_TEXT: Final = 256
"""Characters of a text of a peer in a span."""
MAX_CONTENT: Final = 8192
"""Characters of a value of `telemetry_content=True`."""

METHOD: Final = "mcp.method.name"
VERSION: Final = "mcp.protocol.version"
REQUEST_ID: Final = "jsonrpc.request.id"
ERROR_TYPE: Final = "error.type"
STATUS_CODE: Final = "rpc.response.status_code"
URI: Final = "mcp.resource.uri"

NAMED: Final[Mapping[str, str]] = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
"""The attribute of the target of a method, by method."""

REFUSALS: Final = frozenset({-32700, -32600, METHOD_NOT_FOUND, INVALID_PARAMS, RESOURCE_NOT_FOUND})
"""Codes of answers to requests that could not be served; at a server they are no errors."""
RESERVED: Final = range(-32768, -31999)
"""The codes that JSON-RPC reserves; MCP has its own among them."""
UNNAMED: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})
"""Codes after which it is not known whether there is what the request named."""


def target_of(method: str, params: Params) -> str:
    """Return the name of the tool or prompt that a request is about; empty for other requests."""
    if method not in NAMED:
        return ""
    name: object = getattr(params, "name", "")
    return name[:MAX_TEXT] if isinstance(name, str) else ""


def request_attributes(method: str, target: str, version: str, network: Mapping[str, Value]) -> Attributes:
    """Return what the span and the metrics of a request have in common.

    Args:
        version: the revision; empty where it is not known.
        network: the attributes of the connection.
    """
    attributes: Attributes = {METHOD: method, **network}
    if version:
        attributes[VERSION] = version
    if target:
        attributes[NAMED[method]] = target
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    return attributes


def content_attributes(method: str, params: Params) -> Attributes:
    """Return what a request holds, for spans that show it."""
    found: Attributes = {}
    uri: object = getattr(params, "uri", None)
    if method.startswith("resources/") and isinstance(uri, str):
        found[URI] = uri[:MAX_CONTENT]
    arguments: Mapping[str, JsonValue] = getattr(params, "arguments", None) or {}
    if method == "tools/call":
        found["gen_ai.tool.call.arguments"] = to_json(arguments).decode()[:MAX_CONTENT]
    elif method == "prompts/get":
        found |= {
            f"gen_ai.prompt.variable.{name[:MAX_TEXT]}": str(value)[:MAX_CONTENT] for name, value in arguments.items()
        }
    return found


def status_of(error: ErrorDetail, *, is_server: bool) -> Attributes:
    """Return the attributes of an answer with an error."""
    code = str(error.code)
    return {STATUS_CODE: code} if is_server and error.code in REFUSALS else {STATUS_CODE: code, ERROR_TYPE: code}


def measured(attributes: Attributes) -> Attributes:
    """Return the attributes of a request for its metrics: a code that JSON-RPC does not reserve, which a peer chooses, is one."""
    code = attributes.get(STATUS_CODE)
    if code is None or int(code) in RESERVED:
        return attributes
    return {name: OTHER_ERROR if name in {STATUS_CODE, ERROR_TYPE} else value for name, value in attributes.items()}


def session_attributes(version: str, network: Mapping[str, Value], error: str | None) -> Attributes:
    """Return the attributes of a session that has ended."""
    attributes = {name: value for name, value in network.items() if name != "network.transport"}
    if error is not None:
        attributes[ERROR_TYPE] = error
    return {VERSION: version, **attributes}
