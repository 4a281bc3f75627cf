"""A server that systemd starts: `activated_app.py FDS`, where the sockets are those with these descriptors.

As systemd does, it passes the sockets from descriptor 3 on to the same process, after it has set the environment.
"""

from __future__ import annotations

import os
import sys

if "LISTEN_FDS" not in os.environ and len(sys.argv) > 1:
    given = [os.dup(int(fd)) for fd in sys.argv[1].split(",")]
    high = [fd + 100 for fd in range(len(given))]
    for source, target in zip(given, high, strict=True):
        os.dup2(source, target)
    for number, source in enumerate(high):
        os.dup2(source, 3 + number, inheritable=True)
    environment = {**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(given))}
    os.execve(sys.executable, [sys.executable, __file__], environment)

from trio_mcp import Server

server = Server("shop")


@server.tool
async def environment() -> list[str]:
    return sorted(name for name in os.environ if name.startswith("LISTEN_"))


if __name__ == "__main__":
    server.run("http", port=1)
