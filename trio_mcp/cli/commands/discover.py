"""`trio-mcp discover`: list the servers in the configurations of hosts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import click

from ...base.masking import MASK, masked, masked_url
from ...base.named_tuples import NamedTuple
from ...mcp_json import CommandServer, HostServer
from ..arguments import json_option
from ..command import CommandError, Status, command
from ..hosts import HOSTS, Host, Location, read_entries
from ..terminal.output import note, show_json, show_table

EXAMPLES = """\
examples:
  trio-mcp discover
  trio-mcp discover --host cursor --host vscode
  trio-mcp discover --json

What it lists can be named in other commands as HOST:NAME, such as `trio-mcp list cursor:shop`. It starts none of the servers, and
shows no values of variables and headers, and a mask in place of what looks like a secret in a command or a URL.
"""


class Found(NamedTuple):
    """A server in a file of a host."""

    host: Host
    location: Location
    server: HostServer
    enabled: bool

    @property
    def how(self) -> str:
        """Its command or its URL, without secrets."""
        if isinstance(self.server, CommandServer):
            return shlex.join(masked(self.server.command)).replace(f"'{MASK}'", MASK)
        return masked_url(self.server.url)


@command("discover", EXAMPLES)
@click.option("--host", "names", multiple=True, type=click.Choice(list(HOSTS)), metavar="HOST", help="Look there only.")
@json_option
def command_line(names: Sequence[str], as_json: bool, debug: bool) -> int:  # noqa: ARG001
    """List the servers in the configurations of hosts, for all folders and for the current one."""
    found = [each for name in names or HOSTS for each in servers_of(HOSTS[name])]
    if as_json:
        show_json([as_object(each) for each in found])
    elif found:
        show_table(("host", "scope", "name", "server"), [row_of(each) for each in found])
    else:
        note("no servers were found")
    return Status.OK


def servers_of(host: Host) -> Iterator[Found]:
    """Yield the servers of a host; a file that cannot be read is named on stderr."""
    for location in host.files():
        if location.path.exists():
            try:
                entries = read_entries(location.path, host)
            except CommandError as error:
                note(f"trio-mcp: {error}")
                continue
            for entry in entries:
                # Entries that are not servers are left out: goose lists its built-in extensions here, too.
                if entry.server is not None:
                    yield Found(host, location, entry.server, entry.enabled)


def row_of(found: Found) -> Sequence[str]:
    how = found.how if found.enabled else f"{found.how} (disabled)"
    return (found.host.name, found.location.scope, found.server.name, how)


def as_object(found: Found) -> dict[str, object]:
    server = found.server
    own = {"env": [*server.env]} if isinstance(server, CommandServer) else {"headers": [*server.headers]}
    return {
        "host": found.host.name,
        "scope": found.location.scope,
        "file": str(found.location.path),
        "name": server.name,
        "server": found.how,
        "enabled": found.enabled,
        **own,
    }
