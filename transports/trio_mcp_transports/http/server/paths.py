"""Where the HTTP application is reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

SSE_PATH: Final = "/sse"
"""The usual one of the streams of HTTP+SSE."""


class Paths(NamedTuple):
    """Where the application is reached."""

    streamable: str | None
    sse: str | None
    messages: str

    @property
    def endpoints(self) -> list[str]:
        """Those that a client is given."""
        return [path for path in (self.streamable, self.sse) if path is not None]


def below(prefix: str, path: str) -> str:
    """Return a path of a server that is served below a prefix."""
    return prefix if prefix and path == "/" else prefix + path


def not_found_at(endpoints: Sequence[str], root: str) -> str:
    """What is said at another path of an application of several servers that is mounted below `root`."""
    return f"There is nothing here; the MCP endpoints are {', '.join(root + path for path in endpoints)}."


def not_found_text(paths: Paths, root: str) -> str:
    """What is said at another path of an application that is mounted below `root`."""
    return f"There is nothing here; the MCP endpoint is {' or '.join(root + path for path in paths.endpoints)}."


def no_websocket(paths: Paths, root: str) -> str:
    """The rejection of a WebSocket on another path of an application that is mounted below `root`."""
    if paths.streamable is None:
        return f"This server speaks no WebSocket; the MCP endpoint is {root}{paths.sse}."
    return f"There is no WebSocket here; it is at {root}{paths.streamable}."
