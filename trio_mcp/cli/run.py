"""`trio-mcp run`: serve the server of a file on stdin and stdout."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, Namespace

from .loading import load_server
from .output import log_to_stderr

EXAMPLES = """\
examples:
  trio-mcp run examples/travel.py
  trio-mcp run examples/travel.py:server

The server ends when stdin does, or on SIGTERM or SIGHUP. This is what the configuration of an MCP host starts.
"""


def describe(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE[:name]", help="a Python file, and which of its servers if it has several")
    parser.epilog = EXAMPLES


def execute(options: Namespace) -> int:
    log_to_stderr(logging.DEBUG if options.debug else logging.WARNING)
    load_server(options.file, tell_errors=options.debug).run()
    return 0
