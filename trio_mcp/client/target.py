"""What a client may connect to, and what follows from that."""

from __future__ import annotations

import os
import re
import shlex
import ssl
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import cast
from urllib.parse import urlsplit

from ..session import AnyChannel, check_options, find_transport
from ..types import ClientCapabilities
from .cache import CacheView, ResponseCache
from .checks import seconds, size, texts

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token (RFC 9110, 5.1)."""

UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
LIKE_A_HOST = re.compile(r"[\w.-]+:\d+(/\S*)?$|localhost(/\S*)?$")

DURATIONS = frozenset({"connect_timeout", "ping_interval", "shutdown_grace", "post_timeout", "write_deadline"})
SIZES = frozenset({"max_line", "max_message"})
MAPPINGS = frozenset({"env", "headers"})
"""Options that several transports have, and what they are."""


def reached(target: object, options: Mapping[str, object]) -> AbstractAsyncContextManager[AnyChannel]:
    """A connection to a target, which is not opened yet.

    Raises:
        TypeError: it is nothing to connect to, its transport has no such option, or that is of the wrong type.
        ValueError: a URL leads nowhere, or an option cannot have that value.
    """
    name = transport_name(target)
    transport = find_transport(name)
    if isinstance(target, str):
        check_url(target)
    check_options(name, "connect", options)
    for option, value in options.items():
        if option in DURATIONS:
            seconds(**{option: value})
            if option == "ping_interval" and not value:
                raise ValueError("ping_interval is more than 0 seconds (math.inf for no pings)")
        elif option in SIZES:
            size(option, value)
        elif option == "tls" and not isinstance(value, ssl.SSLContext | None):
            raise TypeError(f"tls is an ssl.SSLContext, which says whom to trust, or None; not {value!r:.80}")
        elif option == "headers" and value is not None:
            check_headers(texts(option, value))
        elif option in MAPPINGS and value is not None:
            texts(option, value)
    return transport.connect(target, **options)


def transport_name(target: object) -> str:
    """Which transport reaches a target."""
    if isinstance(target, str):
        scheme = target.partition("://")[0].lower() if "://" in target else ""
        if scheme in ("http", "https"):
            return "http"
        if scheme in ("ws", "wss"):
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


def check_url(url: str) -> None:
    """Refuse a URL without a host, or with a port that there is not."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ValueError(f"{url!r:.200} is no URL to connect to: {error}") from None
    if not named:
        example = f"{parts.scheme}://127.0.0.1:8000/mcp"
        raise ValueError(f"{url!r:.200} is not a URL with a host and a port that there is, such as {example!r}")


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse what no header can be; a value may be secret, so it is not repeated."""
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"headers: {name!r:.80} is no name of a header: letters, digits and '-', without spaces")
        if UNSENDABLE.search(value):
            raise ValueError(f"headers: the value of {name!r} has a line break or another control character in it")


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
