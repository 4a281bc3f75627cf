"""The code of a server, for the commands that need it: `dev` reloads it, and `bundle` packs it.

A server in the file of a host is a command; so may be the one in quotes. If it starts a Python file or module, that is meant:
`trio-mcp dev cursor:shop` reloads what Cursor starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .target import CommandTarget, PythonTarget, Target, python_file, python_module

STARTS: Final = ("run", "dev", "serve")
"""Commands of `trio-mcp` that load the server of their target."""


def code_of(target: Target) -> PythonTarget | None:
    """Return the Python file or module of a target, or None if there is none: a URL, or another command.

    The variables and the folder that the file of a host has for a command become those of this process, which loads the code in
    its place.
    """
    if isinstance(target, PythonTarget):
        return target
    if not isinstance(target, CommandTarget) or (text := started_by(target.words)) is None:
        return None
    folder = Path(target.cwd or "")
    os.environ.update(target.env)
    # Python reads the variable only when it starts.
    sys.path[:0] = [*filter(None, target.env.get("PYTHONPATH", "").split(os.pathsep)), str(folder.absolute())]
    path, colon, _ = text.partition(".py")
    if colon and (folder / f"{path}.py").is_file():
        return python_file(str(folder / text))
    return python_module(text)


def started_by(words: Sequence[str]) -> str | None:
    """Return the target of a `trio-mcp run`, or the file of a `python FILE`; None for another command."""
    program = Path(words[0]).name
    rest = [word for word in words[1:] if word != "-u"]
    if program.startswith("python"):
        if rest[:2] != ["-m", "trio_mcp"]:
            return rest[0] if rest and rest[0].endswith(".py") else None
        rest = rest[2:]
    elif program != "trio-mcp":
        return None
    # The target is the first or the last word: options may be on one side of it.
    ends = [rest[1], rest[-1]] if len(rest) > 1 and rest[0] in STARTS else []
    return next((word for word in ends if not word.startswith("-")), None)
