"""Checks of a request before its body is read: host, origin and headers.

Every check is on by default and runs on every verb, so that a web page in a user's browser reaches no server that did not
list it: neither by DNS rebinding (the Host is foreign), nor across sites (the Origin is), nor by a form (the Content-Type is).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from trio_mcp.errors import ProtocolError
from trio_mcp.http.options import LOOPBACK, check_hosts, check_origins, host_name
from trio_mcp.protocol.jsonrpc import INVALID_REQUEST
from trio_mcp.protocol.uri.uris import normal_uri

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

ALLOW = (b"allow", b"POST, GET, DELETE")
SHUTTING_DOWN = "The server is shutting down. Try again in a moment."

LISTS = frozenset(
    b"accept accept-encoding accept-language cache-control connection forwarded via x-forwarded-for".split()
)
"""Headers that may come in several lines, which mean one list (RFC 9110, 5.3)."""

COOKIE: Final = b"cookie"
"""Comes in several lines over HTTP/2, which mean one (RFC 9113, 8.2.3)."""

SHARED_NAMES: Final[Mapping[bytes, str]] = {
    name: name.decode()
    for name in (
        *LISTS,
        *b"authorization content-length content-type cookie host last-event-id origin upgrade user-agent".split(),
        *b"mcp-method mcp-name mcp-protocol-version mcp-session-id".split(),
        *b"sec-fetch-dest sec-fetch-mode sec-fetch-site".split(),
        *b"sec-websocket-extensions sec-websocket-key sec-websocket-protocol sec-websocket-version".split(),
        *b"x-forwarded-host x-forwarded-proto".split(),
    )
}
"""Header names whose text all requests share: open sessions and streams keep the headers of their requests."""
SHARED_TEXTS: Final[Mapping[str, str]] = {name: name for name in SHARED_NAMES.values()}
"""The same, by the names as text."""
# `sys.intern` would do it for every name, but some versions of Python never free an interned string, and a client may invent
# as many header names as it likes.


WEBSOCKET_KEY = re.compile("[A-Za-z0-9+/]{22}==")


class HttpRejection(ProtocolError):
    """A request that is answered with a status and a JSON-RPC error, and costs nothing else.

    The error carries the id of the JSON-RPC request, where it has been read (L-RPC-3b).
    """

    def __init__(self, status: int, message: str, headers: Headers = (), *, code: int = INVALID_REQUEST) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.headers = headers


class Access:
    """Who may reach the server from a browser.

    Args:
        hosts: names the server is reached by, without ports; loopback names when empty.
        origins: origins of web pages that may call it, such as `https://app.example`; loopback origins are always allowed
            while `hosts` is empty.

    Raises:
        TypeError: one of them is not a list of strings.
        ValueError: no request could have such a name or origin.
    """

    def __init__(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        check_hosts(hosts)
        check_origins(origins)
        self.allowed = frozenset(name.lower().rstrip(".") for name in hosts or LOOPBACK)
        self._origins = frozenset(map(normal_uri, origins))
        self._is_local = not hosts

    def allows_origin(self, origin: str) -> bool:
        if self._origins and normal_uri(origin) in self._origins:
            return True
        scheme, separator, authority = origin.partition("://")
        # A public server has named its pages. Without names it is a local one, for which pages of the same machine are
        # fine.
        if not self._is_local or not separator or scheme not in ("http", "https"):
            return False
        return host_name(authority) in LOOPBACK


def read_headers(raw: Headers) -> Mapping[str, str]:
    """The headers by lower-case name.

    Raises:
        HttpRejection: 400, one of them came twice that is not a list: readers would differ in which one they believe.
    """
    headers = {SHARED_NAMES.get(name) or name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
    # Only a header that came twice makes the numbers differ, so the usual request pays for one comparison.
    if len(headers) != len(raw):
        for name, lines in repeated(raw).items():
            if name not in LISTS and name != COOKIE:
                raise HttpRejection(400, f"The header {name.decode('latin-1')} came twice.")
            between = b"; " if name == COOKIE else b", "
            headers[name.decode("latin-1")] = between.join(lines).decode("latin-1")
    return headers


def repeated(raw: Headers) -> dict[bytes, list[bytes]]:
    """The headers that came more than once, with all their lines."""
    lines: dict[bytes, list[bytes]] = {}
    for name, value in raw:
        lines.setdefault(name, []).append(value)
    return {name: values for name, values in lines.items() if len(values) > 1}


def check_access(headers: Mapping[str, str], access: Access) -> None:
    """Refuse a foreign Host (421) and a foreign Origin (403)."""
    host = headers.get("host", "")
    name = host_name(host)
    if name not in access.allowed:
        # Without the port, so that it can be copied.
        raise HttpRejection(
            421,
            f"This server is not {(name or host)[:128]!r}. Name the hosts it is reached by in allowed_hosts, or with "
            "--allowed-host, without ports.",
        )
    origin = headers.get("origin")
    if origin is not None:
        if not access.allows_origin(origin):
            raise HttpRejection(
                403, f"The origin {origin[:128]!r} may not call this server. Name it in allowed_origins."
            )
    # Browsers leave out Origin on some simple requests, but a page cannot forge or suppress Sec-Fetch-Site.
    elif headers.get("sec-fetch-site") == "cross-site":
        raise HttpRejection(403, "A page of another site may not call this server.")


def check_content(headers: Mapping[str, str]) -> None:
    """Refuse a body that no MCP client posts: another content type, or an encoding (415)."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpRejection(415, "The Content-Type of a message is application/json.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HttpRejection(415, "A message is sent without a Content-Encoding.")


