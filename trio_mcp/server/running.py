"""Running a Trio loop in a process that exists for a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ..garbage import settle_for_server
from ..session.transport import owned_process


def run_process(serve: Callable[[], Awaitable[object]]) -> None:
    """Run `serve` in a Trio loop, in a process that is taken to exist for it."""
    settle_for_server()
    with owned_process():
        trio.run(serve)
