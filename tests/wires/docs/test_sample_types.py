"""A type checker finds options of a sample that do not fit."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from serving import ROOT

PROGRAM = """
from trio_mcp import Context


def search(words: str) -> str:
    return words


async def right(ctx: Context) -> None:
    await ctx.sample("?", tools=[search], tool_choice="required")
    await ctx.sample("?", returns=int)


async def wrong(ctx: Context) -> None:
    await ctx.sample("?", tools=[search], returns=int)  # wrong
    await ctx.sample("?", max_token=5)  # wrong
    await ctx.sample("?", tool_choice="any")  # wrong
"""


def test_the_options_of_a_sample_are_typed(tmp_path: Path) -> None:
    program = tmp_path / "asking.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    found = {int(line) for line in re.findall(r"asking\.py:(\d+): error", done.stdout)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
    assert found == wrong, done.stdout + done.stderr
