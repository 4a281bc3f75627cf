"""The code of the pages passes a strict type checker as it is printed; one run checks them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pages import Page
from serving import ROOT

PAGES = [
    "deployment",
    "asyncio",
    "branches",
    "cancellation",
    "clients",
    "composition",
    "agents",
    "forms",
    "groups",
    "handoff",
    "fastmcp",
    "howto",
    "http",
    "internals/contract",
    "observing",
    "openapi",
    "results",
    "servers",
    "state",
    "testing",
    "tool-search",
    "websocket",
]


def test_the_code_of_every_page_is_typed(tmp_path: Path) -> None:
    files = [tmp_path / f"{page.replace('/', '_')}_page.py" for page in PAGES]
    for page, file in zip(PAGES, files, strict=True):
        file.write_text("\n\n".join(Page(page).blocks))
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
