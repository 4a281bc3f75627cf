"""The command `trio-mcp`: serve a server from a file, call a tool from a terminal, show a demonstration.

https://github.com/trio-mcp/trio-mcp/blob/main/docs/cli.md describes it.
"""

from .program import main

__all__ = ["main"]
