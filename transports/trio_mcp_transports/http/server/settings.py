"""What a server says of serving it over HTTP, and what the serving call says: together they are how it is served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypedDict

from trio_mcp.http import Authenticate, HttpLimits, HttpOptions, Tls
from trio_mcp.storage import EventStore


class HttpKeywords(TypedDict, total=False):
    """The options of a call that serves over HTTP.

    But for `event_store` they are those of `HttpOptions`, which has what they mean. What is not given, or is None or empty, is
    as the server has it, apart from `path`, where None stands for no Streamable HTTP and no WebSocket.
    """

    path: str | None
    sse_path: str | None
    message_path: str | None
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    authenticate: Authenticate | None
    limits: HttpLimits | None
    root_path: str | None
    trusted_proxies: Sequence[str]
    access_log: bool | None
    event_store: EventStore | None
    """Stores the messages of legacy streams for clients that resume them; by default in memory."""


NOT_GIVEN: Final[tuple[object, ...]] = (None, (), [])


def served_options(server: object, keywords: HttpKeywords, tls: Tls | None = None) -> HttpOptions:
    """Return how a server is served.

    What was not given is as the server has it. So the authentication of a server can be replaced, and not be dropped.

    Raises:
        ValueError, TypeError: see `HttpOptions`.
    """
    given: Mapping[str, object] = {**keywords, "tls": tls}
    changes = {
        name: value
        for name, value in given.items()
        if name != "event_store" and (name == "path" or value not in NOT_GIVEN)
    }
    return replace(options_of(server), **changes)  # type: ignore[arg-type]  # HttpOptions checks each


def options_of(server: object) -> HttpOptions:
    """Return what a server says; a proxy, or a server of another project, has nothing to say."""
    own = getattr(server, "http", None)
    return own if isinstance(own, HttpOptions) else HttpOptions()
