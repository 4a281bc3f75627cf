"""Tasks on the command line: `call --task` and `tasks list|show|cancel`."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trio
from command import Person, announced, refused, started, trio_mcp
from naming import unnamed

from trio_mcp import Client, accept

TASKS = str(Path(__file__).parents[1] / "interop" / "task_server.py")


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


@contextmanager
def serving() -> Iterator[str]:
    with started("serve", TASKS, "--port", "0") as server:
        yield announced(server)


def test_tasks_of_a_running_server_are_listed_shown_and_cancelled() -> None:
    with serving() as url:
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


async def start_report(url: str) -> str:
    """Start a task, and leave it when it asks."""
    async with Client.connect(url, on_elicit=lambda _: accept(value=0)) as client:
        task = await client.start_tool("report", {"year": 3})
        async for change in task:
            if change.status == "input_required":
                break
        return task.id


def test_a_task_that_its_client_has_left_is_followed_and_answered() -> None:
    with serving() as url:
        done = trio_mcp("tasks", "follow", url, trio.run(start_report, url), "--answer", "value=4")
        assert (done.returncode, done.stdout) == (0, "3: 4\n"), done.stderr
        assert "[completed] writing" in done.stderr
        done = trio_mcp("tasks", "follow", url, trio.run(start_report, url), "--answer", "value=5", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["result"]["content"][0]["text"] == "3: 5"
        done = trio_mcp("tasks", "list", url, "--mode", "legacy")
        assert (done.returncode, done.stdout) == (0, "")
        assert "no tasks" in done.stderr


def test_show_says_what_a_task_asks() -> None:
    with serving() as url:
        task_id = trio.run(start_report, url)
        done = trio_mcp("tasks", "show", url, task_id)
        assert (done.returncode, done.stdout) == (0, "")
        assert unnamed(done.stderr, "input_required", "asks: How many pages?", "value (a whole number)", "follow") == []
        shown = json.loads(trio_mcp("tasks", "show", url, task_id, "--json").stdout)
        (question,) = shown["inputRequests"].values()
        assert question["params"]["message"] == "How many pages?"


def test_an_option_of_calls_is_not_called_an_argument_of_python() -> None:
    said = refused(4, "call", TASKS, "plain", "--task", "--mode", "legacy")
    assert unnamed(said, "'plain'", "--task") == []
    assert "task=True" not in said


def test_mistakes_are_reported_in_one_line() -> None:
    assert "ID" in refused(2, "tasks", "show", TASKS)
    assert "ID" in refused(2, "tasks", "list", TASKS, "x")
    assert "--mode legacy" in refused(4, "tasks", "list", TASKS)
    assert "Unknown task" in refused(4, "tasks", "show", TASKS, "x")
    assert "--mode" in refused(2, "tasks", "list", TASKS, "--mode", "x")
    assert "tasks follow" in refused(2, "tasks", "show", TASKS, "x", "--answer", "value=4")
