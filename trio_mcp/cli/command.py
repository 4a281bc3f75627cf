"""A command of `trio-mcp`: its help with examples, its errors in one line, and its exit status."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Final

import click
import trio

from ..base.groups import single_exception
from ..base.values import JsonValue, printable
from ..errors import (
    AuthorizationError,
    AuthorizationErrorKind,
    ConfigurationError,
    Disconnected,
    LocalProtocolError,
    McpError,
    PeerError,
)

WIDTH = 110
"""Columns of a help page, if the terminal has them."""
SETTINGS = {"max_content_width": WIDTH, "help_option_names": ["-h", "--help"]}
VARIABLES: Final = "TRIO_MCP"
"""With what the variables of the environment begin that stand for options."""
EXPLAINED: Final = re.compile(r" +[^ ]+ {2,}")
"""The beginning of a line that explains a word."""
wrap: Final = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)

INTERRUPTED = 130
"""128 and SIGINT: what a shell reports of a program that Ctrl-C ended."""

CLOSED_PIPE = 141
"""128 and SIGPIPE: the reader of the output has left."""


class Command(click.Command):
    """A click command with examples, `--debug`, and one line for each error.

    Args:
        examples: follows the options in the help; see `wrapped`.
        statuses: exit statuses that mean something else, or more, than for every command.
    """

    def __init__(
        self,
        *arguments: object,
        examples: str = "",
        statuses: Mapping[int, str] = MappingProxyType({}),
        **options: object,
    ) -> None:
        super().__init__(*arguments, **{"context_settings": SETTINGS, **options})  # type: ignore[arg-type]
        # Each command has it, and not `trio-mcp` itself: users add it at the end of the line that failed.
        self.params.append(
            click.Option(
                ["--debug"],
                is_flag=True,
                help="Show tracebacks and the library's log; a server that is started shows its exceptions to callers.",
                expose_value=True,
            )
        )
        for option in self.params:
            if isinstance(option, click.Option) and option.envvar is None:
                option.envvar = variable_of(self.name or "", option)
        self.examples = examples
        self.statuses = statuses

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's signature
        formatter.write(wrapped(f"\n{self.examples}\n{exit_statuses(self.statuses)}", formatter.width))

    def invoke(self, ctx: click.Context) -> int:
        """Run the command and return its exit status."""
        debug = bool(ctx.params.get("debug"))
        as_json = bool(ctx.params.get("as_json"))
        try:
            return int(super().invoke(ctx) or 0)
        # Click's own are about the command line, or the end of the program.
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            # The commands handle the signal themselves; this is for one that comes while modules are loaded.
            return INTERRUPTED
        except AlreadyReported as failure:
            if as_json:
                print_error(
                    "the server could not be loaded; the lines before this one say why", failure.status, as_json=True
                )
            return failure.status
        except BrokenPipeError:
            # As for a program that SIGPIPE ends. Buffered output is discarded, so that flushing it at exit does not fail too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return CLOSED_PIPE
        except CommandError as failure:
            return print_error(str(failure), failure.status, debug=debug, as_json=as_json)
        except ConfigurationError as error:
            return print_error(str(error), Status.UNREACHABLE, debug=debug, as_json=as_json)
        except Exception as error:  # noqa: BLE001  a user gets one line, never a traceback
            text = f"a bug: {type(error).__name__}: {error} (--debug at the end of the command shows where)"
            return print_error(text, Status.BUG, debug=debug, as_json=as_json)


def wrapped(text: str, width: int) -> str:
    """Return the end of a help with its sentences in lines of at most `width` characters.

    Lines that are indented stay as they are, for they are commands, unless one explains a word: `  drop   removes it`.
    """
    lines: list[str] = []
    for is_sentence, group in groupby(text.split("\n"), lambda line: line[:1].strip() != ""):
        if is_sentence:
            lines += wrap(" ".join(group), width)
            continue
        for line in group:
            found = EXPLAINED.match(line)
            lines += wrap(line, width, subsequent_indent=" " * found.end()) if found else [line]
    return "\n".join(lines)


def command(
    name: str, examples: str, statuses: Mapping[int, str] = MappingProxyType({})
) -> Callable[[Callable[..., int]], Command]:
    """Return the decorator that makes a function a command; its docstring begins the help."""
    return click.command(name, cls=Command, examples=examples, statuses=statuses)


def variable_of(command_name: str, option: click.Option) -> str | None:
    """Return the variable of the environment that stands for an option; None for one without a long name.

    Click would take the name of the parameter, which users do not know: that of `--json` is `as_json`.
    """
    name = next((each for each in option.opts if each.startswith("--")), None)
    return name and f"{VARIABLES}_{command_name}_{name[2:]}".replace("-", "_").upper()


def print_error(message: str, status: Status, *, debug: bool = False, as_json: bool = False) -> Status:
    """Write an error to stderr as one line, after the traceback if `debug`; return the status.

    Args:
        as_json: write it as a JSON object, for a command with `--json`.
    """
    if debug:
        sys.stderr.write(printable(traceback.format_exc()))
    # One line, whatever the server sent: the text of an error may have line breaks.
    text = printable(" ".join(message.split()))
    line = json.dumps({"error": {"kind": status.name.lower(), "status": int(status), "message": text}})
    sys.stderr.write(f"{line if as_json else f'trio-mcp: {text}'}\n")
    return status


# Running a command so that Ctrl-C ends it cleanly: calls are cancelled at the server, connections are closed.

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_command(command: Callable[[], Awaitable[int]]) -> int:
    """Run a command in a Trio loop and return its exit status, or 128 plus the number of the signal that ended it.

    The first signal cancels the command; a second one ends the process immediately.
    """
    return trio.run(watched, command)


async def watched(command: Callable[[], Awaitable[int]]) -> int:
    outcome: int | Exception = 0

    async def watch(signals: AsyncIterator[int]) -> None:
        nonlocal outcome
        outcome = 128 + await anext(signals)
        # The clean-up may hang on a server that does not answer, and the user must still be able to end it.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        nursery.cancel_scope.cancel()

    with trio.open_signal_receiver(*SIGNALS) as signals:
        async with trio.open_nursery() as nursery:
            # A task and not a handler that raises KeyboardInterrupt: that could strike anywhere, also inside the clean-up.
            nursery.start_soon(watch, signals)
            try:
                outcome = await command()
            except Exception as error:  # noqa: BLE001  raised below, not wrapped in a group
                outcome = single_exception(error)
            nursery.cancel_scope.cancel()
    # Outside the nursery, which would wrap it in a group.
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


# Errors of a command, and the exit statuses that they lead to.


class Status(IntEnum):
    """Exit statuses. A command that a signal ended has 128 plus the number of the signal, which is 130 for Ctrl-C."""

    # 2 is what click exits with for a wrong command line, and 70 is EX_SOFTWARE of sysexits.h. The error of a tool is
    # apart from every other failure, so that a script can tell "the tool said no" from "there was no answer".
    OK = 0
    TOOL_ERROR = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    BUG = 70


STATUSES: Final[Mapping[int, str]] = {
    Status.OK: "it worked",
    Status.USAGE: "the command line is wrong",
    Status.UNREACHABLE: "the server could not be loaded, started or reached, its connection ended, or a file cannot be used",
    Status.BUG: "a bug in trio-mcp (--debug at the end of the command shows where)",
    130: "interrupted by Ctrl-C",
}
"""What the exit statuses of every command mean; a command may have others, or say more about one."""
REFUSED: Final[Mapping[int, str]] = {
    Status.USAGE: "the command line is wrong: an unknown option or name, a bad key=value, an answer that does not fit",
    Status.REFUSED: "the server rejected a request, broke the protocol, or took longer than --timeout",
}
"""The same for commands that send requests."""


def exit_statuses(own: Mapping[int, str]) -> str:
    """Return the part of a help that explains the exit statuses of a command."""
    lines = [f"  {status:<4d} {text}\n" for status, text in sorted({**STATUSES, **own}.items())]
    return f"exit status:\n{''.join(lines)}"


class CommandError(Exception):
    """A command fails; its text is the one line that the user reads."""

    def __init__(self, message: str, status: Status = Status.USAGE) -> None:
        super().__init__(message)
        self.status = status


NOT_REACHED: Final = (AuthorizationErrorKind.STORE, AuthorizationErrorKind.UNAVAILABLE)
"""Why there is no token, if that is not a refusal: a file cannot be used, or a server cannot be reached."""

DECLARED_BY = {"roots": "--root FOLDER", "sampling": "--sample TEXT"}
"""The option of `trio-mcp call` that declares a capability."""


class Rejection(PeerError):
    """The user refused to answer a question. A legacy server receives it as this error; a modern one receives nothing."""


class AlreadyReported(CommandError):
    """A command fails, and another process of it has written why."""


@contextmanager
def translate_errors(*, starts_file: bool = False, failed: str = "the server could not be started") -> Generator[None]:
    """Raise `CommandError`, with a text and a status for the user, for an error of the library or the system.

    Args:
        starts_file: the server is a `trio-mcp run` that the block has started.
        failed: what an error of the system means.

    Raises:
        AlreadyReported: that command could not load its file.
    """
    try:
        yield
    except Rejection as error:
        raise CommandError(error.message, Status.REFUSED) from error
    except PeerError as error:
        missing = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
        raise rejected(str(error), missing) from error
    except Disconnected as error:
        # The only status with which `trio-mcp run` ends after it has written an error.
        if starts_file and f"exited with status {Status.UNREACHABLE:d}" in str(error):
            raise AlreadyReported(str(error), Status.UNREACHABLE) from error
        raise CommandError(str(error), Status.UNREACHABLE) from error
    # Before `McpError`, whose subclass it is: arguments or answers that JSON cannot hold are the user's mistake.
    except LocalProtocolError as error:
        raise CommandError(str(error)) from error
    except AuthorizationError as error:
        raise CommandError(str(error), status_of(error)) from error
    except McpError as error:
        raise CommandError(str(error), Status.REFUSED) from error
    # The reader of the output has left. This is not about the server.
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"{failed}: {error}", Status.UNREACHABLE) from error


def status_of(error: AuthorizationError) -> Status:
    """Return the exit status for a login that failed, or is not there."""
    return Status.UNREACHABLE if error.kind in NOT_REACHED else Status.REFUSED


def rejected(why: str, missing: JsonValue) -> CommandError:
    """Return the error of a call that the server rejected; it names the options that declare the `missing` capabilities."""
    wanted = [option for name, option in DECLARED_BY.items() if isinstance(missing, dict) and name in missing]
    hint = f"; give {' and '.join(wanted)}" if wanted else ""
    sampling = missing.get("sampling") if isinstance(missing, dict) else None
    if isinstance(sampling, dict) and "tools" in sampling:
        hint = "; trio-mcp call cannot answer with tools"
    return CommandError(f"the server rejected it: {why}{hint}", Status.REFUSED)


OPTIONS_OF_ARGUMENTS: Final[Mapping[str, str]] = {
    "allowed_hosts": "--allowed-host",
    "allowed_origins": "--allowed-origin",
    "resource": "--resource",
    "issuer": "--auth",
    "tenant": "--oauth-proxy",
    "required": "--required-scope",
    "scopes": "--scope",
    "sessions": "--no-sessions",
}
"""The options of the command, by the arguments that errors name."""


@contextmanager
def http_errors() -> Generator[None]:
    """Raise `CommandError`, with a text for the user, for a server that cannot listen."""
    try:
        yield
    except OSError as error:
        how = "; --port takes another one" if error.errno == errno.EADDRINUSE else ""
        raise CommandError(f"{error.strerror or error}{how}", Status.UNREACHABLE) from error
    except ConfigurationError:
        raise
    # A path that cannot be served, or an address on the network without --allowed-host. `ConfigurationError` is a `ValueError`
    # too, but is not about the command line.
    except ValueError as error:
        # The transport names its own argument; a user of the command knows only the option.
        text = str(error)
        for name, option in OPTIONS_OF_ARGUMENTS.items():
            text = text.replace(f"{name}: ", f"{option}: ")
        how = "; give them with --allowed-host NAME" if "allowed_hosts" in text else ""
        raise CommandError(f"{text}{how}") from error
