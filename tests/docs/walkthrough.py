"""The pages of the tutorial as one project: the files that a reader writes, and the commands that a reader types.

A comment before a block says what becomes of it: `<!-- file: app.py -->` writes the file, `append` adds to its end, `imports`
adds below its imports, `replace NAME` puts the block in the place of the statement that defines the name.
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import NamedTuple, TypeAlias

from serving import ROOT

PAGES = ("install", "first-server", "hosts", "first-test", "deploy")
BLOCK = re.compile(r"(?:<!-- (?P<edit>[^>]+): (?P<file>\S+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


class Edit(NamedTuple):
    """A change of a file of the project."""

    kind: str
    file: str
    text: str

    def edit(self, old: str) -> str:
        return edited(old, self.kind, self.text)

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(self.edit(old), encoding="utf-8")


class Command(NamedTuple):
    """A command, and the lines that the page says it prints."""

    line: str
    printed: list[str]

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line)


Step: TypeAlias = Edit | Command


def page(name: str) -> str:
    return (ROOT / "docs" / "tutorial" / f"{name}.md").read_text(encoding="utf-8")


def steps_of(text: str) -> list[Step]:
    """Return what the reader of a page does, in order."""
    found: list[Step] = []
    for block in BLOCK.finditer(text):
        if block["edit"]:
            found.append(Edit(block["edit"], block["file"], block["text"]))
        elif block["language"] == "console":
            found += commands_of(block["text"])
    return found


def commands_of(block: str) -> list[Command]:
    commands: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line.removeprefix("$ "), []))
        else:
            commands[-1].printed.append(line)
    return commands


def edited(old: str, kind: str, text: str) -> str:
    match kind.split():
        case ["file"]:
            return text
        case ["append"]:
            return f"{old.rstrip()}\n\n\n{text}"
        case ["imports"]:
            end = max(
                node.end_lineno or 0 for node in ast.parse(old).body if isinstance(node, ast.Import | ast.ImportFrom)
            )
            lines = old.splitlines(keepends=True)
            return "".join([*lines[:end], *text.splitlines(keepends=True), *lines[end:]])
        case ["replace", name]:
            (node,) = [each for each in ast.parse(old).body if defines(each, name)]
            decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
            start = min([node.lineno, *(each.lineno for each in decorators)])
            lines = old.splitlines(keepends=True)
            return "".join([*lines[: start - 1], text, *lines[node.end_lineno :]])
    raise AssertionError(f"no such edit: {kind}")


def defines(node: ast.stmt, name: str) -> bool:
    """Return whether a statement defines a function of this name, or assigns it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    return isinstance(node, ast.Assign) and any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
