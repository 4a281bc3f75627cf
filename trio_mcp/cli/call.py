"""`trio-mcp call`: call one tool from a terminal, and answer its questions."""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path

import trio

from ..client import Client
from ..client.task_follow import CANCEL_TIMEOUT
from ..errors import CapabilityError, McpError
from ..printable import printable
from ..protocol.meta import REQUIRED_CAPABILITIES
from ..protocol.revisions import REVISIONS, SUPPORTED, Era
from ..session.calls.services import ONE_CLIENT
from ..types import CallToolResult, JsonObject, Tool
from .arguments import pairs, read_arguments, signature
from .child_stderr import printable_stderr
from .errors import CommandError, Status, rejected, translate_errors
from .interrupts import run_command
from .loading import check_file
from .numbers import seconds
from .output import PrintableFormatter, log_to_stderr, note, show_change, show_log, show_progress, show_result
from .prompting import Prompting
from .terminal import Terminal

EXAMPLES = """\
TARGET is the URL of a server, a command that starts one on stdio, or a .py file that does.

examples:
  trio-mcp call examples/travel.py --list
  trio-mcp call examples/travel.py book_flight destination=Lisbon
  trio-mcp call 'trio-mcp run examples/travel.py' search_flights destination=Oslo
  trio-mcp call http://127.0.0.1:8000/mcp report year=2026 --task
  trio-mcp call http://127.0.0.1:8000/mcp book_flight destination=Lisbon \\
      --answer flight=TP1 --answer seat=aisle --answer value=yes --sample 'A short hop.'

A VALUE is JSON if it is valid JSON, unless the tool wants a string there: city=Lisbon seats=2 tags='["a"]'.
The result goes to stdout; questions, progress and log messages go to stderr. Questions are asked at the terminal,
unless --answer and --sample answer them; without a terminal they are declined. Several values for one field, and several
samples, are used in turn, and the last of them for all further questions. What was not used is named on stderr.
"""


def describe(parser: ArgumentParser) -> None:
    """Add the arguments and examples of the command."""
    add = parser.add_argument
    add("target", metavar="TARGET", help="a URL, a command, or a .py file")
    add("tool", metavar="TOOL", nargs="?", help="the tool to call")
    add("arguments", metavar="KEY=VALUE", nargs="*", help="its arguments")
    add("--list", action="store_true", help="list the tools and their arguments")
    add("--json", metavar="OBJECT", help="the arguments as one JSON object; KEY=VALUE is put into it")
    add("--task", action="store_true", help="run the tool as a task, and show its id and its state")
    add("--mode", default="auto", help="auto, modern, legacy, or a revision to speak (default: %(default)s)")
    add(
        "--timeout", type=seconds, default=math.inf, metavar="SECONDS", help="for the whole command (default: no limit)"
    )
    add("--answer", action="append", default=[], metavar="KEY=VALUE", help="a field of a form; repeatable")
    add("--sample", action="append", default=[], metavar="TEXT", help="the model's answer; repeatable")
    add("--root", action="append", default=[], metavar="FOLDER", help="a folder to work in; repeatable")
    add("--header", action="append", default=[], metavar="NAME=VALUE", help="an HTTP header; repeatable")
    parser.epilog = EXAMPLES


def execute(options: Namespace) -> int:
    """Run the command and return its exit status. Raises `CommandError`."""
    configure_log(options.debug)
    check_mode(options.mode)
    if options.tool is None and not options.list:
        raise CommandError("name the tool to call, or list them with --list")
    prompting = Prompting(Terminal(), pairs(options.answer, "--answer ", "KEY=VALUE"), options.sample)
    return run_command(partial(call, options, prompting))


def check_mode(mode: str) -> None:
    """Raise `CommandError` unless `--mode` was given something that a client can speak."""
    if mode not in ("auto", "modern", "legacy", *SUPPORTED):
        raise CommandError(f"--mode is auto, modern, legacy, or one of {', '.join(SUPPORTED)}; not {mode!r}")


async def call(options: Namespace, prompting: Prompting) -> int:
    """Connect to the target, call the tool, and return the exit status."""
    # Around the connection too: to start a server, to shake hands with it and to close it may all hang.
    with trio.move_on_after(options.timeout):
        async with printable_stderr() as stderr:
            # Inside, where the errors are not yet in the group of a nursery.
            with translate_errors(starts_file=is_file(options.target)):
                async with connection(options, prompting, stderr) as client:
                    return await run_call(client, options, prompting)
    raise CommandError(f"timed out after {options.timeout:g} seconds; the call was cancelled", Status.REFUSED)


def connection(options: Namespace, prompting: Prompting, stderr: int | None = None) -> Client:
    """Return a client for the target; entering it opens the connection.

    Args:
        stderr: where the stderr of a server that is started goes, as for `subprocess.Popen`.
    """
    target = read_target(options.target, debug=options.debug)
    connect = partial(
        Client.connect,
        target,
        on_elicit=prompting.elicit,
        # A handler declares the capability, and a tool should learn that there is no model before it asks.
        on_sample=prompting.sample if prompting.samples else None,
        on_roots=partial(list, map(Path, options.root)) if options.root else None,
        on_log=show_log,
        mode=options.mode,
        name="trio-mcp",
        version=version("trio-mcp"),
    )
    if isinstance(target, str):
        form = "NAME=VALUE, such as authorization='Bearer ...'"
        return connect(headers=dict(pairs(options.header, "--header ", form)))
    # A command gets the whole environment, and not only the safe part that a host would pass on: the user who wrote the command
    # could have run it in this shell. No keys that it does not have: a store would be sealed with them for good.
    return connect(env={**os.environ, ONE_CLIENT: "1"}, stderr=stderr)


