"""News for what has started this process: systemd (sd_notify(3)), or the parent of workers."""

from __future__ import annotations

import logging
import os
import socket
import sys
from contextlib import closing

logger = logging.getLogger("trio_mcp.http")


def notify(state: str) -> bool:
    """Send systemd a state, such as "READY=1"; return whether it was sent. Without systemd nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    # A path, or a name in the abstract namespace.
    if sys.platform == "win32" or not address.startswith(("/", "@")):
        return False
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sock:
        sock.setblocking(False)
        try:
            sock.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as error:
            logger.warning("systemd could not be notified of %s: %s", state, error.strerror)
            return False
    return True
