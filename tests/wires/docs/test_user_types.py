"""The user code in tests/typing passes strict type checkers, without an ignore."""

from __future__ import annotations

import subprocess
import sys

import pytest
from serving import ROOT

FOLDER = ROOT / "tests" / "typing"


@pytest.mark.parametrize(
    "command",
    [["mypy", "--config-file", str(ROOT / "pyproject.toml")], ["pyright", "--pythonpath", sys.executable]],
    ids=["mypy", "pyright"],
)
def test_user_code_is_typed(command: list[str]) -> None:
    files = sorted(map(str, FOLDER.glob("*.py")))
    assert files
    done = subprocess.run(
        [sys.executable, "-m", *command, *files], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_user_code_ignores_no_complaint() -> None:
    texts = {file.name: file.read_text() for file in FOLDER.glob("*.py")}
    assert [name for name, text in texts.items() if "type: " + "ignore" in text or "pyright: " + "ignore" in text] == []
