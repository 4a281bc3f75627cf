"""Which addresses a request of authorization may go to.

A server names URLs that its clients request, and a malicious one would name a machine in the network of the user. So the address
that a connection goes to is checked, and not the name, which may get another address for each lookup.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from ..base.values import shown_url
from ..errors import AuthorizationError, AuthorizationErrorKind
from .uris import split_url

_COMPATIBLE: Final = IPv6Network("::/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_PROTOCOLS: Final = IPv4Network("192.0.0.0/24")
"""Of protocols (RFC 6890, 2.2.2), and of the metadata of machines at one cloud; Python 3.11.9 takes most of it for public."""


class Reach(Enum):
    """Where requests may go."""

    PUBLIC = "public"
    """To public addresses, with https: for a client of a server in the network."""
    LOOPBACK = "loopback"
    """To this machine too, also with http: for a client of a server on this machine."""
    CONFIGURED = "configured"
    """To every address, with http to this machine only: for what a program itself names, such as the issuer of a server."""


def is_loopback(host: str) -> bool:
    """Return whether a host of a URL is this machine: "localhost", or an address that is written as one."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # An IPv4 address within one of IPv6 is no other spelling of it here; newer versions of Python take it for one.
    return address.is_loopback and not (isinstance(address, IPv6Address) and address.ipv4_mapped is not None)


def reach_from(host: str) -> Reach:
    """Return where what the server on a host names may be: only a server on this machine may name others on it."""
    return Reach.LOOPBACK if is_loopback(host) else Reach.PUBLIC


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is public; one of IPv6 that has others in it is, if those are."""
    inner = [*_embedded(address)]
    if inner:
        return all(map(is_public, inner))
    local = isinstance(address, IPv6Address) and (address.is_site_local or address.scope_id is not None)
    return address.is_global and not (address.is_multicast or address.is_reserved or local or address in _PROTOCOLS)


def _embedded(address: IPv4Address | IPv6Address) -> Iterator[IPv4Address]:
    """Yield the addresses of IPv4 that one of IPv6 leads to, or comes from."""
    if isinstance(address, IPv4Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def check_address(address: str, host: str, reach: Reach) -> None:
    """Raise `AuthorizationError` (kind `ADDRESS`) if a connection may not go to an address.

    Args:
        address: what the host was resolved to.
        host: as the URL has it.
    """
    found = ip_address(address)
    if is_loopback(host):
        # A hosts file may send the name elsewhere.
        allowed = reach is not Reach.PUBLIC and found.is_loopback
    else:
        allowed = reach is Reach.CONFIGURED or is_public(found)
    if not allowed:
        raise _refused(f"{host!r:.100} is {found}, which is no public address")


def check_url(url: str, reach: Reach) -> None:
    """Raise `AuthorizationError` (kind `ADDRESS`) if a URL may not be requested, as far as its text says."""
    try:
        parts = split_url(url)
    except ValueError as error:
        raise _refused(str(error)) from None
    host = parts.hostname or ""
    if parts.scheme != "https" and not (is_loopback(host) and reach is not Reach.PUBLIC):
        raise _refused(f"{shown_url(url)!r:.200} must begin with https://")
    try:
        address = ip_address(host)
    except ValueError:
        if not is_loopback(host):
            return
        address = ip_address("127.0.0.1")
    check_address(str(address), host, reach)


def _refused(why: str) -> AuthorizationError:
    return AuthorizationError(f"a URL may not be requested: {why}", kind=AuthorizationErrorKind.ADDRESS)
