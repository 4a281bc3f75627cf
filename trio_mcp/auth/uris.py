"""URLs of resources and of authorization servers: their canonical form, their origin, and where their metadata is.

They are text everywhere: issuers and resources are compared character by character (RFC 8414, 3.3; RFC 9728, 3.3), and a URL
object would add a slash or change a letter.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from ..base.values import shown_url

RESOURCE_METADATA: Final = "/.well-known/oauth-protected-resource"
SERVER_METADATA: Final = "/.well-known/oauth-authorization-server"
OPENID_METADATA: Final = "/.well-known/openid-configuration"

MAX_URL: Final = 2_048
"""Characters of a URL."""

_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]++")
"""The characters of RFC 3986. `urlsplit` drops line breaks and tabs, and takes a backslash for a part of a path."""
_AUTHORITY: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]++\]|[A-Za-z0-9._-]++)(?::[0-9]++)?")
_MOVES: Final = re.compile(r"/\.{0,2}/|/\.{1,2}$")
"""A segment that is empty, or names this folder or the one above it."""


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL of http or https.

    Raises:
        ValueError: it is none, has more than `MAX_URL` characters, a user, or a character that must be encoded. The error shows
            no query.
    """
    shown = shown_url(url[:MAX_URL])
    if len(url) > MAX_URL or not _URL.fullmatch(url):
        raise ValueError(f"{shown!r:.200} is no URL: it is too long, or has characters that a URL cannot have")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{shown!r:.200} is no URL that begins with https:// and a host")
    if "@" in parts.netloc:
        raise ValueError(f"{shown!r:.200} has a user in it")
    if not _AUTHORITY.fullmatch(parts.netloc):
        raise ValueError(f"{shown!r:.200} has no valid host")
    if parts.port == 0:
        raise ValueError(f"{shown!r:.200} has no valid port")
    return parts


def over_http(url: str) -> str:
    """Return the URL of a WebSocket with the scheme of the request that opens it, and any other as it is."""
    return f"http{url[2:]}" if url[:2].lower() == "ws" else url


def origin(url: str) -> str:
    """Return the scheme, host and port of a URL, in lower case and without the default port. Raises `ValueError`."""
    parts = split_url(url)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS[parts.scheme]) else f":{parts.port}"
    return f"{parts.scheme}://{shown}{port}"


def canonical(url: str) -> str:
    """Return the canonical form of a resource: origin, path and query; without fragment, and without a lone slash.

    Raises:
        ValueError: see `split_url`.
    """
    parts = split_url(url)
    path = "" if parts.path == "/" else parts.path
    return f"{origin(url)}{path}{parts.query and '?'}{parts.query}"


def covers(resource: str, url: str) -> bool:
    """Return whether the metadata of `resource` may be about `url` (RFC 9728, 3.3).

    Origin and query are the same, and the path is the same (but for one slash at its end) or in a folder of the resource.
    """
    try:
        here, there = split_url(resource), split_url(url)
        if "#" in resource or origin(resource) != origin(url) or here.query != there.query:
            return False
    except ValueError:
        return False
    if here.path.removesuffix("/") == there.path.removesuffix("/"):
        return True
    # A path that a server may resolve elsewhere is in no folder.
    moves = may_move(here.path.removesuffix("/")) or may_move(there.path)
    return not moves and there.path.startswith(here.path.removesuffix("/") + "/")


def may_move(path: str) -> bool:
    """Return whether a server may take a path for another one."""
    plain = unquote(path)
    return "\\" in plain or plain.count("/") != path.count("/") or _MOVES.search(plain) is not None


def metadata_place(resource: str) -> str:
    """Return the path and query at which the metadata of a resource is (RFC 9728, 3.1). Raises `ValueError`."""
    parts = split_url(resource)
    path = "" if parts.path == "/" else parts.path
    return f"{RESOURCE_METADATA}{path}{parts.query and '?'}{parts.query}"


def resource_documents(url: str, named: str | None = None) -> list[str]:
    """Return where the metadata of a server may be, in the order in which it is looked for (L-AUTH-3c).

    Args:
        url: of the server.
        named: the URL in its challenge; None if there was none.

    Raises:
        ValueError: see `split_url`.
    """
    here = origin(url)
    places = [named] if named else []
    places += [here + metadata_place(url), here + RESOURCE_METADATA]
    return list(dict.fromkeys(places))


def server_documents(issuer: str) -> list[str]:
    """Return where the metadata of an authorization server may be, in the order in which it is looked for (L-AUTH-4c).

    Raises:
        ValueError: see `split_url`; or it has a query or a fragment (RFC 8414, 2).
    """
    parts = split_url(issuer)
    if "?" in issuer or "#" in issuer:
        raise ValueError(f"{shown_url(issuer)!r:.200} is no issuer: it has a query or a fragment")
    here, path = origin(issuer), parts.path.rstrip("/")
    if not path:
        return [here + SERVER_METADATA, here + OPENID_METADATA]
    return [here + SERVER_METADATA + path, here + OPENID_METADATA + path, here + path + OPENID_METADATA]
