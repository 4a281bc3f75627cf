"""The transport `sse`: HTTP+SSE of 2024-11-05, for peers that support no newer revision.

`endpoint` serves it as part of the HTTP application, `client` connects to it. Names are loaded when they are first used,
so that a server loads no client library.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import SseChannel, connect_sse
    from .transport import SseTransport

__all__ = ["SseChannel", "SseTransport", "connect_sse"]

_MODULE_OF = {
    "SseChannel": ".client",
    "SseTransport": ".transport",
    "connect_sse": ".client",
    "transport": ".transport",
}


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value
