"""The command `trio-mcp`: serve a server from a file, call a tool from a terminal, show a demonstration. See docs/cli.md."""

from .program import main

__all__ = ["main"]
