"""Reading the files in which hosts keep their servers: `.mcp.json`, `claude_desktop_config.json`, `.vscode/mcp.json` and so on.

    file = read_mcp_json("mcp.json")
    server = file.server("weather")

Nothing is started, and no file is changed.
"""

from .entries import CommandServer, FoundServer, HostServer, OAuthClient, UrlServer, read_servers
from .files import (
    McpJson,
    find_comments,
    parse_jsonc,
    parse_mcp_json,
    read_mcp_json,
    without_comments,
    without_trailing_commas,
)
from .variables import Variables

__all__ = [
    "CommandServer",
    "FoundServer",
    "HostServer",
    "McpJson",
    "OAuthClient",
    "UrlServer",
    "Variables",
    "find_comments",
    "parse_jsonc",
    "parse_mcp_json",
    "read_mcp_json",
    "read_servers",
    "without_comments",
    "without_trailing_commas",
]
