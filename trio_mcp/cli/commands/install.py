"""`trio-mcp install`: write a server into the configuration of a host."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce, wraps
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

import click

from ...base.values import shown_url
from ...mcp_json import CommandServer, HostServer, UrlServer
from ..arguments import Pair, header_option, json_option, target_argument
from ..command import CommandError, Status, command, run_command
from ..connecting import started
from ..hosts import HOSTS, Change, Host, as_member, read_for_change, scope_of, with_server
from ..targets.loading import load_python
from ..targets.logins import login_for
from ..targets.target import CommandTarget, PythonTarget, Target, UrlTarget, read_target
from ..terminal.output import note, rich_screen, show_json, show_lines
from ..terminal.prompting import Terminal

EXAMPLES = f"""\
examples:
  trio-mcp install claude-code app.py
  trio-mcp install claude-desktop app.py:make_server --name shop --env SHOP_KEY=...
  trio-mcp install cursor https://mcp.example.com/mcp --name shop --header authorization='Bearer ...'
  trio-mcp install vscode app.py --project --dry-run
  trio-mcp install goose 'npx -y some-mcp-server' --name some
  trio-mcp install mcp-json app.py --yes

HOST is {", ".join(HOSTS)}.

The change is shown before it is written, and you are asked. The old file is kept next to the new one. Comments stay, where the
host reads them; a file that it cannot read is left as it is. The host gets the whole path of this Python and of the file. One
that only starts commands gets `trio-mcp run URL` for a URL. Values of --env and --header are written into the file as they are.
"""

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What hosts take as the name of a server."""
OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]+")

host_argument = click.argument("host", type=click.Choice(list(HOSTS)), metavar="HOST")


def changes_file(function: Callable[..., int]) -> Callable[..., int]:
    """Give a command the options of one that changes the file of a host."""

    @wraps(function)
    def changing(host: str, project: bool, file: str | None, **options: object) -> int:
        chosen = HOSTS[host]
        return function(host=chosen, path=file_of(chosen, project=project, file=file), **options)

    added = [
        click.option("--project", is_flag=True, help="Use the file of the host for the current folder."),
        click.option("--file", type=click.Path(dir_okay=False), metavar="FILE", help="Use this file instead."),
        click.option("--dry-run", is_flag=True, help="Show the change, and write nothing."),
        click.option("--yes", is_flag=True, help="Write without being asked."),
        json_option,
    ]
    return reduce(lambda made, decorator: decorator(made), reversed(added), changing)


@command("install", EXAMPLES)
@host_argument
@target_argument
@click.option("--name", metavar="NAME", help="The name in the host (default: that of the server).")
@click.option(
    "--env",
    "env",
    multiple=True,
    type=Pair("NAME=VALUE", is_secret=True),
    metavar="NAME=VALUE",
    help="An environment variable of the command; repeatable.",
)
@header_option
@click.option("--force", is_flag=True, help="Replace a server of this name.")
@changes_file
def command_line(
    host: Host,
    path: Path,
    target: str,
    name: str | None,
    env: Sequence[tuple[str, str]],
    headers: Sequence[tuple[str, str]],
    force: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    debug: bool,  # noqa: ARG001
) -> int:
    """Write a server into the configuration of a host.

    TARGET is a Python file or a module (app.py, app.py:name, shop.server:name), a URL, a command in quotes, or a server of a file
    (mcp.json:name).
    """
    server = read_target(target)
    entry = entry_of(host, server, name_of(server, target, name), dict(env), dict(headers))
    file = read_for_change(path, host)
    member = as_member(entry, host.style)
    if entry.name in file.servers:
        if file.servers[entry.name] == member:
            note(f"{file.path} has this server already")
            return Status.OK
        if not force:
            raise CommandError(
                f"{file.path} has a server {entry.name!r}: --force replaces it, --name takes another name"
            )
    change = with_server(file, entry.name, member)
    return make(change, advice_for(host, path, server, dict(headers)), dry_run=dry_run, yes=yes, as_json=as_json)


def advice_for(host: Host, path: Path, server: Target, headers: Mapping[str, str]) -> str:
    """Return what a user has to do or to know after a server was added to a file."""
    note = host.project_note if host.project_note and scope_of(path, host) == "project" else host.note
    # A host that takes URLs logs in by itself.
    if isinstance(server, UrlTarget) and not host.takes_urls and login_for(server, headers) is not None:
        shown = shlex.quote(shown_url(server.url))
        return f"{note}\nIf the server asks for a login, log in here: trio-mcp login {shown}"
    return note


def file_of(host: Host, *, project: bool, file: str | None) -> Path:
    """Return the file to change. Raises `CommandError` if the host has no such file, or two are named."""
    if file is not None:
        if project:
            raise CommandError("--project and --file name two files: give one of them")
        return Path(file)
    path = host.file("project" if project else None)
    if path is None:
        raise CommandError(f"{host.name} has no file for a project: leave out --project")
    return path


