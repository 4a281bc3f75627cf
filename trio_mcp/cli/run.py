"""`trio-mcp run`: serve the server of a file on stdin and stdout."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace

from ..errors import Disconnected
from .errors import CommandError, Status
from .loading import FILE_HELP, lifespan_errors, load_server
from .output import log_to_stderr

EXAMPLES = """\
examples:
  trio-mcp run examples/travel.py
  trio-mcp run examples/travel.py:server
  trio-mcp run app.py:make_server

The server ends when stdin does, or on SIGTERM or SIGHUP. This is what the configuration of an MCP host starts.
"""


def describe(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE[:name]", help=FILE_HELP)
    parser.epilog = EXAMPLES


def execute(options: Namespace) -> int:
    log_to_stderr(logging.DEBUG if options.debug else logging.WARNING)
    server = load_server(options.file, tell_errors=options.debug)
    try:
        with lifespan_errors(options.file):
            server.run()
    # Of a proxy, whose server has ended or cannot be started.
    except (Disconnected, OSError) as error:
        raise CommandError(f"{options.file}: {error}", Status.UNREACHABLE) from error
    return 0
