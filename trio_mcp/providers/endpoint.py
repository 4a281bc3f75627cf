"""Where an API is, and the key for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from ..checks import check_str, mistake

HIDDEN: Final = "[key]"
"""What stands for the key in texts."""


@dataclass(frozen=True, slots=True)
class Vendor:
    """What the APIs of two vendors name differently.

    Attributes:
        name: of the API, for texts.
        url: its base URL.
        key_variable, url_variable: environment variables with a key and with another base URL.
    """

    name: str
    url: str
    key_variable: str
    url_variable: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL, and the key for it; None for a server that wants none. Its repr does not show the key.

    Attributes:
        is_named: the program names the URL, so that nothing of the environment is meant for it.
    """

    vendor: Vendor
    url: str
    key: str | None = field(repr=False)
    is_named: bool

    @property
    def host(self) -> str:
        """The host of the URL."""
        return urlsplit(self.url).hostname or ""

    def hide_secrets(self, text: str) -> str:
        """Return a text without the key."""
        return text.replace(self.key, HIDDEN) if self.key else text


def find_endpoint(vendor: Vendor, base_url: str | None, api_key: str | None) -> Endpoint:
    """Return the endpoint for the arguments of a provider.

    The key in the environment is for the URL in the environment, or for the vendor's. A URL that the program names gets only the
    key that the program names.

    Raises:
        TypeError, ValueError: an argument is wrong, or the vendor's own API has no key.
    """
    url = base_url if base_url is not None else os.environ.get(vendor.url_variable) or vendor.url
    key = os.environ.get(vendor.key_variable) if api_key is None and base_url is None else api_key
    endpoint = Endpoint(vendor, check_str("base_url", url).rstrip("/"), _check_key(key), base_url is not None)
    parts = urlsplit(endpoint.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(mistake("base_url", "an http or https URL", endpoint.url))
    if "@" in parts.netloc or parts.query or parts.fragment:
        # HTTP libraries log URLs.
        raise ValueError("base_url must have no user, password or query: a secret in it would be logged")
    if endpoint.key is None and endpoint.url == vendor.url:
        raise ValueError(f"{vendor.name} needs a key: pass api_key=, or set {vendor.key_variable}")
    return endpoint


def _check_key(key: str | None) -> str | None:
    """Return a key that can stand in a header; an empty one counts as none. No error shows it."""
    if not key:
        return None
    if not isinstance(key, str):
        raise TypeError(f"api_key must be a string, not {type(key).__name__}")
    if not (key.isascii() and key.isprintable()) or key != key.strip():
        raise ValueError("api_key must be printable ASCII, without spaces and line breaks around it")
    return key
