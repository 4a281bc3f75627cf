"""Where an API is, and the key for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from ..base.checks import check_str, mistake
from ..errors import ProviderError, ProviderErrorKind, RemoteProtocolError
from ..protocol.http.headers import seconds_to_wait
from ..protocol.strict_json import loads
from ..types import JsonObject, JsonValue

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


# What a failure of an API means: its kind, how long to wait, and a text without the key.

MAX_EXCERPT: Final = 300
"""Characters of an API's own text in the text of an error."""

NAMED: Final = {
    "authentication_error": ProviderErrorKind.AUTHENTICATION,
    "permission_error": ProviderErrorKind.AUTHENTICATION,
    "invalid_api_key": ProviderErrorKind.AUTHENTICATION,
    "rate_limit_error": ProviderErrorKind.RATE_LIMITED,
    "rate_limit_exceeded": ProviderErrorKind.RATE_LIMITED,
    "invalid_request_error": ProviderErrorKind.REJECTED,
    "not_found_error": ProviderErrorKind.REJECTED,
    "request_too_large": ProviderErrorKind.REJECTED,
    "billing_error": ProviderErrorKind.REJECTED,
}
"""Kinds of the errors that APIs report in the body of a response or a stream whose status is 200."""


def kind_of_status(status: int) -> ProviderErrorKind:
    """Return the kind of an error with this HTTP status."""
    if status in (401, 403):
        return ProviderErrorKind.AUTHENTICATION
    if status == 429:
        return ProviderErrorKind.RATE_LIMITED
    # Request Timeout and Too Early blame the moment, not the request.
    if status >= 500 or status in (408, 425):
        return ProviderErrorKind.UNAVAILABLE
    return ProviderErrorKind.REJECTED if status >= 400 else ProviderErrorKind.MALFORMED


def rejected_with(
    status: int, headers: Mapping[str, str], body: bytes, now: float, endpoint: Endpoint
) -> ProviderError:
    """Return the error for a response that is not a success.

    Args:
        now: the time, in seconds since the epoch, for a `Retry-After` that is a date.
    """
    kind = kind_of_status(status)
    # What an API says about a key may show a part of it.
    said = "" if kind is ProviderErrorKind.AUTHENTICATION else _said(body)
    text = endpoint.hide_secrets(f"{endpoint.vendor.name} answered HTTP {status}{': ' if said else ''}{said}")
    return ProviderError(text[:MAX_EXCERPT], kind=kind, status=status, retry_after=seconds_to_wait(headers, now))


def malformed(what: str, endpoint: Endpoint) -> ProviderError:
    """Return the error for something that is not an answer."""
    text = endpoint.hide_secrets(f"{endpoint.vendor.name} sent a malformed answer: {what}")
    return ProviderError(text[:MAX_EXCERPT], kind=ProviderErrorKind.MALFORMED)


def read_object(raw: bytes, endpoint: Endpoint) -> JsonObject:
    """Return the JSON object of a body or an event.

    Raises:
        ProviderError: it is none, or it is an error of the API.
    """
    try:
        value = loads(raw)
    except RemoteProtocolError as error:
        reason = str(error)
    else:
        if not isinstance(value, dict):
            reason = "it is not an object"
        elif value.get("error"):
            raise _reported(value["error"], endpoint)
        else:
            return value
    raise malformed(reason, endpoint)


def _reported(error: JsonValue, endpoint: Endpoint) -> ProviderError:
    """Return the error that an API reports in the body of a response whose status is 200."""
    members = error if isinstance(error, dict) else {}
    status = members.get("code")
    if isinstance(status, int) and 400 <= status < 600:
        kind = kind_of_status(status)
    else:
        names = [name for name in (members.get("code"), members.get("type")) if isinstance(name, str)]
        kind = next((NAMED[name] for name in names if name in NAMED), ProviderErrorKind.UNAVAILABLE)
    said = "" if kind is ProviderErrorKind.AUTHENTICATION else str(members.get("message") or error)
    text = endpoint.hide_secrets(f"{endpoint.vendor.name} reported an error{': ' if said else ''}{said}")
    return ProviderError(text[:MAX_EXCERPT], kind=kind)


def _said(body: bytes) -> str:
    """Return what an API says about an error: the message in its JSON, or else its text."""
    try:
        value = loads(body)
    except RemoteProtocolError:
        return body.decode("utf-8", "replace").strip()
    error = value.get("error", value) if isinstance(value, dict) else value
    message = error.get("message") if isinstance(error, dict) else error
    return str(message or body.decode("utf-8", "replace"))
