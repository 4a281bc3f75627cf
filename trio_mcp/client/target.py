"""What a client may connect to, and what follows from that."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from hashlib import sha256
from typing import cast

from ..types import ClientCapabilities
from .cache import CacheView, ResponseCache

__all__ = ["transport_name", "view_for"]


def transport_name(target: object) -> str:
    """Which transport reaches a target."""
    if isinstance(target, str):
        if target.startswith(("http://", "https://")):
            return "http"
        raise TypeError(f"{target!r} is not an http(s) URL; a command is a list of arguments, such as [{target!r}]")
    if isinstance(target, Sequence):
        return "stdio"
    if hasattr(target, "serve_channel"):
        return "memory"
    raise TypeError(f"connect to a URL, a list of arguments or a server, not to {type(target).__name__}")


def view_for(
    cache: ResponseCache | None,
    target: object,
    principal: str | None,
    headers: object,
    capabilities: ClientCapabilities,
) -> CacheView | None:
    """What a client of `target` sees of a cache; only what is reached by a URL is the same server for several clients.

    The headers stand for the principal as a digest: what they hold may be secret.
    """
    if cache is None:
        return None
    if not isinstance(target, str):
        return CacheView(cache, object(), None)
    who: Hashable = ("named", principal)
    if principal is None:
        sent = sorted(
            (str(name).lower(), str(value)) for name, value in dict(cast("Mapping[str, str]", headers or {})).items()
        )
        who = ("headers", sha256(repr(sent).encode()).digest())
    return CacheView(cache, target, who, capabilities.encode())
