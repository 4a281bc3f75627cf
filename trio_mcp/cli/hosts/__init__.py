"""The hosts that `trio-mcp` writes servers into and finds servers in: where their files are, and how they write a server."""

from .files import Change, ConfigFile, read_entries, read_file, read_for_change, scope_of, with_server, without_server
from .table import HOSTS, Host, Location, as_member

__all__ = [
    "HOSTS",
    "Change",
    "ConfigFile",
    "Host",
    "Location",
    "as_member",
    "read_entries",
    "read_file",
    "read_for_change",
    "scope_of",
    "with_server",
    "without_server",
]
