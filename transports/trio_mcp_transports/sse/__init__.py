"""The transport `sse`: HTTP+SSE of 2024-11-05, for peers that know nothing newer. Its rooms are those of `http`."""

from __future__ import annotations

from ..http.sse_client import SseChannel, connect_sse
from .transport import SseTransport, transport

__all__ = ["SseChannel", "SseTransport", "connect_sse", "transport"]
