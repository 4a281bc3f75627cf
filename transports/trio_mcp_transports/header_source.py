"""The headers of a client: fixed ones, or what a function returns."""

from __future__ import annotations

from collections.abc import Mapping

from trio_mcp.checks import check_str_mapping
from trio_mcp.client.maybe_await import maybe_await
from trio_mcp.client.target import check_headers
from trio_mcp.session.transport import HeaderSource


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
