"""The client that a command uses: connecting to a target, answering its questions, and limiting the whole."""

from __future__ import annotations

import codecs
import io
import logging
import math
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial, reduce, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import trio

from ..base.values import shown_url
from ..client import Client
from ..protocol.revisions import REVISIONS, Era
from ..session.calls.services import ONE_CLIENT
from .arguments import MODES, Pair, Seconds, header_option, target_argument
from .command import CommandError, Status, run_command, translate_errors
from .targets.logins import login_for
from .targets.target import CommandTarget, PythonTarget, Target, UrlTarget, read_target, target_texts
from .terminal.messages import show_log
from .terminal.output import PrintableFormatter, log_to_stderr, note
from .terminal.prompting import Prompting, Terminal

# The stderr of a server that the command starts: on a terminal it is shown without control characters.

# A child usually writes to the stderr of its parent directly, and its escape sequences then reach the terminal. So it gets a pipe
# there, which a task copies. Into a file or a pipe go the bytes as they are: a program reads them, and no terminal.


LINGER: Final = 0.5
"""Seconds for the rest of what the child wrote; a process that outlives it may keep the pipe open."""


@asynccontextmanager
async def printable_stderr() -> AsyncIterator[int | None]:
    """Yield the descriptor that a child process gets as its stderr; None for that of this process, if it is not a terminal.

    Leave the block when the child has ended. What it wrote is shown by then.
    """
    if sys.platform == "win32" or not sys.stderr.isatty():
        yield None
        return
    reading, writing = os.pipe()
    copied = trio.Event()
    async with trio.lowlevel.FdStream(reading) as pipe, trio.open_nursery() as nursery:
        nursery.start_soon(copy, pipe, copied)
        try:
            yield writing
        finally:
            os.close(writing)
            with trio.move_on_after(LINGER, shield=True):
                await copied.wait()
            nursery.cancel_scope.cancel()


async def copy(pipe: trio.abc.ReceiveStream, copied: trio.Event) -> None:
    """Write what comes from the pipe to stderr, until its end; the last line is completed."""
    # It also replaces carriage returns, by line breaks: a line must not overwrite the one before it.
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    text = "\n"
    try:
        # One chunk at a time: a server that writes without an end waits for the terminal.
        async for chunk in pipe:
            if shown := decoder.decode(bytes(chunk)):
                text = shown
                note(text, end="")
        if shown := decoder.decode(b"", final=True):
            text = shown
            note(text, end="")
    finally:
        # Also when this task is cancelled: what the command writes next begins a line.
        if not text.endswith("\n"):
            note("")
        copied.set()


GIVE_HEADER: Final = "give --header authorization='Bearer ...'"
LOGIN: Final = "trio-mcp login"
"""What the error suggests for a server that requires a login."""
Use = Callable[[Client, Prompting], Awaitable[int]]
"""What a command does with a connected client; returns the exit status."""


def use_server(connecting: Connecting, answering: Answering, use: Use, *, late: str = "") -> int:
    """Connect to a server, do something with it, and return the exit status.

    Args:
        late: what is added to the error if the time is up.

    Raises:
        CommandError: one of these steps failed.
    """
    configure_log(connecting.debug)
    prompting = Prompting(Terminal(), answering.answers, answering.samples)

    async def run() -> int:
        # Around the connection too: starting a server, the handshake and closing may each hang.
        with trio.move_on_after(connecting.timeout):
            async with printable_stderr() as stderr:
                # Inside, where the errors are not yet in the group of a nursery.
                with target_errors(connecting.target):
                    async with client_for(connecting, answering, prompting, stderr) as client:
                        name_server(client, prompting)
                        return await use(client, prompting)
        raise CommandError(f"timed out after {connecting.timeout:g} seconds{late}", Status.REFUSED)

    return run_command(run)


@contextmanager
def target_errors(target: Target) -> Generator[None]:
    """Raise `CommandError` for what goes wrong with a target; see `translate_errors`."""
    if isinstance(target, UrlTarget):
        check_certificates()
        failed = f"{shown_url(target.url)} cannot be connected to"
    else:
        failed = "the server could not be started"
    try:
        with translate_errors(starts_file=isinstance(target, PythonTarget), failed=failed):
            yield
    except CommandError as error:
        advice = advice_for(target, str(error))
        if advice is None:
            raise
        raise CommandError(f"{error}; {advice}", error.status) from error


def advice_for(target: Target, text: str) -> str | None:
    """Return what to do about an error of a server at a URL, if it is one that users meet often."""
    if not isinstance(target, UrlTarget):
        return None
    if "--allowed-host" in text or "HTTP 421" in text:
        return f"start it with --allowed-host {urlsplit(target.url).hostname}"
    if LOGIN in text:
        return f"or {GIVE_HEADER}"
    if wants_credentials(target, text):
        return GIVE_HEADER
    return f"{GIVE_HEADER}, if it authenticates its callers" if "HTTP 403" in text else None


def wants_credentials(target: Target, text: str) -> bool:
    """Return whether an error is a 401: one without a JSON-RPC error shows its status, and ours names the header."""
    words = ("HTTP 401", "Authorization header", LOGIN)
    return isinstance(target, UrlTarget) and any(each in text for each in words)


def check_certificates() -> None:
    """Raise `CommandError` if the file of certificates that the environment names cannot be read."""
    # The system's error does not name it.
    path = os.environ.get("SSL_CERT_FILE")
    if path and not (os.path.isfile(path) and os.access(path, os.R_OK)):
        why = "is not a regular file that can be read" if os.path.exists(path) else "does not exist"
        raise CommandError(f"SSL_CERT_FILE names {path}, which {why}", Status.UNREACHABLE)


