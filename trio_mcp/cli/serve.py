"""`trio-mcp serve`: serve the server of a file over HTTP and WebSocket."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Generator
from contextlib import contextmanager

from ..errors import ConfigurationError
from .errors import CommandError, Status
from .loading import FILE_HELP, lifespan_errors, load_server
from .numbers import port, seconds
from .output import log_to_stderr

EXAMPLES = """\
examples:
  trio-mcp serve examples/travel.py
  trio-mcp serve examples/travel.py --port 9000 --path /travel
  trio-mcp serve examples/travel.py --sse
  trio-mcp serve examples/travel.py --host 0.0.0.0 --allowed-host mcp.example.com

WebSocket clients find it under the same URL with ws:// in place of http://.

It listens on this machine only, unless --host gives another address. Then --allowed-host must list the names under which
clients reach it, so that no other web site can. SIGTERM, SIGHUP or Ctrl-C ends it, with status 0, within about --drain seconds:
running calls may continue for 70% of that time, then they are cancelled and answered.
"""


def describe(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE[:name]", help=FILE_HELP)
    describe_http(parser)
    add("--sse", action="store_true", help="serve HTTP+SSE as well, at /sse, for clients of 2024-11-05")
    parser.epilog = EXAMPLES


def describe_http(parser: ArgumentParser) -> None:
    """Add the options of a command that serves over HTTP."""
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=port, default=8000, help="port; 0 takes a free one (default: %(default)s)")
    add("--path", type=path, default=None, help="path of the endpoint (default: that of the server, or else /mcp)")
    add("--allowed-host", action="append", default=[], metavar="NAME", help="a name it is reached by; repeatable")
    add("--allowed-origin", action="append", default=[], metavar="URL", help="a web site that may call it; repeatable")
    add("--drain", type=seconds, default=10.0, metavar="SECONDS", help="time for a shutdown (default: %(default)g)")


def execute(options: Namespace) -> int:
    log_to_stderr(logging.DEBUG if options.debug else logging.WARNING)
    server = load_server(options.file, tell_errors=options.debug)
    # Off by default: the specification has deprecated it since 2025-03-26, and few clients still need it.
    sse_path = "/sse" if options.sse else None
    with http_errors(), lifespan_errors(options.file):
        server.run("http", sse_path=sse_path, **http_options(options))
    return 0


def http_options(options: Namespace) -> dict[str, object]:
    """Return what the options say to the transport."""
    # What is not given is as the file has it.
    given = {} if options.path is None else {"path": options.path}
    return {
        **given,
        "host": options.host,
        "port": options.port,
        "allowed_hosts": options.allowed_host,
        "allowed_origins": options.allowed_origin,
        "drain": options.drain,
    }


@contextmanager
def http_errors() -> Generator[None]:
    """Raise `CommandError`, with a text for the user, for a server that cannot listen."""
    try:
        yield
    except OSError as error:
        raise CommandError(error.strerror or str(error), Status.UNREACHABLE) from error
    except ConfigurationError:
        raise
    # A path that cannot be served, or an address on the network without --allowed-host. `ConfigurationError` is a `ValueError`
    # too, but is not about the command line.
    except ValueError as error:
        # The transport names its own argument; a user of the command knows only the option.
        how = "; give them with --allowed-host NAME" if "allowed_hosts" in str(error) else ""
        raise CommandError(f"{error}{how}") from error


def path(text: str) -> str:
    if not text.startswith("/"):
        raise ArgumentTypeError(f"{text!r} does not begin with a slash")
    return text
