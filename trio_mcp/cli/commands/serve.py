"""`trio-mcp serve`: serve a server over HTTP and WebSocket."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce, wraps
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from ...http import Metrics, Tls
from ...server.running import run_process
from ...session import SharedServer, find_transport
from ...session.options import WORKPLACE
from ...stores.opening import VARIABLE as STORE_VARIABLE, has_namespaces
from ..arguments import Seconds, TargetText, UrlPath, WholeNumber, format_option, header_option, level_option
from ..command import CommandError, Status, command, http_errors
from ..protecting import check_one_resource, resource_of, verifier_of
from ..targets.loading import lifespan_errors, load_python
from ..targets.target import PythonTarget, Target, UrlTarget, read_target
from ..terminal.output import set_up_logging

BY_PATH: Final = re.compile(r"(?P<path>/[^=\s]*)=(?P<target>.+)", re.DOTALL)
METRICS_VARIABLE: Final = "TRIO_MCP_METRICS_TOKEN"
"""With the token of the metrics."""
KEYFILE_VARIABLE: Final = "TRIO_MCP_KEYFILE_PASSWORD"
"""Not an option: everybody on the machine reads the options of a process."""

EXAMPLES = """\
examples:
  trio-mcp serve travel.py
  trio-mcp serve travel.py --port 9000 --path /travel
  trio-mcp serve travel.py --sse
  trio-mcp serve travel.py --host 0.0.0.0 --allowed-host mcp.example.com
  trio-mcp serve travel.py --access-log --log-format json
  trio-mcp serve travel.py --resource https://mcp.example.com/mcp --auth jwt:https://login.example.com \\
      --required-scope travel:read --scope all
  trio-mcp serve travel.py --resource https://mcp.example.com/mcp --oauth-proxy github --client-id Iv1.0123456789abcdef \\
      --client-secret-file github-secret
  trio-mcp serve travel.py --port 8443 --certfile cert.pem --keyfile key.pem
  trio-mcp serve travel.py --store redis://cache:6379/0
  trio-mcp serve 'npx -y some-mcp-server'
  trio-mcp serve /travel=travel.py /shop=shop.py
  trio-mcp serve travel.py --workers 4

WebSocket clients find it under the same URL with ws:// in place of http://. Several servers in one process are each given a path:
the first one of the last example is at http://127.0.0.1:8000/travel/mcp.

