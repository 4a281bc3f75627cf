"""The public names of the packages that `docs/reference.md` lists, and their place in the reference.

A name that several packages have is documented once: in the first package of the list that has it.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections import Counter
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "reference.md"
LISTS = frozenset({"reference", "renamed", "fastmcp", "index"})
"""Pages that list names, and explain none."""
MOST_PAGES = 3
"""Pages to which the entry of a name leads."""
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


def page_of(package: str) -> str:
    """Return the link to the page about a package, as reStructuredText: the first link of its row."""
    row = re.search(rf"^\| `{re.escape(package)}` \|.*?\[([^]]+)\]\(([^)]+)\)", PAGE.read_text("utf-8"), re.MULTILINE)
    if row is None:
        raise LookupError(f"{PAGE.name}: the row of {package} has no link")
    text, target = row.groups()
    return f"`{text} <{target}>`__" if "://" in target else f":doc:`/{target.removesuffix('.md')}`"


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


@cache
def words_of_pages() -> dict[str, Counter[str]]:
    """Return how often each word is on each page of the documentation, by the name of the page."""
    pages = sorted(DOCS.rglob("*.md"))
    return {
        page.relative_to(DOCS).with_suffix("").as_posix(): Counter(re.findall(r"\w+", page.read_text(encoding="utf-8")))
        for page in pages
    }


def explained_in(each: PublicName) -> list[str]:
    """Return the links that an entry has: to the pages that use the name most, or else the one of its package."""
    counts = {
        page: words[each.name] for page, words in words_of_pages().items() if page not in LISTS and words[each.name]
    }
    most = sorted(counts, key=lambda page: (-counts[page], page))[:MOST_PAGES]
    return [f":doc:`/{page}`" for page in most] or [page_of(each.package)]


def elsewhere(package: str) -> list[PublicName]:
    """Return the names of a package that the page of another one documents."""
    module = importlib.import_module(package)
    here = {each.name for each in documented()[package]}
    owners = {(each.name, id(each.value)): each for names in documented().values() for each in names}
    return [owners[name, id(getattr(module, name))] for name in names_of(package) if name not in here]
