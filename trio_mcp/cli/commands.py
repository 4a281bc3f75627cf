"""Parsing the command line, running the command, and returning its exit status.

Only the module of the chosen command is loaded: `trio-mcp run` starts a server, which must be quick and needs no client.
"""

from __future__ import annotations

import sys
import traceback
from argparse import REMAINDER, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Protocol, cast

from ..errors import ConfigurationError
from ..printable import printable
from .errors import EXIT_STATUSES, AlreadyReported, CommandError, Status

SUMMARIES = {
    "run": "serve a file's server on stdin and stdout",
    "serve": "serve a file's server over HTTP and WebSocket",
    "call": "call a tool of a server, and answer what it asks",
    "tasks": "list, show, follow or cancel the tasks of a server",
    "backfill": "give any server a model, for a host without one",
    "store": "list, check or shrink the file in which a server keeps what outlives it",
    "demo": "watch one tool ask an old and a new client, message by message",
}
STARTERS = ("backfill",)
"""Commands that take another command after `--`."""
EPILOG = "commands:\n" + "".join(f"  {name:<10}{summary}\n" for name, summary in SUMMARIES.items())


class Command(Protocol):
    """The functions of a command's module."""

    def describe(self, parser: ArgumentParser) -> None:
        """Add the arguments and examples of the command."""

    def execute(self, options: Namespace) -> int:
        """Run the command and return its exit status. Raises `CommandError`."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (by default the arguments of the process) and return its exit status.

    Raises:
        SystemExit: help was requested, or the command line is wrong; or the stdio transport ends the process.
    """
    # Before the parser sees them: some versions of it drop the dashes.
    words, started = split_words(sys.argv[1:] if argv is None else argv)
    chosen = top_parser().parse_args(words)
    command = cast("Command", import_module(f".{chosen.command}", __package__))
    # Intermixed, because KEY=VALUE may come before and after options: `call TARGET tool a=1 --timeout 5 b=2`.
    options = command_parser(chosen.command, command).parse_intermixed_args(chosen.arguments)
    options.started = started
    try:
        return command.execute(options)
    except KeyboardInterrupt:
        # 128 + SIGINT. The commands handle the signal themselves; this is for one that comes while modules are loaded.
        return 130
    except AlreadyReported as failure:
        return failure.status
    except CommandError as failure:
        return print_error(str(failure), failure.status, options)
    except ConfigurationError as error:
        return print_error(str(error), Status.UNREACHABLE, options)
    except Exception as error:  # noqa: BLE001  a user gets one line, never a traceback
        return print_error(f"a bug: {type(error).__name__}: {error} (--debug shows where)", Status.BUG, options)


def split_words(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the words for the parser, and those of a command that is to be started: what comes after `--`, options and all."""
    if "--" not in words or words[0] not in STARTERS:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def top_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="trio-mcp",
        description="Serve, call and try MCP servers.",
        epilog=f"{EPILOG}\n'trio-mcp COMMAND --help' explains a command.\n\n{EXIT_STATUSES}",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trio-mcp {version('trio-mcp')}")
    parser.add_argument("command", choices=tuple(SUMMARIES), metavar="COMMAND", help="one of those below")
    # Left unparsed, so that only the module of the chosen command must be loaded to know its options.
    parser.add_argument("arguments", nargs=REMAINDER, metavar="...", help="its arguments")
    return parser


def command_parser(name: str, command: Command) -> ArgumentParser:
    parser = ArgumentParser(
        prog=f"trio-mcp {name}",
        description=f"{SUMMARIES[name][0].upper()}{SUMMARIES[name][1:]}.",
        formatter_class=RawDescriptionHelpFormatter,
    )
    command.describe(parser)
    # Each command has it, and not `trio-mcp` itself: users add it at the end of the line that failed.
    parser.add_argument("--debug", action="store_true", help="show tracebacks and the library's log")
    parser.epilog = f"{parser.epilog}\n{EXIT_STATUSES}"
    return parser


def print_error(message: str, status: Status, options: Namespace) -> Status:
    """Write an error to stderr as one line, after the traceback if --debug is given; return the status."""
    if options.debug:
        sys.stderr.write(printable(traceback.format_exc()))
    # One line, whatever the server sent: the text of an error may have line breaks.
    sys.stderr.write(f"trio-mcp: {printable(' '.join(message.split()))}\n")
    return status
