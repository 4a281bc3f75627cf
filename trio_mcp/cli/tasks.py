"""`trio-mcp tasks`: list the tasks of a server, show one, follow one to its result, or cancel one."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from functools import partial

import trio

from ..client import Client, ClientTask
from ..printable import one_line
from ..types import CallToolResult, InputRequest, Task
from .arguments import pairs
from .call import check_mode, configure_log, connection, is_file, is_legacy, name_server, show_outcome
from .child_stderr import printable_stderr
from .errors import CommandError, Status, translate_errors
from .interrupts import run_command
from .numbers import seconds
from .output import note, show_change, show_result
from .prompting import Prompting, question_lines
from .terminal import Terminal

EXAMPLES = """\
TARGET is the URL of a server, a command that starts one on stdio, or a .py file that does. ID is what `call --task` shows.

examples:
  trio-mcp call http://127.0.0.1:8000/mcp report year=2026 --task
  trio-mcp tasks list http://127.0.0.1:8000/mcp --mode legacy
  trio-mcp tasks show http://127.0.0.1:8000/mcp ID
  trio-mcp tasks follow http://127.0.0.1:8000/mcp ID --answer value=yes
  trio-mcp tasks cancel http://127.0.0.1:8000/mcp ID

`show` writes the state of a task, what it asks, and the result of one that is over. `follow` writes each change, answers what the
task asks as `call` does, and writes the result; Ctrl-C ends the command, and the task goes on. `list` needs a server of
2025-11-25: modern servers list no tasks. A server that authenticates its callers lists those of the caller
(--header authorization='Bearer ...'); any other lists those of the connection, and this command opens a new one.
"""

ENDED = ("completed", "failed", "cancelled")


def describe(parser: ArgumentParser) -> None:
    """Add the arguments and examples of the command."""
    add = parser.add_argument
    add("action", choices=("list", "show", "follow", "cancel"), metavar="list|show|follow|cancel", help="what to do")
    add("target", metavar="TARGET", help="a URL, a command, or a .py file")
    add("id", metavar="ID", nargs="?", help="the task, for all but list")
    add("--json", action="store_true", help="write JSON")
    add("--mode", default="auto", help="auto, modern, legacy, or a revision to speak (default: %(default)s)")
    add(
        "--timeout", type=seconds, default=math.inf, metavar="SECONDS", help="for the whole command (default: no limit)"
    )
    add("--answer", action="append", default=[], metavar="KEY=VALUE", help="for follow: a field of a form; repeatable")
    add("--sample", action="append", default=[], metavar="TEXT", help="for follow: the model's answer; repeatable")
    add("--root", action="append", default=[], metavar="FOLDER", help="for follow: a folder to work in; repeatable")
    add("--header", action="append", default=[], metavar="NAME=VALUE", help="an HTTP header; repeatable")
    parser.epilog = EXAMPLES


def execute(options: Namespace) -> int:
    """Run the command and return its exit status. Raises `CommandError`."""
    configure_log(options.debug)
    check_mode(options.mode)
    if (options.action == "list") != (options.id is None):
        raise CommandError(
            "tasks list takes no ID" if options.id else f"name the task: tasks {options.action} TARGET ID"
        )
    for name in ("answer", "sample", "root"):
        if getattr(options, name) and options.action != "follow":
            raise CommandError(f"tasks {options.action} answers nothing: use --{name} with tasks follow")
    prompting = Prompting(Terminal(), pairs(options.answer, "--answer ", "KEY=VALUE"), options.sample)
    return run_command(partial(run, options, prompting))


async def run(options: Namespace, prompting: Prompting) -> int:
    """Connect to the target, do what was asked for, and return the exit status."""
    with trio.move_on_after(options.timeout):
        async with printable_stderr() as stderr:
            # Inside, where the errors are not yet in the group of a nursery.
            with translate_errors(starts_file=is_file(options.target)):
                async with connection(options, prompting, stderr) as client:
                    if options.action == "follow":
                        return await follow_task(client, options, prompting)
                    return await ACTIONS[options.action](client, options)
    raise CommandError(f"timed out after {options.timeout:g} seconds", Status.REFUSED)


async def list_tasks(client: Client, options: Namespace) -> int:
    if not is_legacy(client):
        why = (
            f"the server speaks {client.protocol_version}, in which tasks are not listed: name one with tasks show TARGET ID, or "
            "try --mode legacy at a server that authenticates its callers"
        )
        raise CommandError(why, Status.REFUSED)
    tasks = [task async for task in client.tasks()]
    if options.json:
        write_json([task.wire() for task in tasks])
        return Status.OK
    for task in tasks:
        sys.stdout.write(summary(task) + "\n")
    if not tasks:
        note("no tasks; a server that does not authenticate its callers lists only those of this connection")
    return Status.OK


async def show_task(client: Client, options: Namespace) -> int:
    task = find(client, options.id)
    state = await task.status()
    # Only of a task that is over: waiting for it, and answering it, is what `follow` is for.
    result = await task.result() if state.status in ("completed", "failed") else None
    if options.json:
        write_task(state, result, task.questions)
        return Status.OK
    for name, value in state.wire().items():
        note(one_line(f"{name}: {value}"))
    for line in asked_lines(state, task.questions):
        note(line)
    if result is not None:
        show_result(result)
    return Status.TOOL_ERROR if result is not None and result.is_error else Status.OK


async def follow_task(client: Client, options: Namespace, prompting: Prompting) -> int:
    """Show the changes of a task, answer what it asks, and write its result. A cancel leaves the task as it is."""
    name_server(client, prompting)
    task = find(client, options.id)
    result = await task.result(on_change=show_change)
    if not options.json or prompting.problem is not None:
        return show_outcome(result, prompting)
    write_task(await task.status(), result, task.questions)
    return Status.TOOL_ERROR if result.is_error else Status.OK


async def cancel_task(client: Client, options: Namespace) -> int:
    task = find(client, options.id)
    if (await task.status()).status in ENDED:
        note("the task is over already")
    else:
        await task.cancel()
    state = await task.status()
    if options.json:
        write_json(state.wire())
    else:
        sys.stdout.write(summary(state) + "\n")
    return Status.OK


def find(client: Client, task_id: str) -> ClientTask[CallToolResult]:
    try:
        return client.task(task_id)
    except ValueError as error:
        raise CommandError(str(error)) from None


ACTIONS = {"list": list_tasks, "show": show_task, "cancel": cancel_task}


def summary(task: Task) -> str:
    """Return a task for a person to read: its id, its state, when it was created, and its message."""
    message = f"  {task.status_message}" if task.status_message else ""
    return one_line(f"{task.task_id}  {task.status}  {task.created_at}{message}")


def asked_lines(task: Task, questions: Mapping[str, InputRequest]) -> list[str]:
    """Return what a task asks its user and what to do about it, for a person to read; nothing if it does not ask."""
    if task.status != "input_required":
        return []
    lines = [line for question in questions.values() for line in question_lines(question)]
    return [*lines, "`trio-mcp tasks follow` answers it" if lines else "`trio-mcp tasks follow` shows what it asks"]


def write_task(task: Task, result: CallToolResult | None, questions: Mapping[str, InputRequest]) -> None:
    asked = {key: question.wire() for key, question in questions.items()}
    outcome = {} if result is None else {"result": result.wire()}
    write_json({**task.wire(), **({"inputRequests": asked} if asked else {}), **outcome})


def write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=not sys.stdout.isatty(), indent=2) + "\n")
