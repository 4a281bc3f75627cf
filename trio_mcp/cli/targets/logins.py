"""The logins of the user, as commands use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from ... import auth
from ...auth.uris import canonical, over_http
from ..command import CommandError
from .target import SCHEMES, UrlTarget, check_address

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def login_for(target: UrlTarget, headers: Mapping[str, str]) -> auth.OAuth | None:
    """Return the settings that use the stored login at a server; None if a header or the URL has credentials.

    Only `trio-mcp login` opens a browser: another command may run without its user.

    Args:
        headers: of the command line.
    """
    has_own = any(name.lower() == "authorization" for name in (*target.headers, *headers))
    if has_own or not is_resource(target.url):
        return None
    settings = auth.OAuth(interactive=False)
    return settings if target.oauth is None else settings.for_client(target.oauth)


def stored_login_for(target: UrlTarget, headers: Mapping[str, str]) -> auth.OAuth | None:
    """Return the same, but None if there is no stored login: a proxy that sends no credentials may be served to anyone."""
    return login_for(target, headers) if is_resource(target.url) and auth.TokenFiles().has(target.url) else None


def is_resource(url: str) -> bool:
    """Return whether a URL can be that of a login: one with a user in it already has credentials."""
    try:
        canonical(over_http(url))
    except ValueError:
        return False
    return True


def check_server_url(url: str) -> None:
    """Raise `CommandError` unless this is the URL of a server."""
    if url.partition("://")[0].lower() not in SCHEMES or "://" not in url:
        raise CommandError(f"{url!r:.200} is not the URL of a server, such as https://mcp.example.com/mcp")
    check_address(url)


class LoginUrl(click.ParamType[str]):
    """The URL of a server; a shell completes those with a login."""

    name = "url"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        # Loaded for shells alone.
        from click import shell_completion  # noqa: PLC0415

        urls = auth.TokenFiles().known_urls()
        return [shell_completion.CompletionItem(url) for url in urls if url.startswith(incomplete)]
