"""`trio-mcp logout`: end a login."""

from __future__ import annotations

import click

from ... import auth
from ...auth.client.logins import log_out
from ...base.values import shown_url
from ..arguments import json_option
from ..command import CommandError, Status, command, run_command, translate_errors
from ..targets.logins import LoginUrl, check_server_url
from ..terminal.output import log_to_stderr, note, show_json

EXAMPLES = """\
examples:
  trio-mcp logout https://mcp.example.com/mcp

The tokens are revoked at the authorization server, and deleted here. They are also deleted if they cannot be revoked, with a
warning: then they stay valid until they expire.
"""


@command("logout", EXAMPLES, {Status.REFUSED: "there is no login at the server"})
@click.argument("url", type=LoginUrl(), metavar="URL")
@json_option
def command_line(url: str, as_json: bool, debug: bool) -> int:
    """Revoke and delete the tokens for a server."""
    log_to_stderr(10 if debug else 30)
    check_server_url(url)
    store = auth.TokenFiles()
    if not store.has(url):
        raise CommandError(f"there is no login at {shown_url(url)}", Status.REFUSED)

    async def run() -> int:
        with translate_errors():
            failure = await log_out(store, url)
        if failure is not None:
            note(f"trio-mcp: warning: the tokens were not revoked: {failure}")
        note(f"logged out of {shown_url(url)}")
        if as_json:
            show_json({"url": shown_url(url), "revoked": failure is None})
        return Status.OK

    return run_command(run)
