"""The addresses of trusted proxies."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, TypeAlias

from ..checks import check_sequence

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
