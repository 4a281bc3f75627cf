"""The contract's server as a separate process, on stdio: `stdio_child.py PORT`.

The stage of the test listens at this port.
"""

from __future__ import annotations

import sys

import trio
from lending import lent_server

from trio_mcp.testing.contract import linked_stage


async def main(port: int) -> None:
    """Serve on stdio until stdin ends, and report to the stage at this port."""
    async with linked_stage(port) as stage:
        with lent_server(stage) as server:
            await server.serve("stdio")


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
