"""The public names of the packages that `docs/reference.md` lists, and their place in the reference.

A name that several packages have is documented once: in the first package of the list that has it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[1] / "reference.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \|", re.MULTILINE)


class PublicName(NamedTuple):
    """A name in the reference."""

    package: str
    name: str
    value: object

    @property
    def path(self) -> str:
        return f"{self.package}.{self.name}"


def packages() -> list[str]:
    """Return the packages of the reference, in order."""
    return ROW.findall(PAGE.read_text("utf-8"))


def names_of(package: str) -> list[str]:
    """Return the public names of a package, or of a module without `__all__`."""
    module = importlib.import_module(package)
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return listed
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == package
        and (inspect.isclass(value) or inspect.isroutine(value))
    ]


@cache
def documented() -> dict[str, list[PublicName]]:
    """Return what the page of each package documents."""
    seen: set[tuple[str, int]] = set()
    found: dict[str, list[PublicName]] = {}
    for package in packages():
        found[package] = []
        for name in names_of(package):
            value: object = getattr(importlib.import_module(package), name)
            if (name, id(value)) not in seen:
                seen.add((name, id(value)))
                found[package].append(PublicName(package, name, value))
    return found


def methods(value: object) -> list[str]:
    """Return the public methods and properties that a class has from our code, but not from another documented class."""
    if not inspect.isclass(value):
        return []
    others = [each.value for names in documented().values() for each in names if each.value is not value]
    # What follows in the order of the bases is a base of theirs, or of a class of another project.
    bases = list(takewhile(lambda base: base not in others and base.__module__.startswith("trio_mcp"), value.__mro__))
    owners = {name: base for base in reversed(bases) for name in vars(base) if not name.startswith("_")}
    return [name for name, base in owners.items() if is_described_method(vars(base)[name])]


def is_described_method(value: object) -> bool:
    function = getattr(value, "__func__", value)
    return (inspect.isfunction(function) or isinstance(value, property)) and bool(function.__doc__)


def elsewhere(package: str) -> list[PublicName]:
    """Return the names of a package that the page of another one documents."""
    module = importlib.import_module(package)
    here = {each.name for each in documented()[package]}
    owners = {(each.name, id(each.value)): each for names in documented().values() for each in names}
    return [owners[name, id(getattr(module, name))] for name in names_of(package) if name not in here]