def client_for(connecting: Connecting, answering: Answering, prompting: Prompting, stderr: int | None = None) -> Client:
    """Return a client for the target; entering it opens the connection.

    Args:
        stderr: where the stderr of a server that is started goes, as for `subprocess.Popen`.
    """
    # A file is served by this package, which speaks both eras: if it ends at once, it is not started again for the other one.
    is_ours = isinstance(connecting.target, PythonTarget) and connecting.mode == "auto"
    connect = partial(
        Client.connect,
        on_elicit=prompting.elicit,
        # A handler declares the capability, and a tool should learn that there is no model before it asks.
        on_sample=prompting.sample if prompting.samples else None,
        on_roots=partial(list, map(Path, answering.roots)) if answering.roots else None,
        on_log=show_log,
        mode="modern" if is_ours else connecting.mode,
        name="trio-mcp",
        version=version("trio-mcp"),
    )
    target = connecting.target
    if isinstance(target, UrlTarget):
        try:
            headers, login = {**target.headers, **connecting.headers}, login_for(target, connecting.headers)
            return connect(target.url, headers=headers, auth=login)
        # A URL without a host, or a header that no request can have.
        except (ValueError, TypeError) as error:
            raise CommandError(str(error)) from error
    if isinstance(target, PythonTarget):
        target = started(target, debug=connecting.debug)
    # A command gets the whole environment, and not only the safe part that a host would pass on: the user who wrote the command
    # could have run it in this shell. No keys that it does not have: a store would be sealed with them for good.
    env = {**os.environ, ONE_CLIENT: "1", **target.env}
    return connect(target.words, env=env, cwd=target.cwd, stderr=stderr)


def started(target: PythonTarget, *, debug: bool = False) -> CommandTarget:
    """Return the command that serves a file or module in another process.

    A server's output and its crash then stay apart from the client's.

    Args:
        debug: let that server send the text of its unexpected errors.
    """
    words = [sys.executable, "-m", "trio_mcp", "run", target.text, *(["--debug"] if debug else [])]
    return CommandTarget(tuple(words))


def name_server(client: Client, prompting: Prompting) -> None:
    """Show questions with the name that the server declares."""
    if client.server_info is not None:
        prompting.server = client.server_info.title or client.server_info.name


def is_legacy(client: Client) -> bool:
    """Return whether the session is legacy: a legacy server hides tools that need a capability that the client lacks."""
    return REVISIONS[client.protocol_version].era is Era.LEGACY


class OneLine(PrintableFormatter):
    """Formats log records without tracebacks, which only --debug shows."""

    def formatException(self, ei: object) -> str:  # noqa: ARG002, N802  the names are logging's
        return ""


def configure_log(debug: bool) -> None:
    log_to_stderr(
        logging.DEBUG if debug else logging.WARNING, (PrintableFormatter if debug else OneLine)("trio-mcp: %(message)s")
    )


# The options of commands that use a server as its client, as decorators.

Function = Callable[..., int]


@dataclass(frozen=True)
class Connecting:
    """What a command connects to, and how.

    Attributes:
        timeout: seconds for the whole command; infinity for no limit.
    """

    target: Target
    mode: str
    timeout: float
    headers: Mapping[str, str]
    debug: bool


@dataclass(frozen=True)
class Answering:
    """What the command line answers to questions of a server."""

    answers: Sequence[tuple[str, str]] = ()
    samples: Sequence[str] = ()
    roots: Sequence[str] = ()


def connects(function: Function, *, several: bool = False) -> Function:
    """Give a command the argument TARGET and the options of a connection; it is passed a `Connecting` as `connecting`.

    Args:
        several: TARGET may be a file of several servers. The command is passed `servers` instead: a function for each, by its
            name, that returns the `Connecting`.
    """

    @wraps(function)
    def connected(
        *,
        target: str,
        mode: str,
        timeout: float | None,
        headers: Sequence[tuple[str, str]],
        debug: bool,
        **others: object,
    ) -> int:
        limit = math.inf if timeout is None else timeout

        def connecting(text: str) -> Connecting:
            return Connecting(read_target(text), mode, limit, dict(headers), debug)

        if several:
            return function(servers={text: partial(connecting, text) for text in target_texts(target)}, **others)
        return function(connecting=connecting(target), **others)

    modes = click.Choice(MODES)
    added = [
        target_argument,
        click.option(
            "--mode",
            type=modes,
            default="auto",
            show_default=True,
            metavar="MODE",
            help="The era to speak: auto, modern, legacy, or a revision.",
        ),
        click.option(
            "--timeout",
            type=Seconds(),
            metavar="SECONDS",
            help="For the whole command (default: no limit).",
        ),
        header_option,
    ]
    return reduce(lambda made, decorator: decorator(made), reversed(added), connected)


def answers(function: Function) -> Function:
    """Give a command the options that answer questions; it is passed an `Answering` as `answering`."""

    @wraps(function)
    def answering(
        *,
        answers: Sequence[tuple[str, str]],
        samples: Sequence[str],
        roots: Sequence[str],
        **others: object,
    ) -> int:
        return function(answering=Answering(answers, samples, roots), **others)

    added = [
        click.option(
            "--answer",
            "answers",
            multiple=True,
            type=Pair(),
            metavar="KEY=VALUE",
            help="A field of a form; repeatable.",
        ),
        click.option("--sample", "samples", multiple=True, metavar="TEXT", help="The model's answer; repeatable."),
        click.option("--root", "roots", multiple=True, metavar="FOLDER", help="A folder to work in; repeatable."),
    ]
    return reduce(lambda made, decorator: decorator(made), reversed(added), answering)
