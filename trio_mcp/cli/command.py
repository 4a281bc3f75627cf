"""A command of `trio-mcp`: its help with examples, its errors in one line, and its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Final

import click
import trio

from ..base.groups import single_exception
from ..base.values import printable
from ..errors import ConfigurationError
from .errors import AlreadyReported, CommandError, Status, exit_statuses

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
            text = f"a bug: {type(error).__name__}: {error} (--debug shows where)"
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
