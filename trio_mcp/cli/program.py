"""The program `trio-mcp`: its commands, each loaded when it is used.

`trio-mcp run` starts a server, which must be quick and needs no client: only the module of the chosen command is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Final, cast

import click

from ..base.checks import nearest_name
from ..base.late import no_collection
from .command import INTERRUPTED, SETTINGS, VARIABLES, Status, print_error

FAMILIES: Final[Mapping[str, Mapping[str, str]]] = {
    "Serve": {
        "run": "serve a server on stdin and stdout, for a host",
        "serve": "serve a server over HTTP and WebSocket",
        "dev": "serve a server, and reload its code when its files change",
        "backfill": "give any server a model, for a host without one",
    },
    "Use": {
        "call": "call a tool of a server, and answer what it asks",
        "list": "list the tools, resources and prompts of a server",
        "read": "read a resource of a server",
        "prompt": "get a prompt of a server",
        "login": "log in to a server with a browser",
        "logout": "revoke and delete the tokens for a server",
        "whoami": "list the servers that you are logged in to",
        "tasks": "list, show, follow or cancel the tasks of a server",
    },
    "Check": {
        "inspect": "show everything a server offers, what is wrong with it, and what it costs",
        "doctor": "check what often goes wrong: hosts, keys, proxies, versions",
        "store": "list, check or shrink the store in which a server keeps what outlives it",
        "demo": "watch one tool ask an old and a new client, message by message",
    },
    "Publish": {
        "install": "write a server into the configuration of a host",
        "uninstall": "remove a server from the configuration of a host",
        "discover": "list the servers in the configurations of hosts",
        "publish": "write the server.json for the MCP registry",
        "bundle": "write an MCPB file, which hosts install with a click",
        "completion": "print what completes the commands in your shell",
    },
}
"""What each command does, as the help lists them."""

MODULES: Final = {name: f".commands.{name}" for family in FAMILIES.values() for name in family}
"""The module of each command, which has the command in `command_line`."""


class Program(click.Group):
    """The group of all commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in MODULES:
            return None
        with no_collection():
            return cast("click.Command", import_module(MODULES[cmd_name], __package__).command_line)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Click compares with the commands that it has loaded, which are none.
        if args[0] not in MODULES and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=MODULES, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        # From the table: the help of click would load each of them.
        for title, family in FAMILIES.items():
            with formatter.section(title):
                formatter.write_dl(list(family.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        formatter.write("\n'trio-mcp COMMAND --help' explains a command, with its exit statuses.\n")


def print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"trio-mcp {version('trio-mcp')}")
        ctx.exit()


program = Program(
    "trio-mcp",
    help="Serve, call and try MCP servers.",
    # TRIO_MCP_SERVE_PORT=9000 stands for --port 9000 of `serve`.
    context_settings={**SETTINGS, "auto_envvar_prefix": VARIABLES},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=print_version,
            help="Show the version.",
        )
    ],
    subcommand_metavar="COMMAND ...",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (by default the arguments of the process) and return its exit status.

    Raises:
        SystemExit: a shell asked for completions, or the stdio transport ends the process.
    """
    words = [*(sys.argv[1:] if argv is None else argv)]
    # The command line could not be read, so it is not known whether this is an option or the value of one.
    as_json = "--json" in words
    try:
        return int(program.main(words, prog_name="trio-mcp", standalone_mode=False, obj=words) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(f"{error.format_message()}\n")
        return Status.USAGE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "trio-mcp"
        text = f"{usage_text(error)} ('{path} --help' lists what there is)"
        return print_error(text, Status.USAGE, as_json=as_json)
    except click.ClickException as error:
        return print_error(error.format_message(), Status.USAGE, as_json=as_json)
    except click.Abort:
        return INTERRUPTED


def usage_text(error: click.UsageError) -> str:
    """Return what is wrong with the command line."""
    if isinstance(error, click.exceptions.NoSuchOption | click.exceptions.NoSuchCommand):
        return explain(error)
    return error.format_message()


# What is said of an option or a command that does not exist: what to write instead, or the nearest one.

STDIO: Final = "trio-mcp run serves stdin and stdout; over HTTP it is: trio-mcp serve"
HTTP: Final = "trio-mcp serve serves HTTP and WebSocket; on stdin and stdout it is: trio-mcp run"
RELOAD: Final = "trio-mcp dev serves a file and reloads it when it changes"
WORKERS: Final = "only trio-mcp serve has workers, which serve HTTP"
OTHER_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "run": {
        **dict.fromkeys(("--host", "--path", "--port", "--transport"), STDIO),
        "--reload": RELOAD,
        "--workers": WORKERS,
    },
    "serve": {"--reload": RELOAD, "--transport": HTTP},
    "dev": {"--reload": "trio-mcp dev reloads without it", "--workers": WORKERS},
    "call": {"--tool": "the name of the tool follows the target, without an option"},
}
"""Options of other programs, by command, and what to write instead."""


def explain(error: click.exceptions.NoSuchOption | click.exceptions.NoSuchCommand) -> str:
    """Return the text of the error."""
    if isinstance(error, click.exceptions.NoSuchCommand):
        return with_advice(error.message, question(error.command_name, error.possibilities or ()))
    command = error.ctx.command if error.ctx is not None else None
    hint = OTHER_OPTIONS.get(command.name or "", {}).get(error.option_name) if command is not None else None
    options = (
        [] if command is None else [name for each in command.params for name in each.opts if name.startswith("--")]
    )
    return with_advice(error.message, hint or question(error.option_name, options))


def question(word: str, known: Iterable[str]) -> str:
    """Return a question with the nearest of the known words; empty if none is near."""
    # Without the dashes, which make all options alike.
    by_name = {each.lstrip("-"): each for each in known}
    found = nearest_name(word.lstrip("-"), by_name)
    return "" if found is None else f"do you mean {by_name[found]!r}?"


def with_advice(text: str, advice: str) -> str:
    return f"{text.rstrip('.')}: {advice}" if advice else text
