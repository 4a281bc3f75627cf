"""What trusted proxies say of the client that they pass on: `Forwarded` (RFC 7239) and `X-Forwarded-*`.

Each proxy adds one element at the end of a list. The elements are read from the end for as long as the one who added them is
trusted: the first address that is not a proxy's is the client's, and the client may have forged all elements before it.

| header              | used for                                                     |
|---------------------|--------------------------------------------------------------|
| `X-Forwarded-For`   | the address of the client                                    |
| `X-Forwarded-Proto` | `https` or `http`                                            |
| `X-Forwarded-Host`  | the name that the client used, which is checked as Host is   |
| `X-Forwarded-Prefix`| the path under which the proxy publishes the server          |
| `Forwarded`         | `for`, `proto` and `host`, in place of the first three       |

A proxy that writes one kind may pass the other on as a client sent it. So if both come, they must agree, and what only one
of them says is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.http.options import UNIX, address_of, caller_at, check_proxies, host_name
from trio_mcp.http.routes import PLAIN_PATH

from .access import HttpRejection
from .requests import Request

MAX_ELEMENTS: Final = 32
"""Proxies in a row that are believed."""

PAIR: Final = re.compile(
    r'\s*([-!#$%&\'*+.^_`|~0-9A-Za-z]++)=(?:"([^"\\]*+)"|([-!#$%&\'*+.^_`|~0-9A-Za-z:\[\]]*+))\s*([;,]|$)'
)
SECURE: Final[Mapping[str, str]] = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
"""The schemes of requests, also for WebSockets."""

AMBIGUOUS: Final = (
    "The headers Forwarded and X-Forwarded-* disagree: the proxy must remove those that it does not write."
)


class Hop(NamedTuple):
    """What one proxy says of who connected to it.

    Attributes:
        client: an address, or any other text.
    """

    client: str | None = None
    scheme: str | None = None
    host: str | None = None


class TrustedProxies:
    """The proxies whose headers are believed.

    Args:
        proxies: see `HttpOptions.trusted_proxies`.
    """

    def __init__(self, proxies: Sequence[str]) -> None:
        self._networks = check_proxies(proxies)
        self._trusts_unix = UNIX in proxies

    def restore(self, request: Request) -> None:
        """Make a request what it would be without the proxies; nothing is changed if it came through none that is trusted.

        Raises:
            HttpRejection: 400, a trusted proxy has sent a header that cannot be read.
        """
        if not self.trusts(request):
            return
        headers = request.headers
        seen = agreed(self._newest(standard_hops(headers)), self._newest(x_hops(headers)))
        if seen.client is not None:
            address = address_of(seen.client)
            request.client = None if address is None else (str(address), 0)
            if address is not None:
                # The requests of many clients come on one connection of the proxy.
                request.connection = caller_at(address)
        if seen.scheme is not None:
            scheme = SECURE.get(seen.scheme.lower())
            if scheme is None:
                raise unreadable(f"the scheme {seen.scheme[:32]!r}")
            request.scheme = scheme
        if seen.host is not None:
            if not host_name(seen.host):
                raise unreadable(f"the host {seen.host[:128]!r}")
            request.headers = {**headers, "host": seen.host}
        add_prefix(request, headers.get("x-forwarded-prefix", ""))

    def trusts(self, request: Request) -> bool:
        """Return whether a trusted proxy has sent this request."""
        client = request.client
        return self._trusts_unix if client is None else self.trusts_address(client[0])

    def trusts_address(self, client: str) -> bool:
        """Return whether an address is that of a trusted proxy."""
        address = address_of(client)
        return address is not None and any(address in network for network in self._networks)

    def _newest(self, hops: Sequence[Hop]) -> Hop | None:
        """Return what the outermost trusted proxy says; None without any."""
        found = None
        for hop in reversed(hops[-MAX_ELEMENTS:]):
            # What a farther proxy leaves out is as the nearer one has it.
            found = hop if found is None else Hop(*(far or near for far, near in zip(hop, found, strict=True)))
            if hop.client is None or not self.trusts_address(hop.client):
                break
        return found


@cache
def trusted(proxies: tuple[str, ...]) -> TrustedProxies:
    """Return the cached `TrustedProxies` of these addresses."""
    return TrustedProxies(proxies)


def agreed(standard: Hop | None, other: Hop | None) -> Hop:
    """Return what both kinds of headers say, or the one kind that came.

    Raises:
        HttpRejection: 400, they disagree.
    """
    if standard is None or other is None:
        return standard or other or Hop()
    if any(
        one is not None and two is not None and plain(one) != plain(two)
        for one, two in zip(standard, other, strict=True)
    ):
        raise HttpRejection(400, AMBIGUOUS)
    return Hop(*(one if two is not None else None for one, two in zip(standard, other, strict=True)))


def plain(text: str) -> str:
    """Return an address without its port, or any other text in lower case."""
    return str(address_of(text) or text.lower())


def x_hops(headers: Mapping[str, str]) -> list[Hop]:
    """Return the hops of `X-Forwarded-*`; of shorter lists than that of the clients, the first item is repeated."""
    names = ("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host")
    lists = [[item.strip() for item in headers[name].split(",")] if name in headers else [] for name in names]
    longest = max(map(len, lists))
    return [
        Hop(*((items[max(len(items) - distance, 0)] or None) if items else None for items in lists))
        for distance in range(longest, 0, -1)
    ]


def standard_hops(headers: Mapping[str, str]) -> list[Hop]:
    """Return the hops of `Forwarded`.

    Raises:
        HttpRejection: 400, it cannot be read.
    """
    value = headers.get("forwarded")
    if value is None:
        return []
    hops: list[Hop] = []
    pairs: dict[str, str] = {}
    position, end = 0, len(value)
    while position < end:
        match = PAIR.match(value, position)
        if match is None or match[1].lower() in pairs:
            raise unreadable("the header Forwarded")
        pairs[match[1].lower()] = match[2] if match[2] is not None else match[3]
        position = match.end()
        if match[4] != ";":
            hops.append(Hop(pairs.get("for"), pairs.get("proto"), pairs.get("host")))
            pairs = {}
    return hops


def add_prefix(request: Request, prefix: str) -> None:
    """Put a request below a path prefix, which the proxy may have removed from its path or not.

    Raises:
        HttpRejection: 400, it is not a path.
    """
    bare = prefix.rstrip("/")
    if not bare:
        return
    if not PLAIN_PATH.fullmatch(bare):
        raise unreadable(f"the prefix {prefix[:128]!r}")
    is_removed = not (request.path == bare or request.path.startswith(bare + "/"))
    request.root_path = bare + request.root_path
    if is_removed:
        request.path = bare + request.path


def unreadable(what: str) -> HttpRejection:
    return HttpRejection(400, f"A proxy has sent what cannot be read: {what}.")
