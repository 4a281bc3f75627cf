"""A program that asks models with the official clients leaves nothing open: no socket, no generator, no connection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from serving import IMPORTS, ROOT

PROGRAM = Path(__file__).with_name("ask_local_api.py")


def test_no_request_leaves_a_resource_open_however_it_ends() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", str(PROGRAM)]
    imports = os.pathsep.join([IMPORTS["PYTHONPATH"], str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": imports}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (0, ["done"]), done.stderr
    # The log has a line for each failure; a leaked resource would have a traceback.
    assert [line for line in done.stderr.splitlines() if "Warning" in line or "Traceback" in line] == []
