"""Serving a server while its code changes: noticing changes, importing modules afresh, and the MCP Inspector."""
