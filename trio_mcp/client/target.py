"""Choosing a transport by what the client connects to, and the cache that the client uses there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import ssl
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import cast
from urllib.parse import urlsplit

from ..base.checks import check_int, check_seconds, check_str_mapping, header_fault
from ..session import AnyChannel, check_options, find_transport
from ..types import ClientCapabilities
from .cache import NO_CACHE, CacheView, ResponseCache
from .options import check_other_names
from .reconnecting import reconnecting

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token (RFC 9110, 5.1)."""

TOKEN = re.compile(r"[!-~]+")
FRAMING = frozenset({"content-length", "transfer-encoding"})
HOST_PATTERN = re.compile(r"[\w.-]+:\d+(/\S*)?$|localhost(/\S*)?$")

TRANSPORTS = {"http": "http", "https": "http", "ws": "websocket", "wss": "websocket"}
"""Names of transports by the scheme of a URL."""

RECONNECTED = frozenset({"stdio", "websocket"})
"""The transports whose connection is the conversation: a client opens another one when it breaks off."""

DURATIONS = frozenset({"connect_timeout", "ping_interval", "shutdown_grace", "post_timeout", "write_deadline"})
SIZES = frozenset({"max_line", "max_message"})
MAPPINGS = frozenset({"env", "headers"})
"""Options that several transports have, and what they are."""


def connectable(target: object) -> object:
    """Return a target as the transports take it: for the path of a Python file, `FILE.py` or `FILE.py:name`, what serves it.

    Raises:
        ValueError: there is no such file.
    """
    if not isinstance(target, str | os.PathLike):
        return target
    text = os.fspath(target)
    if not isinstance(text, str) or "://" in text:
        return target
    file, colon, name = text.rpartition(":") if not text.endswith(".py") else (text, "", "")
    # Several words are a command, which is written as a list.
    if not file.endswith(".py") or (len(text.split()) > 1 and not os.path.isfile(file)):
        return target
    if not os.path.isfile(file):
        raise ValueError(f"there is no file {file!r:.200} to connect to")
    # It is relative to the folder of this process, and not to `cwd`.
    return [sys.executable, "-m", "trio_mcp", "run", f"{os.path.abspath(file)}{colon}{name}"]


def open_lasting_target(
    target: object,
    options: Mapping[str, object],
    others: Iterable[str] = (),
    *,
    reconnect: bool = True,
    probed: bool = True,
) -> AbstractAsyncContextManager[AnyChannel]:
    """Return a context manager that opens a channel to the target, which connects again when its connection breaks off.

    Over HTTP every request has a connection, and to a server in this process there is none that could break.

    Args:
        others: as for `open_target`, whose errors it raises.
        reconnect: False for a channel that ends with its connection.
        probed: the era of the server is detected first, which may end the first connection.
    """
    first = open_target(target, options, others)
    if not (reconnect or probed) or transport_name(target) not in RECONNECTED:
        return first
    unused = [first]

    def connect() -> AbstractAsyncContextManager[AnyChannel]:
        # Made above for its checks.
        return unused.pop() if unused else open_target(target, options, others)

    return reconnecting(connect, lasting=reconnect, probed=probed)


def open_target(
    target: object, options: Mapping[str, object], others: Iterable[str] = ()
) -> AbstractAsyncContextManager[AnyChannel]:
    """Return a context manager that opens a channel to the target.

    Args:
        others: names that a misspelt option may have been meant for, too.

    Raises:
        TypeError: no transport reaches the target, or its transport has no such option, or the option has the wrong type.
        ValueError: the URL has no host, or an option cannot have that value.
    """
    name = transport_name(target)
    # Found before the options are checked, because the transport says which options it has. It is imported here and not at the
    # top, so that a client over a pipe loads no HTTP library.
    transport = find_transport(name)
    if isinstance(target, str):
        check_url(target)
    if "raise_exceptions" in options and name != "memory":
        raise TypeError("raise_exceptions=True needs a server object in this process, as in Client.connect(server)")
    check_other_names(options)
    check_options(name, "connect", options, others)
    if hasattr(options.get("auth"), "async_auth_flow") and callable(options.get("headers")):
        raise TypeError("an httpx2.Auth as auth= goes with fixed headers=, not with a function")
    for option, value in options.items():
        if option in DURATIONS:
            check_seconds(option, value)
            if option == "ping_interval" and not value:
                raise ValueError("ping_interval is more than 0 seconds (math.inf for no pings)")
        elif option in SIZES:
            check_int(option, value, least=1, hint="it counts bytes")
        elif option == "tls" and not isinstance(value, ssl.SSLContext | None):
            raise TypeError(f"tls is an ssl.SSLContext, which says whom to trust, or None; not {value!r:.80}")
        elif option == "headers" and value is not None:
            # What a function returns is checked when it is called.
            if not callable(value):
                check_headers(check_str_mapping(option, value))
        elif option == "auth" and value is not None:
            check_auth(value, over_http=name != "websocket")
        elif option in MAPPINGS and value is not None:
            check_str_mapping(option, value)
    return transport.connect(target, **options)


