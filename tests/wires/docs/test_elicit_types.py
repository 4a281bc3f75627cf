"""A type checker compares the context of a declared question with what the question declares."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from serving import ROOT

PROGRAM = """
from pydantic import BaseModel

from trio_mcp import Context, Elicit


class Board(BaseModel):
    cells: list[str]


SEAT = Elicit("seat", str)
PICK = Elicit("pick", int, context=Board)


async def right(ctx: Context) -> None:
    await ctx.elicit("?", PICK, context=Board(cells=[]))
    await ctx.elicit("?", SEAT)


async def wrong(ctx: Context) -> None:
    await ctx.elicit("?", PICK, context="no board")  # wrong
    await ctx.elicit("?", SEAT, context=3)  # wrong
"""


def test_the_context_of_a_question_is_of_the_declared_type(tmp_path: Path) -> None:
    program = tmp_path / "asking.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    found = {int(line) for line in re.findall(r"asking\.py:(\d+): error", done.stdout)}
    expected = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == expected, done.stdout + done.stderr
