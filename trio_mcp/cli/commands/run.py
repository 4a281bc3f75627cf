"""`trio-mcp run`: serve a server on stdin and stdout."""

from __future__ import annotations

from importlib import import_module

import click

from ...errors import Disconnected
from ..arguments import Seconds, format_option, header_option, level_option, target_argument
from ..command import CommandError, Status, command
from ..targets.loading import lifespan_errors, load_python
from ..targets.target import PythonTarget, read_target
from ..terminal.output import set_up_logging

EXAMPLES = """\
examples:
  trio-mcp run travel.py
  trio-mcp run travel.py:server
  trio-mcp run app.py:make_server
  trio-mcp run shop.server
  trio-mcp run https://mcp.example.com/mcp
  trio-mcp run https://mcp.example.com/mcp --header authorization='Bearer ...'
  trio-mcp run mcp.json:shop

The server ends when stdin does, after --drain seconds at most, or on SIGTERM or SIGHUP. This is what the configuration of an MCP
host starts. A server that is named by a URL, a command or the file of a host is passed on, in both eras: so a host that only
starts commands reaches a URL. There it uses the login of `trio-mcp login URL`.
"""


@command(
    "run",
    EXAMPLES,
    {Status.OK: "the host has left, or SIGTERM or SIGHUP came", Status.TOOL_ERROR: "it did not stop in time"},
)
@target_argument
@click.option("--check-open", is_flag=True, hidden=True)
@header_option
@click.option(
    "--drain",
    type=Seconds(),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that requests have to end, and be answered, after the end of stdin.",
)
@level_option
@format_option
def command_line(
    target: str,
    check_open: bool,
    headers: tuple[tuple[str, str], ...],
    drain: float,
    log_level: str | None,
    log_format: str | None,
    debug: bool,
) -> int:
    """Serve a server on stdin and stdout.

    TARGET is a Python file or a module (app.py, app.py:name, shop.server:name), where the name is that of a server or of a
    function that returns one; or a URL, a command in quotes, or a server of a file (mcp.json:name).
    """
    set_up_logging(debug=debug, level=log_level, format=log_format)
    server = read_target(target)
    if check_open:
        return int(import_module("..targets.passing", __package__).check(server, dict(headers)))
    if not isinstance(server, PythonTarget):
        # The client is loaded only for this: a host waits for the start of a server.
        return int(
            import_module("..targets.passing", __package__).pass_on("stdio", server, dict(headers), {"drain": drain})
        )
    try:
        with lifespan_errors(server.source):
            load_python(server, tell_errors=debug).run("stdio", drain=drain)
    # Of a proxy, whose server has ended or cannot be started.
    except (Disconnected, OSError) as error:
        raise CommandError(f"{server.source}: {error}", Status.UNREACHABLE) from error
    return 0
