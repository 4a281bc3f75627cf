"""The reserved keys of `_meta`."""

from __future__ import annotations

from typing import Final

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
