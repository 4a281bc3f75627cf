"""The transport `http`: Streamable HTTP for both eras, served by hypercorn behind a guard."""

from .app import McpApp, asgi_app
from .authentication import Authenticate
from .limits import HttpLimits
from .transport import HttpTransport, serve_http, transport

__all__ = ["Authenticate", "HttpLimits", "HttpTransport", "McpApp", "asgi_app", "serve_http", "transport"]
