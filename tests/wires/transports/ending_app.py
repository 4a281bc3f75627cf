"""A real server on stdio, for the tests to start as a process of its own and to end while its tools run.

Usage: ending_app.py [options of the transport as JSON].
"""

from __future__ import annotations

import json
import sys
import time

import trio

from trio_mcp import Server
from trio_mcp.session import pump

server = Server("ending")


@server.tool
async def deaf() -> str:
    """No cancel reaches it."""
    print("running", flush=True)
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()
    return "never"


@server.tool
async def blocks() -> str:
    """Nor does anything else."""
    print("running", flush=True)
    time.sleep(3600)  # noqa: ASYNC251
    return "never"


if __name__ == "__main__":
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    vars(pump).update({"CLEAN_UP": options.pop("clean_up", pump.CLEAN_UP)})
    server.run("stdio", **options)
