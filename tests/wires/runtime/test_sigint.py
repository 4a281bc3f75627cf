"""A real Ctrl-C at a process that runs actors."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send to another process")
def test_a_real_ctrl_c_reaches_the_main_task_and_not_the_actor_it_hits() -> None:
    app = Path(__file__).with_name("sigint_app.py")
    with subprocess.Popen([sys.executable, str(app)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    lines = rest.splitlines()
    assert lines[0] == "actor: Cancelled"
    assert "KeyboardInterrupt" in lines[-1]
