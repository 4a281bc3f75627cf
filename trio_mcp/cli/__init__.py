"""The command `trio-mcp`: serve a file's server, call a tool from a terminal, see a demonstration. See docs/cli.md."""

from .commands import main

__all__ = ["main"]
