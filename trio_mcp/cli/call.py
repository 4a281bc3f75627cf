"""`trio-mcp call`: call one tool from a terminal, and answer what it asks on the way."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import trio

from ..client import Client
from ..protocol.revisions import SUPPORTED
from ..types import Tool
from .arguments import pairs, read_arguments, signature
from .errors import CommandError, Status, translate_errors
from .interrupts import run_command
from .numbers import seconds
from .output import clean, show_log, show_progress, show_result
from .prompting import Answering
from .terminal import Terminal

EXAMPLES = """\
TARGET is the URL of a server, a command that starts one on stdio, or a .py file that does.

examples:
  trio-mcp call examples/travel.py --list
  trio-mcp call examples/travel.py book_flight destination=Lisbon
  trio-mcp call 'trio-mcp run examples/travel.py' search_flights destination=Oslo
  trio-mcp call http://127.0.0.1:8000/mcp book_flight destination=Lisbon \\
      --answer flight=TP1 --answer seat=aisle --answer value=yes --sample 'A short hop.'

A VALUE is JSON if it is JSON, unless the tool wants text there: city=Lisbon seats=2 tags='["a"]'.
The result goes to stdout; questions, progress and log messages go to stderr. Questions are asked at the terminal,
unless --answer and --sample answer them; without a terminal they are declined.
"""


def describe(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("target", metavar="TARGET", help="a URL, a command, or a .py file")
    add("tool", metavar="TOOL", nargs="?", help="the tool to call")
    add("arguments", metavar="KEY=VALUE", nargs="*", help="its arguments")
    add("--list", action="store_true", help="list the tools and their arguments")
    add("--json", metavar="OBJECT", help="the arguments as one JSON object; KEY=VALUE is put into it")
    add("--mode", default="auto", help="auto, modern, legacy, or a revision to speak (default: %(default)s)")
    add("--timeout", type=seconds, metavar="SECONDS", help="for everything together; by default there is no limit")
    add(
        "--answer", action="append", default=[], metavar="KEY=VALUE", help="a field of a form; repeatable, used in turn"
    )
    add("--sample", metavar="TEXT", help="what the model answers when the tool asks it")
    add("--root", action="append", default=[], metavar="FOLDER", help="a folder to tell the server of; repeatable")
    add(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="sent with every HTTP request, or to open a WebSocket; repeatable",
    )
    parser.epilog = EXAMPLES


def execute(options: Namespace) -> int:
    configure_log(options.debug)
    if options.mode not in ("auto", "modern", "legacy", *SUPPORTED):
        raise CommandError(
            f"--mode is auto, modern, legacy, or one of {', '.join(SUPPORTED)}; not {options.mode!r}", Status.USAGE
        )
    if options.tool is None and not options.list:
        raise CommandError("name the tool to call, or list them with --list", Status.USAGE)
    answering = Answering(Terminal(), pairs(options.answer, "--answer ", "KEY=VALUE"), options.sample)
    return run_command(partial(call, options, answering))


async def call(options: Namespace, answering: Answering) -> int:
    limit = float("inf") if options.timeout is None else options.timeout
    with trio.move_on_after(limit):
        with translate_errors():
            async with connection(options, answering) as client:
                return await run_call(client, options, answering)
    raise CommandError(f"it was not done within {limit:g} seconds, and was cancelled", Status.REFUSED)


def connection(options: Namespace, answering: Answering) -> Client:
    """The client, not yet open."""
    target = read_target(options.target)
    connect = partial(
        Client.connect,
        target,
        on_elicit=answering.elicit,
        on_sample=answering.sample if answering.samples else None,
        on_roots=partial(list, map(Path, options.root)) if options.root else None,
        on_log=show_log,
        mode=options.mode,
        name="trio-mcp",
        version=version("trio-mcp"),
    )
    return connect(headers=headers(options)) if isinstance(target, str) else connect(env=os.environ)


SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
REACHED = ("http", "https", "ws", "wss")
"""The schemes of URLs that a transport reaches."""


def read_target(text: str) -> str | list[str]:
    """A URL as it is; a command as its words. A `.py` file, perhaps with `:name`, is served as `trio-mcp run` does.

    A command has all of our environment: whoever wrote it could have started it here without us.
    """
    if scheme := SCHEME.match(text):
        if scheme[1].lower() in REACHED:
            return text
        raise CommandError(
            f"{text!r} is no URL of a server: those begin with {', '.join(REACHED)}, and ://", Status.USAGE
        )
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CommandError(f"{text!r} is not a command: {error}", Status.USAGE) from error
    if not words:
        raise CommandError("the target is empty", Status.USAGE)
    path = words[0].partition(":")[0]
    if len(words) == 1 and path.endswith(".py"):
        if not Path(path).is_file():
            raise CommandError(f"there is no file {path}", Status.UNREACHABLE)
        return [sys.executable, "-m", "trio_mcp", "run", *words]
    return words


def headers(options: Namespace) -> dict[str, str]:
    return dict(pairs(options.header, "--header ", "NAME=VALUE, such as authorization='Bearer ...'"))


async def run_call(client: Client, options: Namespace, answering: Answering) -> int:
    if client.server_info is not None:
        answering.server = client.server_info.title or client.server_info.name
    tools = await client.list_tools()
    if options.list:
        show_tools(tools)
        return Status.OK
    tool = choose(tools, options.tool)
    arguments = read_arguments(tool, options.arguments, options.json)
    result = await client.call_tool(tool.name, arguments, on_progress=show_progress)
    if answering.problem is not None:
        raise answering.problem
    show_result(result)
    return Status.TOOL_ERROR if result.is_error else Status.OK


def choose(tools: Sequence[Tool], name: str) -> Tool:
    for tool in tools:
        if tool.name == name:
            return tool
    known = ", ".join(tool.name for tool in tools) or "none"
    raise CommandError(f"the server has no tool {name!r}; its tools are: {known}", Status.USAGE)


def show_tools(tools: Sequence[Tool]) -> None:
    for tool in tools:
        sys.stdout.write(f"{clean(signature(tool))}\n")
        for line in clean(tool.description or "").splitlines():
            sys.stdout.write(f"    {line}".rstrip() + "\n")


class OneLine(logging.Formatter):
    """Log records without tracebacks."""

    def formatException(self, ei: object) -> str:  # noqa: ARG002, N802  the names are logging's
        return ""


def configure_log(debug: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter((logging.Formatter if debug else OneLine)("trio-mcp: %(message)s"))
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, handlers=[handler])
