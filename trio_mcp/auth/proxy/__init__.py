"""An authorization server in front of a provider that cannot protect an MCP server itself; it stores nothing."""
