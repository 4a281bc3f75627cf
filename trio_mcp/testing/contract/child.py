"""The contract's server as a separate process, on stdio: `python -m trio_mcp.testing.contract.child PORT`.

The port is where the test's stage listens.
"""

from __future__ import annotations

import sys

import trio

from .stage import linked_stage
from .subject import lent_server


async def main(port: int) -> None:
    """Serve on stdio until the end of stdin, and report to the stage at that port."""
    async with linked_stage(port) as stage:
        with lent_server(stage) as server:
            await server.serve("stdio")


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]))
