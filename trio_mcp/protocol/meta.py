"""The reserved keys of `_meta`, and the names of extensions."""

from __future__ import annotations

from typing import Final

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
"""In what belongs to a task of 2025-11-25: its id, as `RelatedTaskMetadata` (L-TSK-7)."""
IMMEDIATE_RESPONSE: Final = "io.modelcontextprotocol/model-immediate-response"
"""In the answer that a task was created (2025-11-25): a text for the model until the result is there."""
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"
"""The name of the extension, among the `extensions` that either side declares."""
REQUIRED_CAPABILITIES: Final = "trio-mcp/requiredCapabilities"
"""In an error result of ours: the capabilities that the client would have to declare, as it would declare them."""
ELICIT: Final = "trio-mcp/elicit"
"""In a declared form: an object with the name of the `tool`, prompt or resource that asks, and the `key` of the question; and
its `context`, if it has one."""
ELICITS: Final = "trio-mcp/elicits"
"""In a tool, prompt or resource: the schemas of the questions that it may ask, by key."""
REQUIRED_SCOPES: Final = "trio-mcp/requiredScopes"
"""In an error result of ours: the scopes that the caller would have to have."""
IDEMPOTENCY_KEY: Final = "io.trio-mcp/idempotencyKey"
"""In a `tools/call`: names the call, so that a repeat of the request joins it or gets its outcome."""
REPEAT_OF: Final = "io.trio-mcp/repeatOf"
"""In a repeat of such a request: the `instance` of the server that the first was meant for."""
IDEMPOTENCY: Final = "io.trio-mcp/idempotency"
"""An experimental capability of a server: it knows both. Its member `instance` names the memory in which it keeps the keys."""
OUTCOME_UNKNOWN: Final = "io.trio-mcp/outcomeUnknown"
"""True in the `data` of an error: the call may or may not have run, and the server does not run it again."""
PROGRESS_TOKEN: Final = "progressToken"  # noqa: S105  a member name, no secret

RESERVED: frozenset[str] = frozenset(
    {PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, SERVER_INFO, SUBSCRIPTION_ID}
)
"""The keys that only the modern era has: never sent to a legacy peer."""
