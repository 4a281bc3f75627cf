"""The official conformance suite against a server on uvicorn: all scenarios for servers pass, as on our own connection."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from serving import ROOT

SECONDS = 300.0
NO_SETUP = 2
"""The status of a run for which something is missing."""

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="the suite is installed by npm, which is not there")


def test_every_scenario_of_a_server_passes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "conformance" / "run.py"), "--uvicorn", "--only", "^server"]
    done = subprocess.run(
        [*command, "--results", str(tmp_path)], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode == NO_SETUP:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout
    assert "Everything passed." in done.stdout
