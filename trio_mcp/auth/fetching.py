"""Requests to authorization servers, and for the metadata of resources: limited, and only to addresses that may be reached.

A name is resolved here, each of its addresses is checked, and the connection goes to one that was checked: a second lookup could
find another one (DNS rebinding). TLS still verifies the name. Behind a proxy of the environment the proxy resolves names.
"""

from __future__ import annotations

import json as json_text
import socket
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from functools import cache
from ipaddress import ip_address
from ssl import SSLContext
from typing import Final, cast
from urllib.parse import unquote, urlencode
from urllib.request import getproxies, proxy_bypass

import httpcore2
import trio

from ..base.values import one_line, shown_url
from ..errors import AuthorizationError, AuthorizationErrorKind
from ..types import JsonObject
from .addresses import Reach, check_address, check_url, is_loopback
from .replies import MAX_REPLY, Reply
from .uris import split_url

FETCH_SECONDS: Final = 10.0
"""Seconds for a whole exchange, from the lookup of the name to the last byte of the body."""

MAX_LOOKUPS: Final = 64
"""Names from peers that are looked up at the same time. A lookup may go on for half a minute after its request was given up."""
_LOOKUPS: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("lookups for peers")

OWN_HEADERS: Final = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "trio-mcp"}

# A host name that IDNA does not allow is a UnicodeError of the lookup.
_FAILURES: Final = (
    OSError,
    UnicodeError,
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
)


async def fetch(
    url: str,
    reach: Reach,
    *,
    form: Mapping[str, str] | None = None,
    json: JsonObject | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = FETCH_SECONDS,
) -> Reply:
    """Get a document; post a form or a JSON object if there is one. Redirects are not followed, and no cookie is kept.

    A cancel closes the connection; the request may have arrived.

    Args:
        reach: which addresses may be asked.
        headers: beside `OWN_HEADERS`.
        seconds: for the whole exchange.

    Raises:
        AuthorizationError: `ADDRESS`: the URL may not be requested. `UNAVAILABLE`: there was no reply in time. `METADATA`: the
            reply has more than `MAX_REPLY` bytes. The text shows no query.
    """
    check_url(url, reach)
    content, kind = _content(form, json)
    sent = {**OWN_HEADERS, **({"content-type": kind} if kind else {}), **(headers or {})}
    try:
        with trio.fail_after(seconds):
            return await _exchange(url, reach, sent, content)
    except trio.TooSlowError:
        why = f"no reply within {seconds:g} seconds"
    except _FAILURES as error:
        why = one_line(str(error) or type(error).__name__)
    raise AuthorizationError(f"{shown_url(url)} cannot be reached: {why}", kind=AuthorizationErrorKind.UNAVAILABLE)


def _content(form: Mapping[str, str] | None, json: JsonObject | None) -> tuple[bytes | None, str]:
    if form is not None:
        return urlencode(form).encode(), "application/x-www-form-urlencoded"
    return (None, "") if json is None else (json_text.dumps(json).encode(), "application/json")


async def _exchange(url: str, reach: Reach, headers: Mapping[str, str], content: bytes | None) -> Reply:
    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    method = "GET" if content is None else "POST"
    async with _pool(url, reach) as pool, pool.stream(method, url, headers=fields, content=content) as response:
        body = bytearray()
        async with aclosing(response.aiter_stream()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MAX_REPLY:
                    why = f"the reply of {shown_url(url)} has more than {MAX_REPLY} bytes"
                    raise AuthorizationError(why, kind=AuthorizationErrorKind.METADATA)
        return Reply(response.status, _joined(response.headers), bytes(body))


def _joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _pool(url: str, reach: Reach) -> httpcore2.AsyncConnectionPool:
    """Return a pool for one request: connections are not kept, since requests are minutes apart.

    Raises:
        AuthorizationError: `UNAVAILABLE`: the environment names something else than a proxy of HTTP.
    """
    proxy = _proxy_for(url)
    if proxy is None:
        return httpcore2.AsyncConnectionPool(ssl_context=_tls(), network_backend=CheckedBackend(reach))
    scheme, _, place = proxy.partition("://")
    user, at, host = place.rpartition("@")
    bare, (name, _, word) = f"{scheme}://{host}", user.partition(":")
    try:
        split_url(bare)
    except ValueError as error:
        why = f"the environment names a proxy that is none of HTTP: {error}"
        raise AuthorizationError(why, kind=AuthorizationErrorKind.UNAVAILABLE) from None
    auth = (unquote(name), unquote(word)) if at else None
    return httpcore2.AsyncHTTPProxy(bare, proxy_auth=auth, ssl_context=_tls())


def _proxy_for(url: str) -> str | None:
    """Return the proxy that the environment names for a URL; None if there is none."""
    parts = split_url(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(parts.netloc):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


@cache
def _tls() -> SSLContext:
    # Reading the certificates takes 10 ms.
    return httpcore2.default_ssl_context()


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were checked.

    Args:
        reach: which addresses may be asked.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        # Pyright sees the class that stands for it where Trio is not installed.
        self._backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.TrioBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of a host that accepts the connection, after all of them were checked."""
        host = host.removeprefix("[").removesuffix("]")
        addresses = await resolve(host, port, None if self._reach is Reach.CONFIGURED else _peer_lookups())
        for address in addresses:
            check_address(address, host, self._reach)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure


async def resolve(host: str, port: int, limiter: trio.CapacityLimiter | None = None) -> list[str]:
    """Return the addresses of a host, in the order of the system. Raises `OSError` if it has none.

    Args:
        limiter: of the threads for names; by default that of all threads.
    """
    try:
        return _addresses(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await look_up(host, port, limiter)


async def look_up(host: str, port: int, limiter: trio.CapacityLimiter | None) -> list[str]:
    """Return the addresses of a name. A cancel leaves the thread, which ends with the lookup. See `resolve`."""
    return await trio.to_thread.run_sync(_addresses, host, port, limiter=limiter, abandon_on_cancel=True)


def _addresses(host: str, port: int, flags: int = 0) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys(str(ip_address(entry[4][0])) for entry in found))


def _peer_lookups() -> trio.CapacityLimiter:
    """Return the limiter for names that peers have named: one whose name servers are silent keeps its thread."""
    try:
        return _LOOKUPS.get()
    except LookupError:
        _LOOKUPS.set(trio.CapacityLimiter(MAX_LOOKUPS))
        return _LOOKUPS.get()
