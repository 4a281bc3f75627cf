"""The names under which a server is reached, and the web sites whose pages may call it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from ..base.checks import check_sequence, check_str, mistake

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


def check_hosts(hosts: Sequence[str]) -> None:
    """Refuse a name that no Host header could have once its port is taken off."""
    for name in listed("allowed_hosts", hosts, "mcp.example.com"):
        # A trailing dot is the same host (a fully qualified name), and browsers do send it.
        bare = name.lower().rstrip(".")
        if bare and host_name(name) == bare and "*" not in bare:
            continue
        authority = urlsplit(name if "://" in name else f"//{name}").netloc
        meant = f"[{name}]" if name.count(":") > 1 and host_name(f"[{name}]") else host_name(authority)
        advice = f"write it as {meant!r}" if meant and "*" not in meant else "name each host"
        raise ValueError(f"allowed_hosts: {name!r:.80} is no host name: {advice}, without scheme, port and path")


def check_origins(origins: Sequence[str]) -> None:
    """Refuse an origin that no browser sends."""
    for origin in listed("allowed_origins", origins, "https://app.example.com"):
        scheme, separator, authority = origin.partition("://")
        if not origin.isascii():
            raise ValueError(
                f"allowed_origins: {origin!r:.80} has characters that no browser sends: write the host as it does (xn--...)"
            )
        if scheme and separator and host_name(authority) and "*" not in authority:
            continue
        meant = urlsplit(origin if separator else f"https://{origin}")
        named = meant.netloc and "*" not in meant.netloc and origin != "null"
        advice = f"write it as {f'{meant.scheme}://{meant.netloc}'!r}" if named else "name each web site"
        raise ValueError(
            f"allowed_origins: {origin!r:.80} is no origin: {advice}, with a scheme and without a path, as browsers send it"
        )


def listed(option: str, names: object, example: str) -> Collection[str]:
    """Return the names if they are a collection of strings."""
    # A string is a collection of strings too, and would be taken letter by letter.
    if isinstance(names, str) or not isinstance(names, Collection):
        raise TypeError(mistake(option, f"a list, such as [{example!r}]", names))
    return [check_str(f"each item of {option}", name) for name in names]


def host_name(authority: str) -> str:
    """The host of an authority, without the port; empty for anything odd (userinfo, a path, an open bracket)."""
    authority = authority.strip().lower()
    if not authority or any(sign in authority for sign in "@/\\? #"):
        return ""
    if authority.startswith("["):
        name, bracket, port = authority.partition("]")
        return name + bracket if bracket and (not port or port[1:].isdigit()) else ""
    name, _, port = authority.partition(":")
    return name.rstrip(".") if not port or port.isdigit() else ""


# The addresses of trusted proxies.

Network: TypeAlias = IPv4Network | IPv6Network

UNIX: Final = "unix"
"""Stands for every peer of a Unix socket, which has no address."""


def check_proxies(proxies: Sequence[str]) -> tuple[Network, ...]:
    """Return the networks of proxies; `UNIX` is none of them.

    Raises:
        TypeError: this is not a list of strings.
        ValueError: one is neither an address nor a network.
    """
    each = "an address, such as '10.0.0.1'"
    names = check_sequence("trusted_proxies", proxies, str, "a list, such as ['10.0.0.0/8']", each)
    return tuple(network_of(name) for name in names if name != UNIX)


def network_of(name: str) -> Network:
    try:
        return ip_network(name)
    except ValueError as error:
        raise ValueError(
            f"trusted_proxies: {name!r:.80} is no address, no network and not {UNIX!r}: {error}; "
            "a name or '*' would trust what anybody can claim to be"
        ) from None
