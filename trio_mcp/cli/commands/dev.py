"""`trio-mcp dev`: serve a server, and reload its code when its files change."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import click
import trio
from click.core import ParameterSource

from ...base.groups import UnwrappedErrors
from ...server import Server
from ...server.replaceable import ReplaceableServer
from ...server.running import run_process
from ..arguments import format_option, level_option, target_argument
from ..command import CommandError, Status, command
from ..dev.file_watch import Restarts
from ..dev.first_load import FirstLoad
from ..dev.project_modules import ProjectModules
from ..dev.reloading import Reloader
from ..targets.loading import lifespan_errors, load_python, project_roots
from ..targets.target import PythonTarget, code_of, read_target
from ..terminal.output import note, set_up_logging
from .serve import HTTP_OPTIONS, STATUSES, http_errors, serves_http

# Opening the MCP Inspector, a program of the MCP project for browsers, which npx runs: `trio-mcp dev --inspector`.

PACKAGE: Final = "@modelcontextprotocol/inspector@2"
"""The versions whose options these are: a `--server-url` with its `--transport` and `--protocol-era`."""
OLDEST_NODE: Final = (22, 19)
ERAS: Final = ("auto", "modern", "legacy")
END_SECONDS: Final = 5.0

NO_NPX: Final = (
    "--inspector needs npx, which comes with Node.js 22.19 or newer (https://nodejs.org). Without it, leave --inspector out, and "
    "open the Inspector where there is Node.js, with the URL that is shown"
)


def inspector_command(npx: str, url: str, era: str, *, sse: bool = False) -> list[str]:
    """Return the command that opens the Inspector for a server.

    Args:
        npx: the program.
        url: of the server.
        era: "auto", "modern" or "legacy".
        sse: the URL is one of HTTP+SSE, which is of the legacy era.
    """
    spoken = (
        ["--transport", "sse", "--protocol-era", "legacy"] if sse else ["--transport", "http", "--protocol-era", era]
    )
    # Without -y npx asks at the terminal whether it may install the package.
    return [npx, "-y", PACKAGE, "--server-url", url, *spoken]


def find_npx() -> str:
    """Return npx. Raises `CommandError`, which says what to do, if there is none."""
    npx = shutil.which("npx")
    if npx is None:
        raise CommandError(NO_NPX, Status.UNREACHABLE)
    return npx


def outdated_node() -> str | None:
    """Return the version of Node.js if the Inspector does not run on it; None if it does, or the version is not known."""
    node = shutil.which("node")
    if node is None:
        return None
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=END_SECONDS)  # noqa: PLW1510, S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"v(\d+)\.(\d+)", done.stdout)
    return done.stdout.strip() if found is not None and (int(found[1]), int(found[2])) < OLDEST_NODE else None


async def run_inspector(command: Sequence[str]) -> int:
    """Run the Inspector until it ends; return its exit status. A cancel ends it, and what it has started."""
    # Its output is for the person at the terminal, as that of this command is.
    process = await trio.lowlevel.open_process(
        [*command], stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), start_new_session=True
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await end_group(process)  # noqa: ASYNC102  it has a shield and a time limit


async def end_group(process: trio.Process) -> None:
    """End a process and those that it has started."""
    with trio.CancelScope(shield=True):
        signal_group(process, signal.SIGTERM)
        with trio.move_on_after(END_SECONDS):
            await process.wait()
            return
        signal_group(process, signal.SIGKILL)
        await process.wait()


def signal_group(process: trio.Process, number: signal.Signals) -> None:
    # npx starts a shell, which starts the Inspector: a signal to npx alone would leave that behind.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


EXAMPLES = """\
examples:
  trio-mcp dev travel.py
  trio-mcp dev travel.py --inspector
  trio-mcp dev travel.py --inspector --era legacy
  trio-mcp dev app.py:make_server --port 9000
  trio-mcp dev shop.server --stdio
  trio-mcp dev cursor:shop

When the file, or a module of its project that it imports, is saved, it is imported afresh in the running process. Connections and
sessions stay, calls that run end with their old code, and clients are notified of lists that have changed. If the new code cannot
be imported, the old code stays, and the error is shown. A file that cannot be loaded at the start is loaded when it is saved.

It serves over HTTP and WebSocket, as 'trio-mcp serve' does. With --stdio it is for a host that starts it:

  {"mcpServers": {"travel": {"command": "trio-mcp", "args": ["dev", "/path/to/travel.py", "--stdio"]}}}

