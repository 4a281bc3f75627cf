"""What a client may connect to, and what follows from that."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import cast

import trio

from ..session import Envelope, check_options, find_transport
from ..types import ClientCapabilities
from .cache import CacheView, ResponseCache
from .checks import seconds, texts

__all__ = ["reached", "view_for"]

LIKE_A_HOST = re.compile(r"[\w.-]+:\d+(/\S*)?$|localhost(/\S*)?$")

DURATIONS = frozenset({"connect_timeout", "ping_interval", "shutdown_grace", "tell_timeout", "write_deadline"})
MAPPINGS = frozenset({"env", "headers"})
"""Options that several transports have, and what they are."""


def reached(target: object, options: Mapping[str, object]) -> AbstractAsyncContextManager[trio.abc.Channel[Envelope]]:
    """A connection to a target, which is not opened yet.

    Raises:
        TypeError: it is nothing to connect to, or its transport has no such option.
    """
    name = transport_name(target)
    transport = find_transport(name)
    check_options(name, "connect", options)
    for option, value in options.items():
        if option in DURATIONS:
            seconds(**{option: value})
        elif option in MAPPINGS and value is not None:
            texts(option, value)
    return transport.connect(target, **options)


def transport_name(target: object) -> str:
    """Which transport reaches a target."""
    if isinstance(target, str):
        if target.startswith(("http://", "https://")):
            return "http"
        if target.startswith(("ws://", "wss://")):
            return "websocket"
        raise TypeError(f"{target!r} is not an http(s) or ws(s) URL; {advice(target)}")
    if isinstance(target, Sequence) and not isinstance(target, bytes | bytearray | memoryview):
        check_command(target)
        return "stdio"
    if isinstance(target, type):
        raise TypeError(f"connect to a server, not to its class: {target.__name__}(...)")
    if isinstance(target, os.PathLike):
        raise TypeError(f"a command is a list of arguments, such as ['python', {os.fspath(target)!r}]")
    if hasattr(target, "serve_channel"):
        return "memory"
    raise TypeError(f"connect to a URL, a list of arguments or a server, not to {type(target).__name__}")


def advice(text: str) -> str:
    """What may be meant by a string that is no URL."""
    if LIKE_A_HOST.match(text):
        return f"did you mean 'http://{text}'?"
    if "://" in text:
        return "no other URL is known to a transport"
    try:
        command = shlex.split(text)
    except ValueError:  # a quotation that does not end
        command = text.split()
    return f"a command is a list of arguments, such as {command or ['python', 'server.py']}"


def check_command(command: Sequence[object]) -> None:
    if not command:
        raise TypeError("a command is a list of the executable and its arguments; this one is empty")
    for part in command:
        if not isinstance(part, str | os.PathLike):
            raise TypeError(f"a command is a list of strings; {part!r:.80} is {type(part).__name__}")


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
    if not isinstance(cache, ResponseCache):
        raise TypeError(f"cache is a ResponseCache, as in cache=ResponseCache(), not {cache!r:.80}")
    if not isinstance(target, str):
        return CacheView(cache, object(), None)
    who: Hashable = ("named", principal)
    if principal is None:
        sent = sorted(
            (str(name).lower(), str(value)) for name, value in dict(cast("Mapping[str, str]", headers or {})).items()
        )
        who = ("headers", sha256(repr(sent).encode()).digest())
    return CacheView(cache, target, who, capabilities.encode())
