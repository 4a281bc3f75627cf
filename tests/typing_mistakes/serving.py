"""Mistakes in the options of a serving call that type checkers find."""

from __future__ import annotations

from trio_mcp import Server
from trio_mcp_transports.http import asgi_app, serve_http


async def misspelled() -> None:
    asgi_app(Server("a"), headres={})  # type: ignore[call-overload]
    await serve_http(Server("a"), prot=1)  # type: ignore[call-arg]


async def wrong_types() -> None:
    asgi_app(Server("a"), allowed_hosts=7)  # type: ignore[call-overload]
    await serve_http({"/a": Server("a")}, path=7)  # type: ignore[arg-type]


def missing() -> None:
    Server("a").add_middleware(None)  # type: ignore[attr-defined]
