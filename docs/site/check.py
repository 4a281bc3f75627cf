"""Check the built site: its links, what it loads, and that the reference has every public name.

Sphinx checks the links that it makes from the pages. This reads what a browser will: the navigation, the theme, the pictures.
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from public_names import documented, methods
from sphinx.util.inventory import InventoryFile

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("source", "src"), ("iframe", "src")}
NOT_LOADED = {"canonical", "index", "search", "next", "prev", "license"}


class Page(HTMLParser):
    """What a page of the site links to, what it loads, and which anchors it has."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name, value in attrs:
            if value and name == "id":
                self.anchors.add(value)
            elif value and (tag, name) in LOADED:
                self.links.add(value)
                if values.get("rel") not in NOT_LOADED:
                    self.loads.add(value)
            elif value and (tag, name) == ("a", "href"):
                self.links.add(value)


@cache
def page(file: Path) -> Page:
    return Page(file)


def problems(site: Path) -> list[str]:
    """Return what is wrong with the site, a line for each."""
    found = []
    for file in sorted(site.rglob("*.html")):
        name = file.relative_to(site)
        found += [
            f"{name} loads {each}" for each in sorted(page(file).loads) if urlsplit(each).scheme not in {"", "data"}
        ]
        found += [f"{name}: the link {each} is broken" for each in sorted(page(file).links) if is_broken(file, each)]
    return found + [f"the reference lacks {each}" for each in undocumented(site)]


def undocumented(site: Path) -> list[str]:
    """Return the public names and methods that the inventory of the site lacks. (Of one that it has twice, Sphinx warns.)"""
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    has = {name for kind, objects in inventory.items() if kind.startswith("py:") for name in objects}
    public = [each for names in documented().values() for each in names]
    paths = [path for each in public for path in (each.path, *(f"{each.path}.{name}" for name in methods(each.value)))]
    return [path for path in paths if path not in has]


def is_broken(file: Path, link: str) -> bool:
    """Return whether a link of a page leads to no file of the site, or to no anchor."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if not target.is_file():
        return True
    anchor = unquote(parts.fragment)
    # `#` alone, and anchors of scripts, lead to the top.
    return bool(anchor) and target.suffix == ".html" and anchor not in page(target).anchors


def main(folder: str) -> int:
    found = problems(Path(folder).resolve())
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
