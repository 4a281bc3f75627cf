"""A proxy of the server with a tool for everything, served by itself: `proxy_server.py stdio|http`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

from trio_mcp import proxy

PEER = Path(__file__).parent / "peer_server.py"
server = proxy([sys.executable, str(PEER), "stdio"], env=dict(os.environ))

if __name__ == "__main__":
    trio.run(lambda: server.serve(sys.argv[1], **({} if sys.argv[1] == "stdio" else {"port": 0})))
