"""`trio-mcp login`: log in to a server with a browser."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from ... import auth
from ...auth.client.flow import NoBrowser
from ...auth.client.logins import log_in
from ...auth.client.options import open_system_browser
from ...auth.client.stored import Login
from ...base.values import shown_url
from ...errors import AuthorizationErrorKind
from ..arguments import WholeNumber, json_option
from ..command import CommandError, Status, command, run_command, translate_errors
from ..connecting import GIVE_HEADER
from ..protecting import secret_in
from ..targets.logins import LoginUrl, check_server_url
from ..terminal.output import log_to_stderr, note, show_json, show_lines
from ..terminal.prompting import Terminal
from .whoami import as_object

EXAMPLES = """\
examples:
  trio-mcp login https://mcp.example.com/mcp
  trio-mcp login https://mcp.example.com/mcp --scope notes:read --scope notes:write
  trio-mcp login https://mcp.example.com/mcp --no-browser
  trio-mcp login https://mcp.example.com/mcp --client-id my-client --client-secret-file secret.txt --port 8123

The page of the login opens in your browser. Without one, or with --no-browser, its URL is written to stdout: open it anywhere.
If that is on another machine, the last page cannot be shown there; paste its URL here.

The tokens are stored in a file that only you can read, in the folder TRIO_MCP_AUTH_DIR, or $XDG_STATE_HOME/trio-mcp/auth. The
other commands use and refresh them. --client-id is for servers where clients are registered by hand; register the redirect URI
http://localhost:PORT/callback with --port PORT.
"""

DISPLAYS: Final = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables of which one is set where a browser can be opened."""


@command("login", EXAMPLES, {Status.REFUSED: "the login failed"})
@click.argument("url", type=LoginUrl(), metavar="URL")
@click.option("--client-id", metavar="ID", help="A client that was registered by hand.")
@click.option("--client-secret-file", type=click.Path(dir_okay=False), metavar="FILE", help="The file with its secret.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="A scope to request; repeatable.")
@click.option("--port", type=WholeNumber(1, 65535), metavar="PORT", help="The port of the redirect.")
@click.option("--issuer", metavar="URL", help="The authorization server to use, of those that the server names.")
@click.option("--no-browser", is_flag=True, help="Write the URL of the login instead of opening it.")
@json_option
def command_line(
    url: str,
    client_id: str | None,
    client_secret_file: str | None,
    scopes: Sequence[str],
    port: int | None,
    issuer: str | None,
    no_browser: bool,
    as_json: bool,
    debug: bool,
) -> int:
    """Log in to a server with a browser, and store the tokens for the other commands."""
    log_to_stderr(10 if debug else 30)
    check_server_url(url)
    secret = None if client_secret_file is None else secret_in(Path(client_secret_file))
    try:
        settings = auth.OAuth(
            client_id=client_id,
            client_secret=secret,
            scopes=[*scopes] or None,
            issuer=issuer,
            redirect_port=port or 0,
            browser=partial(show_page if no_browser or not has_display() else open_page, as_json=as_json),
        )
    except (ValueError, TypeError) as error:
        raise CommandError(str(error)) from error

    async def run() -> int:
        with translate_errors(failed=f"{shown_url(url)} cannot be connected to"):
            login = await logged_in(settings, url)
        note_login(login)
        if as_json:
            show_json(as_object(login))
        return Status.OK

    return run_command(run)


async def logged_in(settings: auth.OAuth, url: str) -> Login:
    """Log in, and return the login. Raises `CommandError` for a server that knows no logins, `AuthorizationError` for others."""
    try:
        return await log_in(settings, url)
    except auth.AuthorizationError as error:
        if error.kind is not AuthorizationErrorKind.METADATA:
            raise
        text = f"{error}; if the server takes a token, {GIVE_HEADER} to the other commands"
        raise CommandError(text, Status.REFUSED) from error


def has_display() -> bool:
    """Return whether a browser can probably be opened."""
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in DISPLAYS)


async def open_page(url: str, *, as_json: bool) -> str | None:
    """Open the page of a login in a browser; if there is none, do what `show_page` does."""
    try:
        await open_system_browser(url)
    except NoBrowser:
        return await show_page(url, as_json=as_json)
    return None


async def show_page(url: str, *, as_json: bool) -> str | None:
    """Write the URL of a login; return the URL of the redirect if the user pastes that.

    Args:
        as_json: stdout is for the result.
    """
    note("Open this page to log in:")
    if as_json:
        note(url)
    else:
        show_lines([url])
    terminal = Terminal()
    if not terminal.is_interactive:
        return None
    note("If the last page cannot be shown, paste its URL here and press Enter.")
    while True:
        line = await terminal.ask("")
        if line is None or line.strip().startswith("http"):
            return line and line.strip()
        note("That is not the URL of the last page, which begins with http:// and has code= in it. Paste it again.")


def note_login(login: Login) -> None:
    scopes = f", with the scopes {login.tokens.scope}" if login.tokens.scope else ""
    note(f"logged in to {shown_url(login.url)} at {shown_url(login.server.issuer)}{scopes}")