def transport_name(target: object) -> str:
    """Return the name of the transport that reaches a target."""
    if isinstance(target, str):
        # A string is never a command, although a shell would take it as one: quoting differs between systems, and a URL with a
        # typo in its scheme would be run.
        scheme = target.partition("://")[0].lower() if "://" in target else ""
        if scheme in TRANSPORTS:
            return TRANSPORTS[scheme]
        raise TypeError(f"{target!r} is not an http(s) or ws(s) URL; {target_hint(target)}")
    if isinstance(target, Sequence) and not isinstance(target, bytes | bytearray | memoryview):
        check_command(target)
        return "stdio"
    if isinstance(target, type):
        raise TypeError(f"connect to a server, not to its class: {target.__name__}(...)")
    if isinstance(target, os.PathLike):
        raise TypeError(f"a command is a list of arguments, such as {[os.fspath(target)]}; a Python file ends with .py")
    if hasattr(target, "serve_channel"):
        return "memory"
    raise TypeError(f"connect to a URL, a list of arguments or a server, not to {type(target).__name__}")


def check_url(url: str) -> None:
    """Raise `ValueError` for a URL without a host, or with an impossible port."""
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ValueError(f"{url!r:.200} is no URL to connect to: {error}") from None
    if not named:
        example = f"{parts.scheme}://127.0.0.1:8000/mcp"
        raise ValueError(f"{url!r:.200} is not a URL with a host and a port that there is, such as {example!r}")


def check_auth(auth: object, *, over_http: bool = True) -> None:
    """Raise `TypeError` or `ValueError` unless this is a value of `auth=`. The error does not show it."""
    if not over_http and hasattr(auth, "async_auth_flow"):
        raise TypeError("auth= takes an httpx2.Auth over HTTP only: over WebSocket pass a token, or a function for it")
    if isinstance(auth, type):
        raise TypeError(f"auth= takes an object, not a class: {auth.__name__}(...)")
    if isinstance(auth, str):
        check_token(auth)
    elif not (callable(auth) or hasattr(auth, "open") or hasattr(auth, "async_auth_flow")):
        wanted = "OAuth() or another of trio_mcp.auth, a token, a function that returns one, or an httpx2.Auth"
        raise TypeError(f"auth= takes {wanted}, not {type(auth).__name__}")


def check_token(token: str) -> None:
    """Raise `ValueError`, which does not show it, unless a header can hold a bearer token."""
    if not TOKEN.fullmatch(token):
        raise ValueError("auth= is not a token that a header can hold, which is one word of printable ASCII")


def check_headers(headers: Mapping[str, str], where: str = "headers") -> None:
    """Raise `ValueError` if HTTP cannot send a header. The error does not show the value, which may be secret."""
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise ValueError(f"{where}: {name!r:.80} is no name of a header: letters, digits and '-', without spaces")
        if name.lower() in FRAMING:
            raise ValueError(f"{where}: {name} says where a request ends, and is set by what sends it")
        fault = header_fault(value)
        # The HTTP client would reject it as well, but with the value in its error (RFC 9110, 5.5).
        if fault is None and not value.isascii():
            fault = "has a character in it that is not ASCII"
        if fault is not None:
            raise ValueError(f"{where}: the value of {name!r} {fault}")


def target_hint(text: str) -> str:
    """Return advice about a string that is not a URL."""
    if HOST_PATTERN.match(text):
        return f"did you mean 'http://{text}'?"
    if "://" in text:
        return "no other URL is known to a transport"
    try:
        command = shlex.split(text)
    # A quotation without an end. This is only advice in an error, so a rough guess will do.
    except ValueError:
        command = text.split()
    # What is advised must run: a word that is not a program is not a command.
    known = len(command) > 1 or (command and (command[0].endswith(".py") or shutil.which(command[0])))
    return f"a command is a list of arguments, such as {command if known else ['python', 'server.py']}"


def check_command(command: Sequence[object]) -> None:
    if not command:
        raise TypeError("a command is a list of the executable and its arguments; this one is empty")
    for part in command:
        if not isinstance(part, str | os.PathLike):
            raise TypeError(f"a command is a list of strings; {part!r:.80} is {type(part).__name__}")


def cache_view(
    cache: ResponseCache | None,
    target: object,
    principal: str | None,
    headers: object,
    capabilities: ClientCapabilities,
    auth: object = None,
) -> CacheView:
    """Return the part of a cache that a client of `target` uses."""
    if cache is None:
        return NO_CACHE
    if not isinstance(cache, ResponseCache):
        raise TypeError(f"cache is a ResponseCache, as in cache=ResponseCache(), not {cache!r:.80}")
    # Two clients of one command have two processes, which may hold different data. Only a URL names the same server.
    if not isinstance(target, str):
        return CacheView(cache, object(), None)
    # Without a principal, the headers tell two users apart. A digest of them: tokens should not stay in memory as cache keys.
    # Names are compared in lower case and sorted, because clients of one user may spell and order them differently.
    who: Hashable = ("named", principal)
    if principal is None and (callable(headers) or (auth is not None and not isinstance(auth, str))):
        # The function tells its user apart from others, and so do settings of a login. What they return changes.
        who = ("function", headers if callable(headers) else None, auth)
    elif principal is None:
        sent = sorted(
            (str(name).lower(), str(value)) for name, value in dict(cast("Mapping[str, str]", headers or {})).items()
        )
        sent += [("auth=", auth)] if isinstance(auth, str) else []
        who = ("headers", sha256(repr(sent).encode()).digest())
    return CacheView(cache, target, who, capabilities.encode())
