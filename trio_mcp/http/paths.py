"""The paths of a server, which must not collide."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MESSAGE_PATH: Final = "/message"
"""The usual path to which clients of HTTP+SSE post."""

PLAIN_PATH: Final = re.compile(r"/[\w.~!$&'()*+,;=:@/-]*", re.ASCII)
"""A path that means the same before and after percent-decoding."""

DEFAULT_PATH: Final = "/mcp"
HEALTH_PATH: Final = "/health"
READY_PATH: Final = "/ready"


def check_path(path: str) -> str:
    """Return a path that a client can use unchanged.

    Raises:
        ValueError: it is none.
    """
    if not PLAIN_PATH.fullmatch(path):
        raise ValueError(f"{path!r:.80} is no path such as '/mcp', without a query or percent signs")
    return path


def check_endpoints(path: str | None, sse_path: str | None, message_path: str) -> None:
    """Raise `ValueError` unless MCP is served, and its paths differ."""
    served = [each for each in (path, sse_path) if each is not None]
    if not served:
        raise ValueError("neither path nor sse_path is given: nothing would be served")
    served += [message_path] if sse_path is not None else []
    for each in served:
        check_path(each)
    if len(set(served)) < len(served):
        raise ValueError(f"path, sse_path and message_path must differ; they are {', '.join(served)}")


def check_free(path: str, owner: str, taken: Iterable[tuple[str | None, str]]) -> None:
    """Raise `ValueError` if a path is another owner's already.

    Args:
        owner: whose it is to be, for the error.
        taken: the paths and their owners; None is not a path.
    """
    for other, whose in taken:
        if other == path:
            raise ValueError(f"{path} is the path of {whose} and cannot be that of {owner} too")
