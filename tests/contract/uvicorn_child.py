"""The contract's server under uvicorn: `uvicorn_child.py PORT GRACE HTTP LOOP`. The stage of the test listens at this port.

It writes the port that it serves. Each line of stdin is the seconds of a drain; at its end it ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import trio
import uvicorn
import uvloop
from lending import lent_server

from trio_mcp import to_asyncio
from trio_mcp.session.event_loop import await_on_trio
from trio_mcp.testing.contract.stage import linked_stage
from trio_mcp_transports.asyncio_host import time_limits
from trio_mcp_transports.http import HttpLimits, McpApp, asgi_app

# uvicorn learns nothing of a client that leaves while the network takes no data. The time limit of a write ends its call, here
# well within the time that a case waits.
vars(time_limits)["SEND_SECONDS"] = 5.0

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


async def obey(app: McpApp, host: uvicorn.Server) -> None:
    """Drain as stdin says, and end the host when it ends."""
    async for line in trio.wrap_file(sys.stdin):
        await app.drain(float(line))
        print("drained", flush=True)
    host.should_exit = True


async def serve(port: int, grace: float, http: str) -> None:
    """Serve, on Trio beside asyncio, and report to the stage."""
    async with linked_stage(port) as stage:
        with lent_server(stage) as server, socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(100)
            app = asgi_app(server, sse_path="/sse", limits=HttpLimits(disconnect_grace=grace))
            config = uvicorn.Config(app, http=http, ws="wsproto", log_level="critical", timeout_graceful_shutdown=0)  # type: ignore[arg-type]
            host = uvicorn.Server(config)
            print(listening.getsockname()[1], flush=True)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(obey, app, host)
                await to_asyncio.run(host.serve, [listening])
                nursery.cancel_scope.cancel()


async def main(port: str, grace: str, http: str) -> None:
    await await_on_trio(lambda: serve(int(port), float(grace), http))


def run(port: str, grace: str, http: str, loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main(port, grace, http))


if __name__ == "__main__":
    run(*sys.argv[1:])
