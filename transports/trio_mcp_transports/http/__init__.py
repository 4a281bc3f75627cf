"""The transport `http`: Streamable HTTP for both eras, served by hypercorn with limits on its clients.

Each name is loaded when it is first used, so that a client loads no server library and a server no client library.
"""

from typing import TYPE_CHECKING

from trio_mcp.base import late

if TYPE_CHECKING:
    from trio_mcp.http import Authenticate as Authenticate, HttpLimits as HttpLimits

    from .server.app import McpApp as McpApp
    from .server.asgi_app import asgi_app as asgi_app
    from .server.by_path import McpApps as McpApps
    from .server.serve import serve_http as serve_http
else:
    __getattr__, __dir__, __all__ = late.exports(
        __name__,
        {
            "server.app": "McpApp",
            "server.asgi_app": "asgi_app",
            "server.by_path": "McpApps",
            "server.serve": "serve_http",
            "trio_mcp.http": "Authenticate HttpLimits",
        },
    )
