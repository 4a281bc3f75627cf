"""Put the sources of the site into one folder, from which Sphinx builds it.

The pages of `docs/` have links that work on a forge. Some lead out of `docs/`: to the changelog, the examples, the files for
deployment. The site has a page for each of these files. Here the links are changed to lead there; nothing else in a page is,
except in the index, whose lists become the navigation.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import public_names
import reference_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
}
"""What is beside `docs/`, and the page of the site for it."""

PICTURES = ("*.svg", "*.png")
STAGED_AS_THEY_ARE = (".md", ".rst", ".svg", ".png")
LANGUAGES = {".py": "python", ".conf": "nginx", ".yaml": "yaml", ".json": "json", ".service": "ini", ".socket": "ini"}

FENCED = re.compile(r"^(?P<fence>[ ]*```+).*?^(?P=fence)[ ]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<name>\[[\w./-]+\.md)?\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)]*)?\)")
SECTION = re.compile(r"^(?=## )", re.MULTILINE)

Sources = dict[str, bytes]


def sources() -> Sources:
    """Return every file that Sphinx reads, by its path in the source folder."""
    found: Sources = {}
    for page in sorted(DOCS.rglob("*.md")):
        found[page.relative_to(DOCS).as_posix()] = text_of(page).encode()
    for page in sorted(DOCS.rglob("*.rst")):
        found[page.relative_to(DOCS).as_posix()] = page.read_bytes()
    for picture in sorted(each for pattern in PICTURES for each in DOCS.rglob(pattern)):
        found[picture.relative_to(DOCS).as_posix()] = picture.read_bytes()
    for page in (ROOT / path for path in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")):
        found[staged_name(page)] = text_of(page).encode()
    found |= file_pages({*linked_files(), *examples(), *deployment_files()})
    found["examples.md"] += toctree(f"/{name(file)}" for file in examples()).encode()
    found["deployment.md"] += toctree(
        f"/{staged_name(file).removesuffix('.md')}" for file in deployment_files()
    ).encode()
    found |= {name: text.encode() for name, text in reference_pages.pages()}
    found["reference.md"] += toctree(f"reference/{package}" for package in public_names.packages()).encode()
    found["index.md"] = with_navigation(found["index.md"].decode()).encode()
    return found


def write(found: Mapping[str, bytes], folder: Path) -> None:
    """Write the files, leaving those alone that have not changed, and remove all others from the folder."""
    for name, content in found.items():
        file = folder / name
        if not file.is_file() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    for file in folder.rglob("*"):
        if file.is_file() and file.relative_to(folder).as_posix() not in found:
            file.unlink()


def name(file: Path) -> str:
    """Return the path of a file in the repository."""
    return file.relative_to(ROOT).as_posix()


# links


def staged_name(file: Path) -> str:
    """Return the path in the source folder of the page about a file of the repository."""
    path = name(file)
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    path = path.removeprefix("docs/")
    return path if file.suffix in STAGED_AS_THEY_ARE else f"{path}.md"


def text_of(page: Path) -> str:
    """Return the text of a page with its links as they have to be in the source folder."""
    here = Path(staged_name(page)).parent

    def relinked(match: re.Match[str]) -> str:
        target = (page.parent / match["path"]).resolve()
        if not target.exists():
            raise FileNotFoundError(f"{name(page)}: the link to {match['path']} leads to no file")
        # A link that shows the name of a file shows the title of the page instead.
        return f"{'[' if match['name'] else ''}]({os.path.relpath(staged_name(target), here)}{match['anchor'] or ''})"

    return "".join(part if fenced else LINK.sub(relinked, part) for fenced, part in parts(page.read_text("utf-8")))


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the text in parts, and of each whether it is a fenced block."""
    end = 0
    for block in FENCED.finditer(text):
        yield False, text[end : block.start()]
        yield True, block.group()
        end = block.end()
    yield False, text[end:]


def linked_files() -> set[Path]:
    """Return the files outside of `docs/`, other than pages, to which a page has a link."""
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    targets = {
        (page.parent / match["path"]).resolve()
        for page in pages
        for fenced, part in parts(page.read_text("utf-8"))
        if not fenced
        for match in LINK.finditer(part)
    }
    return {each for each in targets if each.is_file() and not each.is_relative_to(DOCS) and each.suffix != ".md"}


# pages about files


def examples() -> list[Path]:
    """Return every example."""
    return sorted((ROOT / "examples").rglob("*.py"))


def deployment_files() -> list[Path]:
    """Return the files for deployment."""
    return sorted((ROOT / "docs" / "deploy").iterdir())


def file_pages(files: set[Path]) -> Sources:
    """Return a page for each file, and the file itself beside it."""
    found: Sources = {}
    for file in sorted(files):
        found[staged_name(file).removesuffix(".md")] = file.read_bytes()
        found[staged_name(file)] = file_page(file).encode()
    return found


def file_page(file: Path) -> str:
    """Return a page that shows a file: its docstring as text, if it has one, and the rest as code."""
    text = file.read_text("utf-8")
    about, first_line = docstring(text) if file.suffix == ".py" else ("", 1)
    return (
        f"# {file.name}\n\n{about}\n\n"
        f"`{name(file)}` ({{download}}`download <{file.name}>`)\n\n"
        f"```{{literalinclude}} {file.name}\n"
        f":language: {LANGUAGES.get(file.suffix, 'text' if file.name != 'Dockerfile' else 'docker')}\n"
        f":lines: {first_line}-\n"
        "```\n"
    )


def docstring(text: str) -> tuple[str, int]:
    """Return the docstring of a module, and the number of the first line after it."""
    module = ast.parse(text)
    about = ast.get_docstring(module)
    return (about, (module.body[0].end_lineno or 0) + 2) if about else ("", 1)


# navigation


def with_navigation(index: str) -> str:
    """Return the index with a table of contents for each of its sections: the pages that the section links to, in order."""
    head, *sections = SECTION.split(index)
    return head + "".join(section + contents(section) for section in sections)


def contents(section: str) -> str:
    """Return the table of contents of one section."""
    title = section.split("\n", 1)[0].removeprefix("## ")
    pages = dict.fromkeys(match["path"] for match in LINK.finditer(section))
    return toctree((page.removesuffix(".md") for page in pages), f":caption: {title}\n")


def toctree(entries: Iterable[str], options: str = "") -> str:
    """Return a table of contents that is shown beside the pages only."""
    listed = "\n".join(entries)
    return f"\n\n```{{toctree}}\n:hidden:\n{options}\n{listed}\n```\n\n"


if __name__ == "__main__":
    write(sources(), Path(sys.argv[1]))
