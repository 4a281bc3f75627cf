"""The transport `sse`: HTTP+SSE of 2024-11-05, for peers that know nothing newer. Its rooms are those of `http`."""

from __future__ import annotations

from functools import partial

from ..http.paths import SSE_PATH
from ..http.sse_client import SseChannel, connect_sse
from ..http.transport import serve_http

__all__ = ["SseChannel", "SseTransport", "connect_sse", "transport"]


class SseTransport:
    """The transport `sse`: what `http` serves, without Streamable HTTP unless a `path` is given."""

    serve = staticmethod(partial(serve_http, path=None, sse_path=SSE_PATH))
    connect = staticmethod(connect_sse)


transport = SseTransport()
