"""`trio-mcp serve`: serve a server over HTTP and WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce, wraps
from importlib import import_module
from typing import Final

import click

from ..errors import ConfigurationError
from .command import command
from .errors import CommandError, Status
from .loading import lifespan_errors, load_python
from .options import format_option, header_option, level_option, target_argument
from .output import set_up_logging
from .parameters import Seconds, UrlPath
from .targets import PythonTarget, read_target

EXAMPLES = """\
examples:
  trio-mcp serve examples/travel.py
  trio-mcp serve examples/travel.py --port 9000 --path /travel
  trio-mcp serve examples/travel.py --sse
  trio-mcp serve examples/travel.py --host 0.0.0.0 --allowed-host mcp.example.com
  trio-mcp serve examples/travel.py --access-log --log-format json
  trio-mcp serve 'npx -y some-mcp-server'

WebSocket clients find it under the same URL with ws:// in place of http://.

It listens on this machine only, unless --host gives another address. Then --allowed-host must list the names under which
clients reach it, so that no other web site can. SIGTERM, SIGHUP or Ctrl-C ends it, with status 0, within about --drain seconds:
running calls may continue for 70% of that time, then they are cancelled and answered.
"""

STATUSES: Final[Mapping[int, str]] = {
    Status.OK: "SIGTERM, SIGHUP or Ctrl-C came",
    Status.BUG: "a bug in trio-mcp (--debug shows where), or it did not stop in time",
}
HTTP_OPTIONS: Final = ("host", "port", "path", "allowed_hosts", "allowed_origins", "drain")
"""The names of the options that `serves_http` adds, which are those of the transport."""


def serves_http(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of a server over HTTP; it is passed a dict of them as `http`."""

    @wraps(function)
    def serving(**options: object) -> int:
        # What is not given is as the file has it.
        given = {name: options.pop(name) for name in HTTP_OPTIONS}
        http = {name: value for name, value in given.items() if value is not None}
        return function(http=http, **options)

    added = [
        click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=8000,
            show_default=True,
            metavar="PORT",
            help="The port; 0 takes a free one.",
        ),
        click.option(
            "--path",
            type=UrlPath(),
            metavar="PATH",
            help="The path of the endpoint; by default that of the file, or else /mcp.",
        ),
        click.option(
            "--allowed-host",
            "allowed_hosts",
            multiple=True,
            metavar="NAME",
            help="A name it is reached by; repeatable.",
        ),
        click.option(
            "--allowed-origin",
            "allowed_origins",
            multiple=True,
            metavar="URL",
            help="A web site that may call it; repeatable.",
        ),
        click.option(
            "--drain",
            type=Seconds(),
            default=10.0,
            show_default=True,
            metavar="SECONDS",
            help="The time that a shutdown may take.",
        ),
    ]
    return reduce(lambda made, decorator: decorator(made), reversed(added), serving)


@command(
    "serve",
    EXAMPLES,
    STATUSES,
)
@target_argument
@serves_http
@click.option("--sse", is_flag=True, help="Serve HTTP+SSE as well, at /sse, for clients of 2024-11-05.")
@header_option
@click.option("--root-path", metavar="PATH", help="The path prefix under which a proxy publishes it.")
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy, or a network of them, whose X-Forwarded-* headers are believed; repeatable.",
)
@click.option("--access-log", is_flag=True, help="Log each HTTP request.")
@level_option
@format_option
def command_line(
    target: str,
    http: dict[str, object],
    sse: bool,
    headers: Sequence[tuple[str, str]],
    root_path: str | None,
    trusted_proxies: Sequence[str],
    access_log: bool,
    log_level: str | None,
    log_format: str | None,
    debug: bool,
) -> int:
    """Serve a server over HTTP and WebSocket.

    TARGET is a Python file or a module (app.py, app.py:name, shop.server:name), where the name is that of a server or of a
    function that returns one; or a URL, a command in quotes, or a server of a file (mcp.json:name), which is passed on.
    """
    # An access log that nobody sees is of no use.
    level = "info" if access_log and log_level is None and not debug else log_level
    set_up_logging(debug=debug, level=level, format=log_format)
    server = read_target(target)
    # Off by default: the specification has deprecated it since 2025-03-26, and few clients still need it.
    given = {"root_path": root_path, "trusted_proxies": trusted_proxies, "access_log": access_log or None}
    options = {**http, **given, "sse_path": "/sse" if sse else None}
    with http_errors():
        if not isinstance(server, PythonTarget):
            # The client is loaded only for this.
            return int(import_module(".passing", __package__).pass_on("http", server, dict(headers), options))
        with lifespan_errors(server.source):
            load_python(server, tell_errors=debug).run("http", **options)
    return 0


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
