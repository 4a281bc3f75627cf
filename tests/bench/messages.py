"""The messages that a server is sent, as text with the placeholders of the load generator.

`#########` becomes another number in each call, `@SID@` the id of the connection's session, `@RID@` the id of the server's
request, and `@STATE@` its requestState. A head has one line per header, and no Content-Length.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

LEGACY_REVISION = "2025-11-25"
MODERN_REVISION = "2026-07-28"
NUMBER = "#########"
PATH = "/mcp"
ELICITS: dict[str, Any] = {"elicitation": {"form": {}}}
CLIENT = {"name": "bench", "version": "1"}
ANSWER = {"action": "accept", "content": {"value": 7}}


class Era(Enum):
    """The two eras of the protocol."""

    LEGACY = "legacy"
    MODERN = "modern"


def template(message: dict[str, Any], *unquoted: str) -> str:
    """Return a message as JSON, in which these texts stand without quotation marks."""
    text = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
    for placeholder in unquoted:
        text = text.replace(f'"{placeholder}"', placeholder)
    return text


def request(method: str, params: dict[str, Any], era: Era, *, progress: bool = False) -> str:
    """Return a request; with `progress`, it asks for reports."""
    meta: dict[str, Any] = {}
    if era is Era.MODERN:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN_REVISION,
            "io.modelcontextprotocol/clientInfo": CLIENT,
            "io.modelcontextprotocol/clientCapabilities": ELICITS,
        }
    if progress:
        meta["progressToken"] = NUMBER
    whole = {**params, "_meta": meta} if meta else params
    return template({"id": NUMBER, "method": method, "params": whole}, NUMBER)


def call(tool: str, arguments: dict[str, Any], era: Era, *, progress: bool = False) -> str:
    """Return a call of a tool."""
    return request("tools/call", {"name": tool, "arguments": arguments}, era, progress=progress)


def retry(tool: str, key: str) -> str:
    """Return the call that answers the question with this key, in the modern era."""
    answers = {"requestState": "@STATE@", "inputResponses": {key: ANSWER}}
    return request("tools/call", {"name": tool, "arguments": {}, **answers}, Era.MODERN)


def initialize() -> str:
    """Return the request that opens a legacy session."""
    params = {"protocolVersion": LEGACY_REVISION, "capabilities": {"elicitation": {}}, "clientInfo": CLIENT}
    return template({"id": 1, "method": "initialize", "params": params})


def initialized() -> str:
    """Return the notification that follows `initialize`."""
    return template({"method": "notifications/initialized"})


def opening() -> str:
    """Return the lines that open a session on stdio or a WebSocket."""
    return f"{initialize()}\n{initialized()}\n"


def answer(request_id: str = "@RID@") -> str:
    """Return the response to a question of the server; `request_id` is JSON."""
    return template({"id": "@RID@", "result": ANSWER}, "@RID@").replace("@RID@", request_id)


def headers(port: int, era: Era, method: str, tool: str | None = None) -> dict[str, str]:
    """Return the headers of a POST."""
    common = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    if era is Era.LEGACY:
        return {**common, "MCP-Protocol-Version": LEGACY_REVISION, "Mcp-Session-Id": "@SID@"}
    named = {"Mcp-Name": tool} if tool else {}
    return {**common, "MCP-Protocol-Version": MODERN_REVISION, "Mcp-Method": method, **named}


def post(head: dict[str, str], body: str, query: str = "") -> str:
    """Return an HTTP request as the load generator wants it."""
    lines = [f"POST {PATH}{query} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    return "\n".join(lines) + "\n\n" + body