def check_post(headers: Mapping[str, str]) -> None:
    """Reject a content that no MCP client posts, see `check_content`, and an Accept header that excludes our responses (406)."""
    check_content(headers)
    accept = headers.get("accept", "*/*")
    if not (accepts(accept, "application", "json") and accepts(accept, "text", "event-stream")):
        raise HttpRejection(406, "The Accept header must list application/json and text/event-stream.")


class PostChecks:
    """`check_access` and `check_post`. Heads that passed are remembered, since the requests of a client hardly differ in them."""

    MAX_KEPT: Final = 64
    MAX_CHARS: Final = 512

    def __init__(self, access: Access) -> None:
        self._access = access
        self._passed: set[tuple[str | None, ...]] = set()

    def have_passed(self, headers: Mapping[str, str]) -> bool:
        """Return whether a head like this one has passed both."""
        return seen_by_checks(headers) in self._passed

    def check(self, headers: Mapping[str, str]) -> None:
        """Raise as the two do."""
        seen = seen_by_checks(headers)
        if seen in self._passed:
            return
        check_access(headers, self._access)
        check_post(headers)
        if len(self._passed) < self.MAX_KEPT and sum(len(value or "") for value in seen) <= self.MAX_CHARS:
            self._passed.add(seen)


def seen_by_checks(headers: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return all that `check_access` and `check_post` look at."""
    get = headers.get
    return (
        get("host"),
        get("origin"),
        get("sec-fetch-site"),
        get("content-type"),
        get("content-encoding"),
        get("accept"),
    )


def check_stream(headers: Mapping[str, str]) -> None:
    """Refuse a GET whose client would not read a stream of events (406)."""
    if not accepts(headers.get("accept", "*/*"), "text", "event-stream"):
        raise HttpRejection(406, "The Accept header must list text/event-stream.")


def check_upgrade(headers: Mapping[str, str], offered: Sequence[str]) -> None:
    """Refuse a WebSocket (400) whose client does not say that it speaks MCP on it, or whose key is none (RFC 6455, 4.2.1)."""
    key = headers.get("sec-websocket-key")  # HTTP/2 has none
    if key is not None and not WEBSOCKET_KEY.fullmatch(key):
        raise HttpRejection(400, "The Sec-WebSocket-Key must be 16 bytes in base64.")
    if "mcp" not in offered:
        raise HttpRejection(
            400, 'A WebSocket of this endpoint speaks the subprotocol "mcp": offer it in Sec-WebSocket-Protocol.'
        )


def accepts(accept: str, kind: str, subtype: str) -> bool:
    ranges = {item.partition(";")[0].strip().lower() for item in accept.split(",")}
    return not ranges.isdisjoint({f"{kind}/{subtype}", f"{kind}/*", "*/*"})
