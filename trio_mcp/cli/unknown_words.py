"""What is said of an option or a command that does not exist: what to write instead, or the nearest one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import click

from ..checks import nearest_name

STDIO: Final = "trio-mcp run serves stdin and stdout; over HTTP it is: trio-mcp serve"
HTTP: Final = "trio-mcp serve serves HTTP and WebSocket; on stdin and stdout it is: trio-mcp run"
RELOAD: Final = "trio-mcp dev serves a file and reloads it when it changes"
ONE_PROCESS: Final = "a server is one process; start several behind a proxy"
OTHER_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "run": {
        **dict.fromkeys(("--host", "--path", "--port", "--transport"), STDIO),
        "--reload": RELOAD,
        "--workers": ONE_PROCESS,
    },
    "serve": {"--reload": RELOAD, "--transport": HTTP, "--workers": ONE_PROCESS},
    "dev": {"--reload": "trio-mcp dev reloads without it", "--workers": ONE_PROCESS},
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
