"""`trio-mcp completion`: print what completes the commands in a shell."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from ..command import CommandError, Status, command
from ..terminal.output import show_lines

EXAMPLES = """\
examples:
  eval "$(trio-mcp completion bash)"                                         # in ~/.bashrc
  eval "$(trio-mcp completion zsh)"                                          # in ~/.zshrc
  trio-mcp completion fish > ~/.config/fish/completions/trio-mcp.fish

Without SHELL it is that of $SHELL. Commands, options, their choices and the names of files are completed.
"""


@command("completion", EXAMPLES)
@click.argument("shell", required=False, type=click.Choice(["bash", "zsh", "fish"]), metavar="[SHELL]")
@click.pass_context
def command_line(ctx: click.Context, shell: str | None, debug: bool) -> int:  # noqa: ARG001
    """Print what completes the commands of trio-mcp in a shell: bash, zsh or fish."""
    name = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(name)
    if kind is None:
        raise CommandError("name the shell: bash, zsh or fish")
    try:
        text = kind(ctx.find_root().command, {}, "trio-mcp", "_TRIO_MCP_COMPLETE").source()
    except RuntimeError as error:
        raise CommandError(str(error), Status.UNREACHABLE) from error
    # The script of click for fish cuts a description at its first comma.
    show_lines(text.replace('(string split "," ', '(string split -m 1 "," ').splitlines())
    return Status.OK
