"""The server of `trio-mcp demo`, with short patience, to be left alone by its clients in the middle of everything.

Usage: demo_server.py http PORT, or demo_server.py stdio FILE, which writes what was left into FILE when it ends.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import trio

from trio_mcp import ToolError
from trio_mcp.cli import demo
from trio_mcp.runtime import Limits
from trio_mcp.session import Service
from trio_mcp_transports.http import HttpLimits

GRACE = 0.3
"""Seconds that a legacy call goes on without its client."""

PARKED = 0.7
"""Seconds that a modern call waits for its next leg."""

WITHIN = 10.0
"""Seconds after which something is taken to be left for good."""

server = demo.server.with_options(replace(demo.server.options, actors=Limits(park_ttl=PARKED)))


def service() -> Service | None:
    return next(iter(server.services), None)


@server.tool
async def deserted() -> str:
    """Wait until no other call is left, and tell how many seconds that took."""
    began = trio.current_time()
    mine = service()
    assert mine is not None
    with trio.move_on_after(WITHIN):
        while len(mine.supervisor.actors) > 1:  # noqa: ASYNC110  nothing tells when but one of them is left
            await trio.sleep(0.01)
        return str(trio.current_time() - began)
    raise ToolError(f"still here: {mine.supervisor.actors}")


async def serve_stdio(file: Path) -> None:
    served: list[Service] = []

    async def remember() -> None:
        while (mine := service()) is None:  # noqa: ASYNC110  nothing tells when it is there
            await trio.sleep(0.01)
        served.append(mine)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(remember)
        await server.serve("stdio")
        nursery.cancel_scope.cancel()
    left = asdict(served[0].supervisor.statistics()) if served else {"running": 0, "parked": 0}
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"running": left["running"], "parked": left["parked"]}))
    new.rename(file)


if __name__ == "__main__":
    if sys.argv[1] == "http":
        limits = HttpLimits(disconnect_grace=GRACE)
        trio.run(partial(server.serve, "http", port=int(sys.argv[2]), limits=limits))
    else:
        trio.run(serve_stdio, Path(sys.argv[2]))