It listens on this machine only, unless --host gives another address. Then --allowed-host must list the names under which
clients reach it, so that no other web site can. SIGTERM, SIGHUP or Ctrl-C ends it, with status 0, within about --drain seconds:
running calls may continue for 70% of that time, then they are cancelled and answered. SIGUSR1 writes to the log
which calls run, and what they wait for.
"""

STATUSES: Final[Mapping[int, str]] = {
    Status.OK: "SIGTERM, SIGHUP or Ctrl-C came",
    Status.BUG: "a bug in trio-mcp (--debug at the end of the command shows where), or it did not stop in time",
    130: "interrupted by Ctrl-C before it served",
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
            type=WholeNumber(0, 65535),
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
@click.argument("targets", nargs=-1, required=True, type=TargetText(), metavar="TARGET | /PATH=TARGET ...")
@serves_http
@click.option("--sse", is_flag=True, help="Serve HTTP+SSE as well, at /sse, for clients of 2024-11-05.")
@click.option(
    "--no-sessions",
    is_flag=True,
    help="Serve legacy clients without sessions, so that any of several processes can serve each request.",
)
@click.option(
    "--store",
    metavar="STORE",
    help="The store of servers that name none: a file, or the URL of Redis or PostgreSQL; by default that of TRIO_MCP_STORE.",
)
@click.option("--certfile", metavar="FILE", help="Serve HTTPS, with this certificate and those that it needs, in PEM.")
@click.option("--keyfile", metavar="FILE", help="The key of the certificate, if --certfile does not have it.")
@header_option
@click.option(
    "--resource",
    metavar="URL",
    help="Its public URL: only callers with an access token for it are served; needs --auth.",
)
@click.option(
    "--auth",
    metavar="jwt:ISSUER",
    help="The issuer of the access tokens, which are JWTs: the URL of an OAuth or OpenID provider; needs --resource.",
)
@click.option(
    "--oauth-proxy",
    "provider",
    metavar="github|google|entra:TENANT",
    help="Let users log in at this provider, in place of --auth; needs --resource, --client-id and --client-secret-file.",
)
@click.option("--client-id", metavar="ID", help="The id of this server at the provider of --oauth-proxy.")
@click.option(
    "--client-secret-file",
    "secret_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with its secret.",
)
@click.option(
    "--required-scope",
    "required",
    multiple=True,
    metavar="SCOPE",
    help="A scope that every access token needs; repeatable; needs --resource.",
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE|all",
    help="A scope that clients may ask for, or all that the file names; repeatable; needs --resource.",
)
@click.option("--root-path", metavar="PATH", help="The path prefix under which a proxy publishes it.")
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy, or a network of them, whose X-Forwarded-* headers are believed; repeatable.",
)
@click.option(
    "--workers",
    type=WholeNumber(1, 64),
    default=1,
    show_default=True,
    metavar="NUMBER",
    help="The number of processes that serve, one for each core.",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="Serve metrics for Prometheus at /metrics: to this machine, or to who has the token in TRIO_MCP_METRICS_TOKEN.",
)
@click.option("--access-log", is_flag=True, help="Log each HTTP request.")
@level_option
@format_option
def command_line(
    targets: Sequence[str],
    http: dict[str, object],
    sse: bool,
    certfile: str | None,
    keyfile: str | None,
    headers: Sequence[tuple[str, str]],
    resource: str | None,
    auth: str | None,
    provider: str | None,
    client_id: str | None,
    secret_file: Path | None,
    required: Sequence[str],
    scopes: Sequence[str],
    root_path: str | None,
    trusted_proxies: Sequence[str],
    workers: int,
    metrics: bool,
    access_log: bool,
    no_sessions: bool,
    store: str | None,
    log_level: str | None,
    log_format: str | None,
    debug: bool,
) -> int:
    """Serve one server or several over HTTP and WebSocket.

    TARGET is a Python file or a module (app.py, app.py:name, shop.server:name), where the name is that of a server or of a
    function that returns one; or a URL, a command in quotes, or a server of a file (mcp.json:name), which is passed on.

    The password of an encrypted key is taken from the variable TRIO_MCP_KEYFILE_PASSWORD.
    """
    # Requests are logged at "info": with a higher level the access log would be invisible.
    level = "info" if access_log and log_level is None and not debug else log_level
    set_up_logging(debug=debug, level=level, format=log_format)
    workplace = WORKPLACE.get()
    if workers > 1 and workplace is None:
        with http_errors():
            return serve_with_workers(targets, workers, http, sse=sse)
    # Off by default: the specification has deprecated it since 2025-03-26, and few clients still need it.
    options = {
        **http,
        "root_path": root_path,
        "trusted_proxies": trusted_proxies,
        "metrics": Metrics(token=os.environ.get(METRICS_VARIABLE) or None) if metrics else None,
        "access_log": access_log or None,
        "sessions": False if no_sessions else None,
        "sse_path": "/sse" if sse else None,
        "tls": tls_of(certfile, keyfile),
    }
    if workplace is not None:
        options["announce"] = workplace.announces
    by_path = paths_of(targets)
    use_store(store, len(by_path))
    with http_errors():
        verifier = verifier_of(auth, provider, client_id, secret_file)
        options["authenticate"] = resource_of(resource, verifier, required, scopes)
        if by_path:
            check_one_resource(resource)
            return serve_by_path(by_path, dict(headers), options, debug=debug)
        return serve_one(read_target(targets[0]), dict(headers), options, debug=debug)


def use_store(given: str | None, servers: int) -> None:
    """Let servers that name no store use this one. Raises `CommandError` if several would share a file."""
    if given is not None:
        os.environ[STORE_VARIABLE] = given
    store = os.environ.get(STORE_VARIABLE, "")
    if servers > 1 and store and not has_namespaces(store):
        raise CommandError(
            f"a file is the store of one server, and these are {servers}: name the URL of a database, or one file in each server "
            "as ServiceOptions(store=...)"
        )


def serve_with_workers(targets: Sequence[str], workers: int, http: Mapping[str, object], *, sse: bool) -> int:
    """Serve one server of a file in several processes; return the exit status.

    Raises:
        CommandError: it is not one server of a file, or is served over HTTP+SSE, too.
    """
    if sse:
        raise CommandError("--sse needs one worker: a message of HTTP+SSE comes on another connection than its stream")
    if paths_of(targets) or not isinstance(read_target(targets[0]), PythonTarget):
        raise CommandError(
            "--workers is for one server of a Python file: what a URL or a command names keeps a connection for each session, "
            "and several servers are several commands"
        )
    words: Sequence[str] = click.get_current_context().obj
    parent = import_module("..workers", __package__)
    return int(parent.serve_with_workers(words, workers, http["host"], http["port"], http["drain"]))


def tls_of(certfile: str | None, keyfile: str | None) -> Tls | None:
    """Return what the options say of TLS."""
    if certfile is None:
        if keyfile is not None:
            raise CommandError("--keyfile is the key of a certificate: give that with --certfile")
        return None
    return Tls(certfile, keyfile, os.environ.get(KEYFILE_VARIABLE))


def paths_of(targets: Sequence[str]) -> dict[str, str]:
    """Return the targets by their paths; empty for a single one without a path.

    Raises:
        CommandError: one of several has no path, or two have the same.
    """
    # The path of a file may begin with a slash, and contain `=`.
    found = [(text, BY_PATH.fullmatch(text) if not Path(text).exists() else None) for text in targets]
    if len(found) == 1 and found[0][1] is None:
        return {}
    by_path: dict[str, str] = {}
    for text, match in found:
        if match is None:
            name = Path(text.partition(":")[0]).stem or "name"
            raise CommandError(f"each of several servers needs a path: write /{name}={text}")
        if match["path"] in by_path:
            raise CommandError(f"{match['path']} is the path of two servers")
        by_path[match["path"]] = match["target"]
    return by_path


def serve_one(target: Target, headers: Mapping[str, str], options: Mapping[str, object], *, debug: bool) -> int:
    """Serve one server until a signal comes."""
    if not isinstance(target, PythonTarget):
        # The client is loaded only for this.
        return int(import_module("..targets.passing", __package__).pass_on("http", target, headers, options))
    with lifespan_errors(target.source):
        load_python(target, tell_errors=debug, served_open=is_open(options)).run("http", **options)
    return 0


def serve_by_path(
    targets: Mapping[str, str], headers: Mapping[str, str], options: Mapping[str, object], *, debug: bool
) -> int:
    """Serve several servers at one address until a signal comes."""
    read = {path: read_target(text) for path, text in targets.items()}
    if headers and not any(isinstance(target, UrlTarget) for target in read.values()):
        raise CommandError("--header is for the URL of a server, and none is named by one")
    sources = [target.source for target in read.values() if isinstance(target, PythonTarget)]
    served_open = is_open(options)
    servers = {path: server_of(target, headers, served_open, debug=debug) for path, target in read.items()}
    with lifespan_errors(*sources):
        run_process(partial(find_transport("http").serve, servers, **options))
    return 0


def is_open(options: Mapping[str, object]) -> bool:
    """Return whether the options authenticate no caller."""
    return options["authenticate"] is None


def server_of(target: Target, headers: Mapping[str, str], served_open: bool, *, debug: bool) -> SharedServer:
    """Return the server of a target: that of a file, or a proxy of one that is somewhere else."""
    if isinstance(target, PythonTarget):
        return load_python(target, tell_errors=debug, served_open=served_open)
    own = headers if isinstance(target, UrlTarget) else {}
    server: SharedServer = import_module("..targets.passing", __package__).proxied(target, own)
    return server
