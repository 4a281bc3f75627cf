"""`trio-mcp dev`: serve a server, and reload its code when its files change."""

from __future__ import annotations

import os
import re
import secrets
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from socket import socket
from typing import Final, cast

import click
import trio
from click.core import ParameterSource

from ...base.groups import UnwrappedErrors
from ...server.running import run_process
from ...session.transport import ListeningTransport, find_transport
from ..arguments import format_option, level_option, target_argument
from ..command import CommandError, Status, command, http_errors
from ..dev.child import CONTROL, serve_child
from ..dev.control import Serving
from ..dev.parent import DevParent
from ..targets.loading import lifespan_errors
from ..targets.target import PythonTarget, code_of, read_target
from ..terminal.output import note, set_up_logging
from ..worker_folder import worker_folder
from ..workers import END_SIGNALS
from .serve import HTTP_OPTIONS, STATUSES, serves_http

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
    if sys.platform == "win32":
        raise NotImplementedError
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
    if sys.platform == "win32":
        raise NotImplementedError
    with trio.CancelScope(shield=True):
        signal_group(process, signal.SIGTERM)
        with trio.move_on_after(END_SECONDS):
            await process.wait()
            return
        signal_group(process, signal.SIGKILL)
        await process.wait()


def signal_group(process: trio.Process, number: signal.Signals) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
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

When the file, or a module of its project that it imports, is saved, another process loads it, and serves in place of the first.
Sessions stay, calls that run end with their old code, and clients are notified of lists that have changed. If the new code cannot
be loaded, the old code stays, and the error is shown. A file that cannot be loaded at the start is loaded when it is saved.

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
    control = CONTROL.get()
    if control is not None:
        assert control.begin is not None
        given = {"access_log": access_log or None, "sse_path": "/sse" if sse else None}
        return serve_child(control, source, {**http, **given, "announce": control.begin.announces}, debug=debug)
    if stdio:
        check_without_http()
        session = StdioSession(target, source)
        with worker_folder() as folder, lifespan_errors(source.source):
            run_process(partial(session.run, folder))
        return session.status
    npx = find_npx() if inspector else None
    if inspector and (node := outdated_node()) is not None:
        tell(f"the Inspector needs Node.js 22.19 or newer, and this is {node}: it may not start", "yellow")
    over_http = DevSession(target, source, http, npx, era)
    with http_errors(), worker_folder() as folder:
        return trio.run(over_http.run, folder)


def check_without_http() -> None:
    """Raise `CommandError` if an option of HTTP was given with `--stdio`, which would have no effect."""
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        name = parameter.name or ""
        is_given = ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if is_given and name in (*HTTP_OPTIONS, "inspector", "era", "sse", "access_log"):
            raise CommandError(f"{parameter.opts[0]} is for a server over HTTP: leave --stdio out")


class StdioSession:
    """Serves a host on stdin and stdout: passes on to a server over HTTP, which only this process reaches, and which is replaced.

    Args:
        target: as the user wrote it.

    Attributes:
        status: the exit status.
    """

    def __init__(self, target: str, source: PythonTarget) -> None:
        self._target = target
        self._source = source
        self._serves = trio.Event()
        self.status = int(Status.OK)

    async def run(self, folder: Path) -> None:
        """Serve until the host leaves, or a signal comes. Raises what `DevParent.run` raises."""
        words: Sequence[str] = click.get_current_context().obj
        # Other users of this machine could connect to the port, and do not know the path.
        path = f"/{secrets.token_urlsafe(32)}"
        numbers = [each for each in END_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        waits = may_hang_up(sys.stdin.fileno())
        with trio.open_signal_receiver(*numbers) as signals, UnwrappedErrors():
            sockets = await bind_loopback()
            url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}{path}"
            parent = DevParent(
                *(words, self._target, self._source.source, sockets, folder, STDIO_DRAIN, tell),
                path=path,
                waits=waits,
                on_serving=lambda _serving: self._serves.set(),
            )
            for sock in sockets:
                sock.close()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, parent, url, waits)
                await parent.run(signals)
                nursery.cancel_scope.cancel()
        if not self._serves.is_set() and parent.number == signal.SIGINT:
            # As the transport does it.
            self.status = 128 + signal.SIGINT

    async def _pass_on(self, parent: DevParent, url: str, watches: bool) -> None:
        if watches:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop_with_host, sys.stdin.fileno(), parent)
                await self._serves.wait()
                nursery.cancel_scope.cancel()
        else:
            await self._serves.wait()
        try:
            # The client is loaded only for this.
            relay = import_module("...relay", __package__)
            reach_directly("127.0.0.1")
            await relay.proxy(url, name=self._target).serve("stdio")
        except SystemExit as error:
            # A signal has ended it. Not raised in a nursery, which would wrap it in a group.
            self.status = error.code if isinstance(error.code, int) else Status.BUG
        parent.stop()


