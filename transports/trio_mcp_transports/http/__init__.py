"""The transport `http`: Streamable HTTP for both eras, served by hypercorn with limits on its clients.

Each name is loaded when it is first used, so that a client loads no server library and a server no client library.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.http import Authenticate, HttpLimits

    from .server.app import McpApp
    from .server.asgi_app import asgi_app
    from .server.by_path import McpApps
    from .server.serve import serve_http

__all__ = ["Authenticate", "HttpLimits", "McpApp", "McpApps", "asgi_app", "serve_http"]

_MODULE_OF = {
    "Authenticate": "trio_mcp.http",
    "HttpLimits": "trio_mcp.http",
    "McpApp": ".server.app",
    "McpApps": ".server.by_path",
    "asgi_app": ".server.asgi_app",
    "serve_http": ".server.serve",
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value
