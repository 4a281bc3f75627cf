"""The code of the pages and the user code in tests/typing pass strict type checkers; those in tests/typing_mistakes does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pages import ALL, Page
from serving import ROOT

USERS = sorted((ROOT / "tests" / "typing").glob("*.py"))
MISTAKES = sorted((ROOT / "tests" / "typing_mistakes").glob("*.py"))
"""Each mistake has the ignore that it needs; mypy complains of one that nothing needs."""
UNTYPED = {
    "backfill": "a function without a type of its result",
    "rounds": "a lambda with a default",
    "tool-loops": "a list of tools of several kinds",
}
"""Pages that are shorter with code which a strict type checker does not follow."""


def checked(command: list[str], files: list[Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command, *map(str, files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.wires
def test_mypy_accepts_user_code_and_every_page_and_finds_every_mistake(tmp_path: Path) -> None:
    files = []
    for name in ALL:
        if (blocks := Page(name).blocks) and not name.startswith("tutorial/") and name not in UNTYPED:
            files.append(tmp_path / f"{name.replace('/', '_').replace('-', '_')}_page.py")
            files[-1].write_text("\n\n".join(blocks))
    checked(["mypy", "--config-file", str(ROOT / "pyproject.toml")], [*files, *USERS, *MISTAKES])


@pytest.mark.wires
def test_pyright_accepts_user_code() -> None:
    checked(["pyright", "--pythonpath", sys.executable], USERS)


def test_user_code_ignores_no_complaint() -> None:
    texts = {file.name: file.read_text() for file in USERS}
    assert texts
    assert [name for name, text in texts.items() if "type: " + "ignore" in text or "pyright: " + "ignore" in text] == []
