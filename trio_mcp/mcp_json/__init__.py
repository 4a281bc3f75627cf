"""Reading the files in which hosts keep their servers: `.mcp.json`, `claude_desktop_config.json`, `.vscode/mcp.json` and so on.

    file = read_mcp_json("mcp.json")
    server = file.server("weather")

Nothing is started, and no file is changed.
"""

from .entries import CommandServer, HostServer, UrlServer
from .files import McpJson, parse_mcp_json, read_mcp_json

__all__ = [
    "CommandServer",
    "HostServer",
    "McpJson",
    "UrlServer",
    "parse_mcp_json",
    "read_mcp_json",
]
