"""The transport `stdio`: JSON-RPC lines over stdin and stdout, for a server and for the client that starts it."""

from typing import TYPE_CHECKING

from trio_mcp.base import late

if TYPE_CHECKING:
    from .channel import LineChannel as LineChannel
    from .client import ProcessChannel as ProcessChannel, connect as connect
    from .server import guarded_stdio as guarded_stdio, serve as serve
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "channel": "LineChannel",
            "client": "ProcessChannel connect",
            "server": "guarded_stdio serve",
        },
    )
