"""The page on architecture names only modules that exist, and leaves out none of a package that it describes as a table."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
NAME = re.compile(r"`([a-z_0-9/]+(?:\.py|/))`")


def paths() -> set[str]:
    return {str(path.relative_to(ROOT)) + ("/" if path.is_dir() else "") for path in ROOT.glob("t*/**/*") if "__pycache__" not in path.parts}


def test_every_module_that_the_page_names_exists() -> None:
    known = paths()
    named = NAME.findall(PAGE)
    assert named
    assert [name for name in named if not any(path == name or path.endswith(f"/{name}") for path in known)] == []