def is_file(target: str) -> bool:
    """Return whether a target is `FILE.py` or `FILE.py:name`, which this program serves."""
    return SCHEME.match(target) is None and len(target.split()) == 1 and target.partition(":")[0].endswith(".py")


SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
SCHEMES = ("http", "https", "ws", "wss")
"""The URL schemes for which there is a transport."""


def read_target(text: str, *, debug: bool = False) -> str | list[str]:
    """Return a URL as it is, a command as its words, and for a `.py` file (or `FILE:name`) the command that serves it.

    Args:
        debug: let that server tell its unexpected errors.

    Raises:
        CommandError: the URL has another scheme, the command cannot be split, or there is no such file.
    """
    if scheme := SCHEME.match(text):
        if scheme[1].lower() in SCHEMES:
            return text
        raise CommandError(f"{text!r} is not the URL of a server: those begin with {', '.join(SCHEMES)}, and ://")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CommandError(f"{text!r} is not a command: {error}") from error
    if not words:
        raise CommandError("the target is empty")
    # `FILE.py` and `FILE.py:name` are served by this program, in another process: a server's output and its crash then stay apart
    # from the client's. With further words it is a command, which may be a .py file with a shebang.
    path = words[0].partition(":")[0]
    if len(words) == 1 and path.endswith(".py"):
        check_file(Path(path))
        return [sys.executable, "-m", "trio_mcp", "run", *words, *(["--debug"] if debug else [])]
    return words


async def run_call(client: Client, options: Namespace, prompting: Prompting) -> int:
    name_server(client, prompting)
    tools = await client.list_tools()
    if options.list:
        show_tools(tools)
        return Status.OK
    # The schema is needed to read the arguments, so the tools are listed even for a single call.
    tool = choose(tools, options.tool, for_client=is_legacy(client))
    arguments = read_arguments(tool, options.arguments, options.json)
    if options.task:
        result = await call_as_task(client, tool.name, arguments)
    else:
        result = await client.call_tool(tool.name, arguments, on_progress=show_progress)
    return show_outcome(result, prompting)


def name_server(client: Client, prompting: Prompting) -> None:
    """Let the questions be shown with the name that the server gave itself."""
    if client.server_info is not None:
        prompting.server = client.server_info.title or client.server_info.name


def show_outcome(result: CallToolResult, prompting: Prompting) -> int:
    """Write the result of a call whose questions were answered, and return the exit status. Raises `CommandError`."""
    # First, because the result only says that the user closed a question.
    if prompting.problem is not None:
        raise prompting.problem
    if unused := prompting.unused:
        note(f"trio-mcp: warning: the tool did not ask for {', '.join(unused)}")
    # A legacy server says it in a result, which a model reads; to a person it is the same as the error of a modern one.
    if result.is_error and (missing := (result.meta or {}).get(REQUIRED_CAPABILITIES)) is not None:
        raise rejected(result.text, missing)
    show_result(result)
    return Status.TOOL_ERROR if result.is_error else Status.OK


async def call_as_task(client: Client, name: str, arguments: JsonObject) -> CallToolResult:
    """Start a tool as a task, show its id and its changes, and return its result. A cancel cancels the task."""
    try:
        task = await client.start_tool(name, arguments)
    except CapabilityError as error:
        # Without its notes, which name the arguments of a program.
        raise CommandError(f"{error.args[0]}: leave out --task", Status.REFUSED) from error
    note(f"task {task.id}" if task.id else "the server has answered at once, without a task")
    try:
        return await task.result(on_change=show_change)
    except BaseException:
        with trio.move_on_after(CANCEL_TIMEOUT, shield=True), suppress(McpError):
            await task.cancel()
        raise


def is_legacy(client: Client) -> bool:
    """Return whether the session is legacy: a legacy server hides tools that need a capability that the client lacks."""
    return REVISIONS[client.protocol_version].era is Era.LEGACY


def choose(tools: Sequence[Tool], name: str, *, for_client: bool = False) -> Tool:
    """Return the tool of that name. Raises `CommandError`, which lists the names, if there is none.

    Args:
        for_client: the server may hide tools from this client.
    """
    for tool in tools:
        if tool.name == name:
            return tool
    known = ", ".join(tool.name for tool in tools) or "none"
    whose = " for this client" if for_client else ""
    raise CommandError(f"the server has no tool {name!r}{whose}; its tools are: {known}")


def show_tools(tools: Sequence[Tool]) -> None:
    """Write how to call each tool, and its description, to stdout."""
    for tool in tools:
        sys.stdout.write(f"{printable(signature(tool))}\n")
        for line in printable(tool.description or "").splitlines():
            sys.stdout.write(f"    {line}".rstrip() + "\n")


class OneLine(PrintableFormatter):
    """Formats log records without tracebacks, which only --debug shows."""

    def formatException(self, ei: object) -> str:  # noqa: ARG002, N802  the names are logging's
        return ""


def configure_log(debug: bool) -> None:
    log_to_stderr(
        logging.DEBUG if debug else logging.WARNING, (PrintableFormatter if debug else OneLine)("trio-mcp: %(message)s")
    )
