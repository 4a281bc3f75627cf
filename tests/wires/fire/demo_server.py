"""The server of `trio-mcp demo`, with short patience, to be left alone by its clients in the middle of everything.

Usage: demo_server.py http PORT, or demo_server.py stdio FILE, which writes the remaining objects into FILE when it ends.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import trio

from trio_mcp import ToolError
from trio_mcp.cli.commands import demo
from trio_mcp.runtime import Actor, ActorState
from trio_mcp.runtime.supervisor import CANCEL_GRACE
from trio_mcp.session import Service
from trio_mcp_transports.http import HttpLimits

GRACE = 0.3
"""Seconds that a legacy call goes on without its client."""

WITHIN = 50.0
"""Seconds after which something is taken to be left for good."""

server = demo.server


def service() -> Service | None:
    return next(iter(server.services), None)


@server.tool
async def deserted() -> str:
    """Wait until no other call is left. Those that are parked have a time to end at, which is brought forward."""
    mine = service()
    assert mine is not None
    with trio.move_on_after(WITHIN):
        while len(mine.supervisor.actors) > 1:
            for actor in mine.supervisor.actors:
                if actor.state is ActorState.PARKED:
                    expire(actor, mine.supervisor.limits.park_ttl)
            await trio.sleep(0.01)  # nothing tells when the last of them has ended
        return "nobody"
    raise ToolError(f"still here: {mine.supervisor.actors}")


def expire(actor: Actor, ttl: float) -> None:
    left = min(actor.scope.deadline, actor.overdue_at - CANCEL_GRACE) - trio.current_time()
    if left > ttl:
        raise ToolError(f"{actor} would wait for {left:g} seconds")
    actor.scope.deadline = trio.current_time()


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
        trio.run(partial(server.serve, "http", port=int(sys.argv[2]), limits=limits, sse_path="/sse"))
    else:
        trio.run(serve_stdio, Path(sys.argv[2]))
