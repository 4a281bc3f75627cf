"""A page of the documentation, for the tests that hold it to the code."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import trio
from serving import ROOT, START
from trio.testing import MockClock

from trio_mcp.cli.program import MODULES, main, program

__all__ = ["ALL", "DOCS", "MODULES", "Names", "Page", "kept", "main", "program", "run", "sources", "taken"]

Names = dict[str, Any]

DOCS = ROOT / "docs"
ALL = sorted(page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md"))
"""The names of all pages: a new one is found here."""

VIRTUAL_TIME = {"cancellation", "state", "testing"}
"""Pages whose code waits; that of others may work in threads, for which a virtual clock would not wait."""


class Page:
    """A page of `docs/`. Its blocks of Python are one program."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
        self.prose = " ".join(self.text.split())
        """The text without line breaks."""
        self.blocks = re.findall(r"```python\n(.*?)```", self.text, re.DOTALL)

    def run(self) -> Names:
        """Run the program from top to bottom; return what it defines."""
        # A module that can be imported by its name, because annotations are evaluated in it later.
        module = sys.modules[f"{self.name}_page"] = ModuleType(f"{self.name}_page")
        for block in self.blocks:
            exec(compile(block, f"docs/{self.name}.md", "exec", dont_inherit=True), vars(module))
        return vars(module)

    def play(self, function: Callable[..., Any], *values: Any, **arguments: Any) -> None:
        """Call a function of the page, or run it if it is async; in virtual time where the page allows it."""
        if not inspect.iscoroutinefunction(inspect.unwrap(function)):
            function(*values, **arguments)
            return

        virtual = self.name in VIRTUAL_TIME

        async def bounded() -> None:
            with trio.fail_after(1000 if virtual else START):
                await function(*values, **arguments)

        trio.run(bounded, clock=MockClock(autojump_threshold=0) if virtual else None)


def run(name: str) -> Names:
    """Run the program of a page; return what it defines."""
    return Page(name).run()


kept = cache(run)
"""The same, once: for tests that change nothing of it."""


def taken(function: Callable[..., Any], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return those of the values that a function has parameters for."""
    return {name: given[name] for name in inspect.signature(function).parameters if name in given}


def sources(*others: str) -> str:
    """Return our code, and that of modules of others, with the pieces of each long text put together."""
    found = [find_spec(name) for name in others]
    files = [file for folder in ("trio_mcp", "transports") for file in (ROOT / folder).rglob("*.py")]
    files += [Path(spec.origin) for spec in found if spec is not None and spec.origin is not None]
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return re.sub(r"""["']\s+f?["']""", "", text)
