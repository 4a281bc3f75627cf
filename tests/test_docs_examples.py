"""docs/examples.md lists every example."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("**/*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_the_page_lists_every_example(example: Path) -> None:
    path = example.relative_to(ROOT).as_posix()
    assert f"(../{path})" in (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
