"""MCP without I/O: bytes and messages in, events and messages out. It does not use Trio."""
