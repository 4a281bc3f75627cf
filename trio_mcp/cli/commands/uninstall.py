"""`trio-mcp uninstall`: remove a server from the configuration of a host."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from ..command import CommandError, command
from ..hosts import HOSTS, Host, read_for_change, without_server
from .install import changes_file, host_argument, make

EXAMPLES = f"""\
examples:
  trio-mcp uninstall claude-code shop
  trio-mcp uninstall vscode shop --project --dry-run
  trio-mcp uninstall mcp-json shop --yes

HOST is {", ".join(HOSTS)}. The change is shown before it is written, and the old file is kept.
"""


@command("uninstall", EXAMPLES)
@host_argument
@click.argument("name", metavar="NAME")
@changes_file
def command_line(
    host: Host,
    path: Path,
    name: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    debug: bool,  # noqa: ARG001
) -> int:
    """Remove a server from the configuration of a host.

    NAME is its name in the file, which `trio-mcp discover` shows.
    """
    file = read_for_change(path, host)
    if name not in file.servers:
        close = difflib.get_close_matches(name, file.servers, 1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(file.servers) or 'none'}"
        raise CommandError(f"{file.path} has no server {name!r}{hint}")
    advice = f"{host.title} may have to be started again to notice."
    return make(without_server(file, name), advice, dry_run=dry_run, yes=yes, as_json=as_json)
