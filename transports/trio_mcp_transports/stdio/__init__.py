"""The transport `stdio`: JSON-RPC lines over stdin and stdout, for a server and for the client that starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio_mcp import late

if TYPE_CHECKING:
    from .channel import LineChannel
    from .client import ProcessChannel, connect
    from .server import guarded_stdio, serve
else:
    __getattr__, __dir__ = late.exports(
        __name__,
        {"channel": "LineChannel", "client": "ProcessChannel connect", "server": "guarded_stdio serve"},
    )

__all__ = ["LineChannel", "ProcessChannel", "connect", "guarded_stdio", "serve"]
