"""The table of mutants, and how one is applied to a source tree.

A mutant replaces one line of the library by another one that breaks a rule.
"""

from __future__ import annotations

import ast
import difflib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("mutants.toml")
PACKAGES = ("trio_mcp", "transports/trio_mcp_transports")
AREAS = ("runtime", "session", "protocol", "http")


class MutantError(Exception):
    """The table does not fit the tree."""


@dataclass(frozen=True)
class Place:
    """One line of one file.

    Attributes:
        file: its path in the tree.
        old: the line without its indentation and comment; exactly one line of `within` must read like this.
        new: what replaces it, at the same indentation.
        within: the function or class to look in, such as `Mailbox.post`; empty for the whole file.
        killed_by: a test that was seen to fail with it.
    """

    file: str
    old: str
    new: str
    within: str = ""
    killed_by: str = ""


@dataclass(frozen=True)
class Mutant:
    """One broken rule."""

    name: str
    area: str
    rule: str
    place: Place


def read_table(path: Path = TABLE) -> list[Mutant]:
    """Return all mutants in the order of the table.

    Raises:
        MutantError: a name occurs twice, an area is unknown, or an entry is incomplete.
    """
    mutants = [read_mutant(entry) for entry in tomllib.loads(path.read_text())["mutant"]]
    names = [mutant.name for mutant in mutants]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise MutantError(f"names occur twice: {', '.join(sorted(repeated))}")
    return mutants


def read_mutant(entry: dict[str, Any]) -> Mutant:
    if entry.get("area") not in AREAS:
        raise MutantError(f"{entry.get('name')}: the area must be one of {', '.join(AREAS)}")
    place = {field.name: entry.pop(field.name) for field in fields(Place) if field.name in entry}
    try:
        return Mutant(place=Place(**place), **entry)
    except TypeError as error:
        raise MutantError(f"{entry.get('name')}: {error}") from None


def apply(root: Path, place: Place) -> int:
    """Write the mutated file into the tree at `root` and return the number of the changed line.

    Raises:
        MutantError: not exactly one line matches, nothing would change, or the mutated file is not Python.
    """
    lines, index = find(root, place)
    (root / place.file).write_text("".join(mutated(lines, index, place)))
    return index + 1


def check(root: Path, place: Place) -> None:
    """Raise `MutantError` unless `apply` would succeed. Writes nothing."""
    lines, index = find(root, place)
    mutated(lines, index, place)


def find(root: Path, place: Place) -> tuple[list[str], int]:
    path = root / place.file
    if not path.is_file():
        raise MutantError(f"{place.file} does not exist{advice(root, place)}")
    lines = path.read_text().splitlines(keepends=True)
    found = [index for index in span(lines, place) if code_of(lines[index]) == place.old]
    if len(found) != 1:
        where = f"{place.file} ({place.within})" if place.within else place.file
        raise MutantError(f"{where} has {len(found)} lines {place.old!r}{advice(root, place)}")
    return lines, found[0]


def code_of(line: str) -> str:
    """Return the line without its indentation and without a comment behind it."""
    return line.partition("  # ")[0].strip()


def span(lines: list[str], place: Place) -> range:
    """Return the indexes of the lines to look in."""
    if not place.within:
        return range(len(lines))
    nodes = [node for name, node in definitions(ast.parse("".join(lines))) if name == place.within]
    if len(nodes) != 1:
        raise MutantError(f"{place.file} defines {place.within} {len(nodes)} times")
    return range(nodes[0].lineno - 1, nodes[0].end_lineno or 0)


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from definitions(node, f"{prefix}{node.name}.")


def mutated(lines: list[str], index: int, place: Place) -> list[str]:
    """Return the lines with one replaced."""
    line = lines[index]
    indentation = line[: len(line) - len(line.lstrip())]
    changed = [*lines[:index], f"{indentation}{place.new}\n", *lines[index + 1 :]]
    try:
        same = ast.dump(ast.parse("".join(changed))) == ast.dump(ast.parse("".join(lines)))
    except SyntaxError as error:
        raise MutantError(f"{place.file}: with {place.new!r} it is not Python: {error}") from None
    if same:
        raise MutantError(f"{place.file}: {place.new!r} changes nothing")
    return changed


def advice(root: Path, place: Place) -> str:
    """Say where the line, or one like it, stands now."""
    places = {
        (code_of(line), f"{path.relative_to(root)}:{number}")
        for package in PACKAGES
        for path in (root / package).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
    }
    near = difflib.get_close_matches(place.old, {line for line, _ in places}, n=2, cutoff=0.6)
    shown = sorted(f"\n    {where}: {line}" for line, where in places if line in near)[:4]
    return f"; near it are:{''.join(shown)}" if shown else "; nothing in the packages is like it"
