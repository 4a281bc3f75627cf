"""What the wire says, as the specification and our documentation write it: the tests compare the product with these.

Errors of JSON-RPC 2.0 and of MCP, revisions, reserved keys of `_meta`, the names of extensions, and headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NEWEST_LEGACY: Final = "2025-11-25"
MODERN: Final = "2026-07-28"
LEGACY_REVISIONS: Final = (NEWEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05")
REVISIONS: Final = (MODERN, *LEGACY_REVISIONS)
"""Newest first."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
SERVER_BUSY: Final = -32000
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
IDEMPOTENCY: Final = "io.trio-mcp/idempotency"
IDEMPOTENCY_KEY: Final = "io.trio-mcp/idempotencyKey"
REPEAT_OF: Final = "io.trio-mcp/repeatOf"
OUTCOME_UNKNOWN: Final = "io.trio-mcp/outcomeUnknown"
REQUIRED_SCOPES: Final = "trio-mcp/requiredScopes"
SCHEMA_TOOL: Final = "__schema__"
"""The tool by whose arguments a model gives a structured answer."""


def headers_of(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that repeat a modern request; what is named in it is ASCII."""
    member = "uri" if method == "resources/read" else "taskId" if method.startswith("tasks/") else "name"
    named = {"mcp-name": params[member]} if member in params else {}
    return {"mcp-method": method, "mcp-protocol-version": params["_meta"][PROTOCOL_VERSION], **named}
