"""`.ci/run` runs every lane of CONTRIBUTING.md, names what is missing, and fails with the first lane that fails."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("bash", "cat", "dirname", "mktemp", "rm")
SECONDS = 30

MAKE = """\
#!/usr/bin/env bash
echo "$@" >> made
echo "made $*"
[[ " $* " != *" $FAILS "* ]]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the script, and programs that it finds: a `make` that only notes its goals, and an `apt-get` that fails."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"make": MAKE, "apt-get": "#!/bin/sh\nexit 1\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name in TOOLS:
        (programs / name).symlink_to(shutil.which(name) or pytest.skip(f"there is no {name}"))
    return tmp_path


def run(folder: Path, fails: str = "none") -> tuple[int, str, list[str]]:
    """Run the script; return its exit status, what it wrote, and the goals in the order of their lanes."""
    environment = {"PATH": str(folder / "bin"), "FAILS": fails, "TMPDIR": str(folder)}
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout, (folder / "made").read_text().splitlines()


def lanes() -> set[str]:
    _, _, rest = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("### Lanes")
    return set(re.findall(r"^\| `([a-z-]+)` \|", rest.partition("To run one folder")[0], re.MULTILINE))


def test_every_lane_of_the_page_runs(folder: Path) -> None:
    for name in ("chromium", "npm"):
        (folder / "bin" / name).symlink_to(folder / "bin" / "cat")
    status, _, made = run(folder)
    assert status == 0
    assert len(lanes()) == 10
    assert lanes() - {goal for line in made for goal in line.split()} == set()


def test_what_is_missing_is_named_and_the_lanes_run_without(folder: Path) -> None:
    status, output, made = run(folder)
    assert status == 0
    assert {"chromium", "debootstrap", "redis-server", "pgbouncer", "nginx"} <= set(output.split())
    assert any("site" in line.split() for line in made)
    assert "NOT EVERYTHING IS TESTED" in output


@pytest.mark.parametrize("lane", ["lint", "conformance", "pythons"])
def test_a_lane_that_fails_beside_others_ends_the_run_after_them_and_shows_what_it_wrote(
    folder: Path, lane: str
) -> None:
    status, output, made = run(folder, lane)
    assert status != 0
    assert len(re.findall(rf"^made .*\b{lane}\b", output, re.MULTILINE)) == 1
    # The first installs what they need.
    assert len(made) == 4


@pytest.mark.parametrize("lane", ["test", "test-pythons", "sweep", "test-wires"])
def test_a_lane_that_fails_alone_ends_the_run(folder: Path, lane: str) -> None:
    status, _, made = run(folder, lane)
    assert status != 0
    assert made[-1] == lane
