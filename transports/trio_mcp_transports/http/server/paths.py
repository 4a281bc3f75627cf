"""Where the HTTP application is reached."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SSE_PATH: Final = "/sse"
MESSAGE_PATH: Final = "/message"
"""The usual ones of HTTP+SSE."""

PLAIN_PATH = re.compile(r"/[\w.~!$&'()*+,;=:@/-]*", re.ASCII)
"""A path that means the same before and after percent-decoding."""


class Paths(NamedTuple):
    """Where the application is reached."""

    streamable: str | None
    sse: str | None
    messages: str

    @property
    def endpoints(self) -> list[str]:
        """Those that a client is given."""
        return [path for path in (self.streamable, self.sse) if path is not None]


def check_paths(paths: Paths) -> None:
    """Refuse paths that cannot be served side by side, or that a client could not use unchanged."""
    served = [*paths.endpoints, paths.messages] if paths.sse is not None else paths.endpoints
    if not served:
        raise ValueError("neither path nor sse_path is given: nothing would be served")
    for path in served:
        if not PLAIN_PATH.fullmatch(path):
            raise ValueError(f"{path!r:.80} is no path such as '/mcp', without a query or percent signs")
    if len(set(served)) < len(served):
        raise ValueError(f"path, sse_path and message_path must differ; they are {', '.join(served)}")


def not_found_text(paths: Paths, root: str) -> str:
    """What is said at another path of an application that is mounted below `root`."""
    return f"There is nothing here; the MCP endpoint is {' or '.join(root + path for path in paths.endpoints)}."


def no_websocket(paths: Paths, root: str) -> str:
    """The rejection of a WebSocket on another path of an application that is mounted below `root`."""
    if paths.streamable is None:
        return f"This server speaks no WebSocket; the MCP endpoint is {root}{paths.sse}."
    return f"There is no WebSocket here; it is at {root}{paths.streamable}."
