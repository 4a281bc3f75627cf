"""What the author of a server says of serving it over HTTP, as values: `Server(http=HttpOptions(...))`, `@server.route`.

The transports read them; nothing here opens a connection.
"""

from .authenticator import Authenticate
from .options import HttpLimits, HttpOptions, Metrics, Tls
from .routes import HttpHandler, HttpRequest, HttpResponse, HttpRoute

__all__ = [
    "Authenticate",
    "HttpHandler",
    "HttpLimits",
    "HttpOptions",
    "HttpRequest",
    "HttpResponse",
    "HttpRoute",
    "Metrics",
    "Tls",
]
