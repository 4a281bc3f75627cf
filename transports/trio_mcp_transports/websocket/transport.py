"""The transport `websocket`, as the core finds it."""

from __future__ import annotations

from functools import partial

from ..http.transport import serve_http
from .client import connect


class WebSocketTransport:
    """The transport `websocket`: the process that serves HTTP serves it too, under the same host, port and path."""

    serve = staticmethod(partial(serve_http, scheme="ws"))
    connect = staticmethod(connect)


transport = WebSocketTransport()
