"""Every relative link in the pages leads to a file that exists, and to a heading or an anchor in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')


def text_of(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    text = text_of(page)
    return {slug(title) for title in HEADING.findall(text)} | set(ANCHOR.findall(text))


def slug(title: str) -> str:
    """Return the anchor that a forge gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def broken(page: Path) -> list[str]:
    found = []
    for path, anchor in LINK.findall(text_of(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(f"{path}#{anchor}")
    return found


def test_there_are_pages() -> None:
    assert ROOT / "docs" / "internals" / "architecture.md" in PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_every_word_of_the_glossary_is_defined_once_and_both_lists_are_in_alphabetical_order() -> None:
    guides, code = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("\n## ")[1:]
    lists = [re.findall(r"^### (.*)$", part, re.MULTILINE) for part in (guides, code)]
    assert all(lists)
    assert lists == [sorted(words, key=str.lower) for words in lists]
    words = [word for each in lists for word in each]
    assert len(words) == len(set(words))
