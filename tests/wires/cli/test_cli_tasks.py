"""Tasks on the command line: `call --task` and `tasks list|show|cancel`."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest
from command import Person, refused, started, trio_mcp

TASKS = str(Path(__file__).parents[1] / "transports" / "tasks_app.py")


@pytest.mark.parametrize("mode", ["legacy", "modern"])
def test_a_call_as_a_task_shows_its_id_and_its_state(mode: str) -> None:
    done = trio_mcp("call", "--mode", mode, TASKS, "report", "year=3", "--task", "--answer", "value=4")
    assert (done.returncode, done.stdout) == (0, "3: 4\n"), done.stderr
    assert re.search(r"^task \S{20,}$", done.stderr, re.MULTILINE)
    assert "[completed] writing" in done.stderr


def test_a_call_as_a_task_is_cancelled_with_ctrl_c() -> None:
    with Person("call", TASKS, "endless", "--task") as person:
        person.sees("task ")
        person.presses("\x03")
        assert person.waits() == 128 + signal.SIGINT


def test_tasks_of_a_running_server_are_listed_shown_and_cancelled() -> None:
    with started("serve", TASKS, "--port", "0") as server:
        assert server.stderr is not None
        url = next(found[0] for line in server.stderr if (found := re.search(r"http://\S+/mcp", line)))
        with started("call", url, "endless", "--task") as call:
            assert call.stderr is not None
            task_id = next(line.split()[1] for line in call.stderr if line.startswith("task "))
            shown = trio_mcp("tasks", "show", url, task_id, "--json")
            assert json.loads(shown.stdout)["status"] == "working"
            cancelled = trio_mcp("tasks", "cancel", url, task_id)
            assert task_id in cancelled.stdout
            assert call.wait(30) == 4
            again = trio_mcp("tasks", "cancel", url, task_id, "--json")
            assert json.loads(again.stdout)["status"] == "cancelled"
            listed = trio_mcp("tasks", "list", url, "--mode", "legacy", "--json")
            assert isinstance(json.loads(listed.stdout), list), listed.stderr


def test_mistakes_are_told_in_one_line() -> None:
    assert "ID" in refused(2, "tasks", "show", TASKS)
    assert "ID" in refused(2, "tasks", "list", TASKS, "x")
    assert "--mode legacy" in refused(4, "tasks", "list", TASKS)
    assert "Unknown task" in refused(4, "tasks", "show", TASKS, "x")
    assert "--mode" in refused(2, "tasks", "list", TASKS, "--mode", "x")
