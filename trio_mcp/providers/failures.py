"""What a failure of an API means: its kind, how long to wait, and a text without the key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from ..errors import ProviderError, ProviderErrorKind, RemoteProtocolError
from ..protocol.strict_json import loads
from ..types import JsonObject, JsonValue
from .endpoint import Endpoint

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


def seconds_to_wait(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that `Retry-After` asks to wait, as a number or as a date; None without one that can be read."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


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