What the author's code raises unexpectedly is shown to clients, as with --debug of 'trio-mcp run'.
"""


@command("dev", EXAMPLES, STATUSES)
@target_argument
@click.option("--stdio", is_flag=True, help="Serve on stdin and stdout, for a host that starts this command.")
@click.option(
    "--inspector", is_flag=True, help="Open the MCP Inspector in a browser; needs npx, of Node.js 22.19 or newer."
)
@click.option(
    "--era", type=click.Choice(ERAS), default="auto", show_default=True, help="The era that the Inspector speaks."
)
@serves_http
@click.option("--sse", is_flag=True, help="Serve HTTP+SSE as well, at /sse, for clients of 2024-11-05.")
@click.option("--access-log", is_flag=True, help="Log each HTTP request.")
@level_option
@format_option
def command_line(
    target: str,
    stdio: bool,
    inspector: bool,
    era: str,
    http: dict[str, object],
    sse: bool,
    access_log: bool,
    log_level: str | None,
    log_format: str | None,
    debug: bool,
) -> int:
    """Serve a server, and reload its code when its files change.

    TARGET is a Python file or a module (app.py, app.py:name, shop.server:name), where the name is that of a server or of a
    function that returns one, which is called again at each reload; or a command in quotes or a server of a file (mcp.json:name)
    that starts one of these.
    """
    level = "info" if access_log and log_level is None and not debug else log_level
    set_up_logging(debug=debug, level=level, format=log_format)
    source = code_of(read_target(target))
    if source is None:
        raise CommandError("dev reloads Python code: name a Python file or module, or use 'trio-mcp serve'")
    if stdio:
        check_without_http()
    npx = find_npx() if inspector else None
    if inspector and (node := outdated_node()) is not None:
        tell(f"the Inspector needs Node.js 22.19 or newer, and this is {node}: it may not start", "yellow")
    modules = ProjectModules(project_roots(source.source))
    options = {} if stdio else {**http, "access_log": access_log or None, "sse_path": "/sse" if sse else None}
    modules.install()
    try:
        reloader = make_reloader(source, target, modules, has_host=stdio, debug=debug)
        if isinstance(reloader, int):
            return reloader
        session = DevSession(reloader, "stdio" if stdio else "http", options, npx, era)
        with http_errors(), lifespan_errors(source.source):
            run_process(session.run)
    finally:
        modules.uninstall()
    return 0


def check_without_http() -> None:
    """Raise `CommandError` if an option of HTTP was given with `--stdio`, which would have no effect."""
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        name = parameter.name or ""
        is_given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name in (*HTTP_OPTIONS, "inspector", "era", "sse", "access_log"):
            raise CommandError(f"{parameter.opts[0]} is for a server over HTTP: leave --stdio out")


def make_reloader(
    source: PythonTarget, name: str, modules: ProjectModules, *, has_host: bool, debug: bool
) -> Reloader | int:
    """Load a server, and return what serves and reloads it; the status of the command if that was ended before.

    Args:
        name: of the file or module, for the user.
        modules: load the modules of the project.
        has_host: stdin leads to a host.

    Raises:
        CommandError: there is no such module, or it has a proxy.
    """
    load = partial(load_python, source, tell_errors=True, loader=modules.loader)
    restarts = Restarts(modules.extensions)
    first = FirstLoad(name, source.source, modules, restarts, load, tell, debug)
    server = first.run(has_host=has_host)
    if server is None:
        # As the transport does it.
        return 128 + first.signal if has_host and first.signal == signal.SIGINT else Status.OK
    if not isinstance(server, Server):
        kind = type(server).__name__
        raise CommandError(f"{name} has a {kind}, which offers what the server behind it does: use 'trio-mcp serve'")
    return Reloader(name, ReplaceableServer(server), modules, restarts, load, tell, debug=debug)


class DevSession:
    """Serves a server, reloads it, and runs the Inspector; until the server ends.

    Args:
        options: of the transport.
        npx: the program that runs the Inspector; None without it.
        era: that the Inspector speaks.
    """

    def __init__(
        self, reloader: Reloader, transport: str, options: Mapping[str, object], npx: str | None, era: str
    ) -> None:
        self._reloader = reloader
        self._transport = transport
        self._options = options
        self._npx = npx
        self._era = era

    async def run(self) -> None:
        """Run all of it. Raises what `ReplaceableServer.serve` raises."""
        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._reloader.run)
                if self._transport == "stdio":
                    await self._serve()
                    nursery.cancel_scope.cancel()
                else:
                    urls = await nursery.start(self._serve_until_end, nursery.cancel_scope)
                    if self._npx is not None:
                        nursery.start_soon(self._inspect, self._npx, urls)

    async def _serve(self, **more: object) -> None:
        await self._reloader.server.serve(self._transport, **self._options, **more)

    async def _serve_until_end(self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[list[str]]) -> None:
        await self._serve(task_status=task_status)
        # What else runs does so for the server.
        scope.cancel()

    async def _inspect(self, npx: str, urls: Sequence[str]) -> None:
        http = self._reloader.server.http
        # A file may switch Streamable HTTP off; then the URLs are those of HTTP+SSE.
        is_sse = http is not None and http.path is None and "path" not in self._options
        line = inspector_command(npx, urls[0], self._era, sse=is_sse)
        tell(f"opening the Inspector: {shlex.join(line)}", "green")
        status = await run_inspector(line)
        # Ended by its user or by itself; the server goes on for other clients.
        tell(f"the Inspector has ended, with status {status}; the server goes on", "yellow")


def tell(text: str, colour: str) -> None:
    """Show lines to the user, on stderr."""
    for number, line in enumerate(text.split("\n")):
        note(line if number else f"trio-mcp dev: {line}", colour=colour)
