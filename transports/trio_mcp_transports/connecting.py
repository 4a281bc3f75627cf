"""What HTTP and WebSocket clients share: statuses of a busy server, headers of requests, errors of TLS that can be explained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trio_mcp.base.checks import check_str_mapping
from trio_mcp.base.groups import cause_chain
from trio_mcp.client.sampling import maybe_await
from trio_mcp.client.target import check_headers
from trio_mcp.session.transport import HeaderSource

BUSY: Final = (429, 503)
"""Statuses of a server that takes no requests now (Too Many Requests, Service Unavailable)."""

PLAIN_TEXT_REASONS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What OpenSSL calls an answer that is not a TLS record."""


def is_plain_text(error: BaseException) -> bool:
    """Return whether a TLS handshake failed because the other side answered without TLS."""
    texts = [str(each) for each in cause_chain(error)]
    return any(reason in text for text in texts for reason in PLAIN_TEXT_REASONS)


def certificate_hint(error: BaseException) -> str:
    """Return what to do if the certificate of the server is not trusted, to be put behind the text; else an empty text."""
    if any("CERTIFICATE_VERIFY_FAILED" in str(each) for each in cause_chain(error)):
        return "; if the server is yours, set SSL_CERT_FILE to the file of its authority or of its certificate"
    return ""


# The headers of a client: fixed ones, or what a function returns.


class HeadersFailed(Exception):
    """The function that returns the headers failed; nothing was sent."""


async def current_headers(source: HeaderSource | None) -> Mapping[str, str]:
    """Return the headers to send now.

    Raises:
        HeadersFailed: the function failed, or returned what cannot be sent.
    """
    if source is None or isinstance(source, Mapping):
        return source or {}
    try:
        headers = check_str_mapping("headers", await maybe_await(source()))
        check_headers(headers)
    except Exception as error:
        raise HeadersFailed(f"the function headers= failed: {type(error).__name__}: {error}") from error
    return headers
