"""The constants of the product, by the names that its source gives them: a page states them, wherever they are."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from serving import ROOT

PACKAGES = (ROOT / "trio_mcp", ROOT / "transports" / "trio_mcp_transports")


@cache
def assigned(file: Path) -> Mapping[str, str]:
    """Return what a module assigns, by name; that of a class is `Class.name`."""
    found: dict[str, str] = {}
    for outer in ast.parse(file.read_text(encoding="utf-8")).body:
        for node in [outer, *(outer.body if isinstance(outer, ast.ClassDef) else ())]:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                owner = "" if node is outer else f"{outer.name}."
                found[owner + ast.unparse(target)] = ast.unparse(node.value)
    return found


class Constants:
    """Those of the modules of a package, of one module, or of a class: `code.cli.dev.BACKOFF`, `code.base.Backoff.jitter`."""

    def __init__(self, place: str = "", owner: str = "") -> None:
        self._place, self._owner = place, owner

    def __getattr__(self, name: str) -> Any:
        if self._owner or name.isupper():
            return self._value(self._owner + name)
        return Constants(self._place, f"{name}.") if name[0].isupper() else Constants(f"{self._place}/{name}")

    def _value(self, name: str) -> Any:
        """Raise `ValueError` if none of the modules assigns the name, or they assign several values."""
        places = (root.glob(self._place[1:] + ending) for root in PACKAGES for ending in (".py", "/**/*.py"))
        (value,) = {found[name] for found in map(assigned, chain.from_iterable(places)) if name in found}
        return eval(value, {"Backoff": SimpleNamespace})


code = Constants()
