"""The page docs/internals/modules.md: every module, with the first sentence of its docstring.

`python docs/site/modules.py` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from floors import ROOT, floors, purpose, source_of

PAGE = ROOT / "docs" / "internals" / "modules.md"
HEAD = """# Modules

Every module with the first sentence of its docstring, from the highest [floor](architecture.md#floors) to the lowest.
`python docs/site/modules.py` writes it. [Architecture](architecture.md) says how they work together.
"""
MODULES = "## Packages of one module"


def page() -> str:
    """Return the page as it should be."""
    packages = [name for names in reversed(floors()) for name in names]
    folders = [name for name in packages if source_of(name).name == "__init__.py"]
    alone = [name for name in packages if name not in folders]
    parts = [part for name in folders for part in sections(name)]
    rows = [f"| `{name.rpartition('.')[2]}.py` | {purpose(name)} |" for name in alone]
    return "\n".join([HEAD, *parts, MODULES, "", *table(rows)])


def sections(package: str) -> Iterator[str]:
    """Yield the heading, the purpose and the table of a package, and of each of its folders."""
    root = source_of(package).parent
    for folder in sorted({file.parent for file in root.rglob("*.py")}):
        inner = folder.relative_to(root)
        name = ".".join([package, *inner.parts])
        files = sorted(file for file in folder.glob("*.py") if file.name != "__init__.py")
        if files:
            level = "##" if folder == root else "###"
            rows = [f"| `{(inner / file.name).as_posix()}` | {purpose(f'{name}.{file.stem}')} |" for file in files]
            yield "\n".join([f"{level} `{name}`", "", f"{purpose(name)}.", "", *table(rows)])


def table(rows: list[str]) -> list[str]:
    return ["| module | what it has |", "|---|---|", *rows, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
