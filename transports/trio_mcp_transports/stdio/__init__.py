"""The transport `stdio`: JSON-RPC lines over a process's stdin and stdout, as the server or as who started it."""

from __future__ import annotations

from .channel import LineChannel
from .client import ProcessChannel, connect
from .server import guarded_stdio, serve

__all__ = ["LineChannel", "ProcessChannel", "connect", "guarded_stdio", "serve"]
