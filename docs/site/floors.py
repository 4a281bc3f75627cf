"""The tables of floors in CONTRIBUTING.md and docs/internals/architecture.md, made from the layers in pyproject.toml.

`python docs/site/floors.py` writes them. Each package is described by the first line of its docstring.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "internals" / "architecture.md")
BEGIN, END = "<!-- floors, by docs/site/floors.py -->\n", "<!-- end of floors -->\n"
SENTENCE = re.compile(r".*?\.(?=\s|$)")


def floors() -> list[list[str]]:
    """Return the packages of each floor, the lowest first."""
    linter = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = (each for each in linter["contracts"] if each["type"] == "layers")
    return [re.findall(r"[\w.]+", layer) for layer in reversed(contract["layers"])]


def source_of(name: str) -> Path:
    """Return the file of a package or module."""
    base = ROOT / "transports" if name.startswith("trio_mcp_transports") else ROOT
    path = base.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def purpose(name: str) -> str:
    """Return the first sentence of the docstring of a package or module."""
    source = source_of(name).read_text(encoding="utf-8")
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    sentence = SENTENCE.match(text)
    assert sentence is not None, f"{name} has no docstring"
    return sentence[0].rstrip(".")


def table() -> str:
    """Return the table, the highest floor first."""
    rows = [
        f"| {number} | `{name}` | {purpose(name)} |"
        for number, packages in reversed(list(enumerate(floors())))
        for name in packages
    ]
    return "\n".join(["", "| floor | package | what it is for |", "|---|---|---|", *rows, "", ""])


def with_table(page: str) -> str:
    """Return a page with the table as it should be. Raises `ValueError` if it has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no place for the table of floors")
    return f"{before}{begin}{table()}{end}{after}"


if __name__ == "__main__":
    for file in PAGES:
        file.write_text(with_table(file.read_text(encoding="utf-8")), encoding="utf-8")