def reach_directly(host: str) -> None:
    """Have this process connect to a host without the proxy that the environment may name."""
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join([*filter(None, [os.environ.get(name)]), host])


async def bind_loopback() -> Sequence[socket]:
    """Return a socket that listens on a free port of this machine."""
    return await cast("ListeningTransport", find_transport("http")).listen("127.0.0.1", 0)


STDIO_DRAIN: Final = 5.0
"""Seconds that calls have at the end of the host; it has left by then."""
HUNG_UP: Final[int] = getattr(select, "POLLHUP", 0) | getattr(select, "POLLERR", 0) | getattr(select, "POLLRDHUP", 0)
STDIN_SECONDS: Final = 0.5
"""How often is looked whether the host has left."""


def may_hang_up(descriptor: int) -> bool:
    """Return whether the end of what leads here can be noticed without reading it."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


async def stop_with_host(descriptor: int, parent: DevParent) -> None:
    """End the command when the other end has been closed. What it has sent stays to be read."""
    if sys.platform == "win32":
        raise NotImplementedError
    poll = select.poll()
    poll.register(descriptor, HUNG_UP)
    while not poll.poll(0):  # noqa: ASYNC110  to wait for it in Trio would return for what it has sent
        await trio.sleep(STDIN_SECONDS)
    parent.stop()


class DevSession:
    """Serves a server over HTTP by children that are replaced, and runs the Inspector; until the command ends.

    Args:
        target: as the user wrote it.
        http: the options of serving.
        npx: the program that runs the Inspector; None without it.
        era: that the Inspector speaks.
    """

    def __init__(
        self, target: str, source: PythonTarget, http: Mapping[str, object], npx: str | None, era: str
    ) -> None:
        self._target = target
        self._source = source
        self._http = http
        self._npx = npx
        self._era = era
        self._serving: Serving | None = None
        self._serves = trio.Event()

    async def run(self, folder: Path) -> int:
        """Run all of it, and return the exit status. Raises what `DevParent.run` raises, and `OSError`."""
        words: Sequence[str] = click.get_current_context().obj
        numbers = [each for each in END_SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
        host, port, drain = str(self._http["host"]), cast("int", self._http["port"]), cast("float", self._http["drain"])
        with trio.open_signal_receiver(*numbers) as signals, UnwrappedErrors():
            sockets = await cast("ListeningTransport", find_transport("http")).listen(host, port)
            parent = DevParent(
                words, self._target, self._source.source, sockets, folder, drain, tell, on_serving=self._on_serving
            )
            for sock in sockets:
                sock.close()
            async with trio.open_nursery() as nursery:
                if self._npx is not None:
                    nursery.start_soon(self._inspect, self._npx)
                status = await parent.run(signals)
                nursery.cancel_scope.cancel()
        return status

    def _on_serving(self, serving: Serving) -> None:
        self._serving = serving
        self._serves.set()

    async def _inspect(self, npx: str) -> None:
        await self._serves.wait()
        assert self._serving is not None
        # A file may switch Streamable HTTP off; then the URLs are those of HTTP+SSE.
        is_sse = self._serving.is_sse and "path" not in self._http
        line = inspector_command(npx, self._serving.urls[0], self._era, sse=is_sse)
        tell(f"opening the Inspector: {shlex.join(line)}", "green")
        status = await run_inspector(line)
        # Ended by its user or by itself; the server goes on for other clients.
        tell(f"the Inspector has ended, with status {status}; the server goes on", "yellow")


def tell(text: str, colour: str) -> None:
    """Show lines to the user, on stderr."""
    for number, line in enumerate(text.split("\n")):
        note(line if number else f"trio-mcp dev: {line}", colour=colour)
