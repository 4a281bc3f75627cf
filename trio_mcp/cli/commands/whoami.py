"""`trio-mcp whoami`: list the logins."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

import click

from ... import auth
from ...auth.client.stored import Login
from ...auth.uris import canonical, over_http
from ...base.values import shown_url
from ..arguments import json_option
from ..command import CommandError, Status, command, run_command, translate_errors
from ..targets.logins import LoginUrl, check_server_url
from ..terminal.output import note, show_json, show_table

EXAMPLES = """\
examples:
  trio-mcp whoami
  trio-mcp whoami https://mcp.example.com/mcp --json

It shows the server, the authorization server, the scopes, and when the access token expires; never a token. A login with a
refresh token goes on after that.
"""


@command("whoami", EXAMPLES, {Status.REFUSED: "there is no login at the server"})
@click.argument("url", type=LoginUrl(), required=False, metavar="[URL]")
@json_option
def command_line(url: str | None, as_json: bool, debug: bool) -> int:  # noqa: ARG001
    """List the servers that you are logged in to."""
    if url is not None:
        check_server_url(url)

    async def run() -> int:
        with translate_errors():
            show_logins(await logins_at(url), as_json=as_json)
        return Status.OK

    return run_command(run)


async def logins_at(url: str | None) -> list[Login]:
    """Return the login at a server, or all of them. Raises `CommandError` if there is none at the server."""
    store = auth.TokenFiles()
    urls = await store.urls() if url is None else [canonical(over_http(url))]
    found = [login for each in urls if (login := await store.read(each)) is not None and login.has_tokens]
    if url is not None and not found:
        shown = shown_url(url)
        raise CommandError(f"there is no login at {shown}: trio-mcp login {shlex.quote(shown)}", Status.REFUSED)
    return found


def show_logins(logins: list[Login], *, as_json: bool) -> None:
    if as_json:
        show_json([as_object(login) for login in logins])
    elif logins:
        show_table(("server", "issuer", "scopes", "token expires"), [row_of(login) for login in logins])
    else:
        note("you are not logged in to any server")


def row_of(login: Login) -> tuple[str, str, str, str]:
    refreshed = " (refreshed then)" if login.tokens.refresh is not None else ""
    until = expiry_of(login) or "unknown"
    return shown_url(login.url), shown_url(login.server.issuer), login.tokens.scope or "", f"{until}{refreshed}"


def as_object(login: Login) -> dict[str, object]:
    return {
        "url": shown_url(login.url),
        "issuer": login.server.issuer,
        "client_id": login.registration.client_id,
        "scopes": (login.tokens.scope or "").split(),
        "expires_at": expiry_of(login),
        "refreshes": login.tokens.refresh is not None,
    }


def expiry_of(login: Login) -> str | None:
    """Return when the access token expires, as text; None if that is not known."""
    at = login.tokens.expires_at
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
