"""Open every page of the built site in Chromium: light and dark, wide and narrow, from the disk as a reader may.

    python tests/site/look.py build/site [--screenshots FOLDER] [PAGE ...]

A page fails that logs an error, requests something that is not there or not on this disk, lacks a picture, or is wider than the
window: tables and blocks of code have to scroll by themselves. At last the search has to find pages. `CHROMIUM` names the browser
if it is not on PATH.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
SEARCHES = {"elicit": "forms", "journal": "glossary", "ClientGroup": "reference/trio_mcp"}
"""What readers search for, and a page that has to be among the results."""

WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
MISSING = "[...document.images].filter(image => !image.complete || !image.naturalWidth).map(image => image.src)"
WAIT = 20_000  # milliseconds


class Visitor:
    """One window, and what went wrong in it."""

    def __init__(self, browser: Browser, size: str, scheme: str) -> None:
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        self.name = f"{size}, {scheme}"
        self.page: Page = context.new_page()
        self.problems: list[str] = []
        self.page.on(
            "console", lambda message: self._note(message.text) if message.type in {"error", "warning"} else None
        )
        self.page.on("pageerror", lambda error: self._note(str(error)))
        self.page.on("requestfailed", lambda request: self._note(f"{request.url} could not be loaded"))
        self.page.on(
            "request", lambda request: None if local(request.url) else self._note(f"{request.url} is not local")
        )

    def _note(self, text: str) -> None:
        self.problems.append(text)

    def open(self, url: str) -> list[str]:
        """Open a page, and return what is wrong with it."""
        self.problems.clear()
        self.page.goto(url, wait_until="load", timeout=WAIT)
        if wider := self.page.evaluate(WIDER):
            self._note(f"the page is {wider} pixels wider than the window")
        self.problems += [f"the picture {source} is missing" for source in self.page.evaluate(MISSING)]
        return list(self.problems)


def local(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:"))


def pages(site: Path) -> list[str]:
    return sorted(file.relative_to(site).as_posix() for file in site.rglob("*.html"))


def visit(browser: Browser, site: Path, names: list[str], screenshots: Path | None) -> Iterator[str]:
    """Yield what is wrong with each page in each window."""
    for size in SIZES:
        for scheme in SCHEMES:
            visitor = Visitor(browser, size, scheme)
            for name in names:
                yield from (f"{name} ({visitor.name}): {each}" for each in visitor.open((site / name).as_uri()))
                if screenshots is not None:
                    file = screenshots / f"{name.removesuffix('.html').replace('/', '-')}-{size}-{scheme}.png"
                    visitor.page.screenshot(path=file)
            visitor.page.context.close()


def search(browser: Browser, site: Path) -> Iterator[str]:
    """Yield the searches that do not find what they should."""
    visitor = Visitor(browser, "wide", "light")
    for text, expected in SEARCHES.items():
        visitor.page.goto(f"{(site / 'search.html').as_uri()}?q={text}")
        found = visitor.page.locator("#search-results .search li a")
        visitor.page.get_by_text("Search finished").first.wait_for(timeout=WAIT)
        links = [each.get_attribute("href") or "" for each in found.all()]
        if not any(f"{expected}.html" in link for link in links):
            yield f"a search for {text} does not find {expected}, but {links}"
    visitor.page.context.close()


def main() -> int:
    arguments = argparse.ArgumentParser(description="Open every page of the built site in Chromium.")
    arguments.add_argument("site", type=Path)
    arguments.add_argument("page", nargs="*", help="a page, such as limits.html; all of them by default")
    arguments.add_argument("--screenshots", type=Path, metavar="FOLDER", help="where to put a picture of each page")
    options = arguments.parse_args()
    site: Path = options.site.resolve()
    names = options.page or pages(site)
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not names or program is None:
        print("there are no pages: run `make site`" if program else "Chromium is not installed", file=sys.stderr)
        return 2
    if options.screenshots is not None:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        problems = [*visit(browser, site, names, options.screenshots), *search(browser, site)]
        browser.close()
    for problem in problems:
        print(problem)
    print(
        f"{len(names)} pages in {len(SIZES) * len(SCHEMES)} windows, {len(SEARCHES)} searches: {len(problems)} problems"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