def name_of(server: Target, text: str, name: str | None) -> str:
    """Return the name for a server: the given one, its own, or that in the file it comes from. Raises `CommandError`."""
    if name is not None:
        if not NAME.fullmatch(name):
            raise CommandError(f"--name {name!r}: hosts take letters, digits, - and _, 64 at most")
        return name
    if isinstance(server, PythonTarget):
        # This runs its code. A file that cannot be loaded would fail in the host, which may not show why.
        found = load_python(server).identity.name
    else:
        found = text.rpartition(":")[2] if ".json" in text or text.partition(":")[0] in HOSTS else ""
    name = OTHERS.sub("-", found).strip("-")[:64]
    if not name:
        raise CommandError("name the server for the host: --name NAME")
    return name


def entry_of(host: Host, server: Target, name: str, env: Mapping[str, str], headers: Mapping[str, str]) -> HostServer:
    """Return the server as an entry of this host. Raises `CommandError`."""
    if headers and not isinstance(server, UrlTarget):
        raise CommandError("--header is for the URL of a server; a command gets no headers")
    match server:
        case UrlTarget(url, own) if host.takes_urls:
            if env:
                raise CommandError("--env is for a command; a URL gets --header")
            return UrlServer(name=name, url=url, headers={**own, **headers})
        case UrlTarget(url, own):
            # Not as `--header`: every user of the machine can list the arguments of a process.
            listed = "\n".join(f"{key}={value}" for key, value in {**own, **headers}.items())
            variables = {"TRIO_MCP_RUN_HEADER": listed} if listed else {}
            command = (sys.executable, "-m", "trio_mcp", "run", url)
            return CommandServer(name=name, command=command, env={**variables, **env})
        case CommandTarget(words, own, cwd):
            words = tuple(absolute(words))
            return CommandServer(name=name, command=words, env={**own, **env}, cwd=cwd)
        case PythonTarget(source, attribute):
            where = source if isinstance(source, str) else source.resolve()
            words = started(PythonTarget(where, attribute)).words
            return CommandServer(name=name, command=words, env={**module_path(where), **env})


def absolute(words: Sequence[str]) -> list[str]:
    """Return a command that can be started from any folder, and with another PATH, as far as its words show that."""
    program = shutil.which(words[0]) or words[0]
    files = [Path(word) for word in words[1:]]
    others = [str(file.resolve()) if file.is_file() else word for file, word in zip(files, words[1:], strict=True)]
    return [str(Path(program).absolute()) if os.sep in program else program, *others]


def module_path(source: Path | str) -> dict[str, str]:
    """Return the variable with which a module of the current folder is found from another one; nothing for an installed one."""
    if isinstance(source, Path) or PathFinder.find_spec(source.partition(".")[0], sys.path[1:]) is not None:
        return {}
    return {"PYTHONPATH": str(Path.cwd())}


def make(change: Change, advice: str, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Show a change, ask, write it, and give advice on what to do in the host. Raises `CommandError`, `click.Abort`."""
    if as_json and not (yes or dry_run):
        raise CommandError("--json shows a change after it is written: give --yes or --dry-run, too")
    show_diff(change, as_json=as_json)
    backup = None
    if not dry_run:
        if not yes and not confirmed(change.path):
            note("nothing was written")
            return Status.OK
        backup = change.write()
        kept = f"; the old one is {backup}" if backup else ""
        note(f"wrote {change.path}{kept}")
        note(advice)
    if as_json:
        paths = {"file": str(change.path), "backup": backup and str(backup)}
        show_json({**paths, "written": not dry_run, "diff": list(change.diff())})
    return Status.OK


def show_diff(change: Change, *, as_json: bool) -> None:
    if as_json:
        return
    if sys.stdout.isatty():
        rich_screen().show_diff(change.diff())
    else:
        show_lines(change.diff())


def confirmed(path: Path) -> bool:
    """Ask whether to write. Raises `CommandError` without a terminal, `click.exceptions.Exit` for Ctrl-C."""
    terminal = Terminal()
    if not terminal.is_interactive:
        raise CommandError("nothing was written: there is no terminal to ask at, and no --yes")

    # In an event loop: a Ctrl-C that comes before `input()` waits is noticed only at the next key.
    async def ask() -> int:
        answer = ""
        while answer not in ("y", "yes", "n", "no"):
            line = await terminal.ask(f"Write {path}? [y/N]: ")
            answer = "n" if line is None else line.strip().lower() or "n"
        return int(answer in ("n", "no"))

    status = run_command(ask)
    if status > 1:
        raise click.exceptions.Exit(status)
    return status == 0
