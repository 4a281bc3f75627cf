"""The transport `sse`, as the core finds it."""

from __future__ import annotations

from functools import partial

from ..http.server.paths import SSE_PATH
from ..http.transport import serve_http
from .client import connect_sse


class SseTransport:
    """The transport `sse`: what `http` serves, without Streamable HTTP unless a `path` is given."""

    serve = staticmethod(partial(serve_http, path=None, sse_path=SSE_PATH))
    connect = staticmethod(connect_sse)


transport = SseTransport()
