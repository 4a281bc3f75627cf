"""`trio-mcp completion` in the shells themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from serving import START

ASK_BASH = """\
source script
COMP_WORDS=(trio-mcp {words}); COMP_CWORD={count}
"$(complete -p trio-mcp | sed 's/.*-F \\([^ ]*\\).*/\\1/')" trio-mcp
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ASK_FISH = "source script\ncomplete -C 'trio-mcp {words}'\n"
ASK = {"bash": ASK_BASH, "fish": ASK_FISH}


def completed(shell: str, words: str, folder: Path) -> list[str]:
    """Return what a shell completes, a line for each."""
    folder.joinpath("trio-mcp").write_text(f'#!/bin/sh\nexec {sys.executable} -m trio_mcp "$@"\n')
    folder.joinpath("trio-mcp").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
    make = ["trio-mcp", "completion", shell]
    script = subprocess.run(make, capture_output=True, text=True, timeout=START, check=True, env=environment).stdout
    folder.joinpath("script").write_text(script)
    ask = ASK[shell].format(words=words, count=len(words.split()))
    done = subprocess.run(
        [shell, "-c", ask], cwd=folder, capture_output=True, text=True, timeout=START, env=environment
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("shell", ASK)
@pytest.mark.parametrize(
    ("words", "found"),
    [("ins", ["inspect", "install"]), ("install cu", ["cursor"]), ("serve --allowed-h", ["--allowed-host"])],
)
def test_a_shell_completes(shell: str, words: str, found: list[str], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert [line.partition("\t")[0] for line in completed(shell, words, tmp_path)] == found


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_shows_a_description_with_a_comma_whole(tmp_path: Path) -> None:
    assert completed("fish", "list --mod", tmp_path) == [
        "--mode\tThe era to speak: auto, modern, legacy, or a revision."
    ]
