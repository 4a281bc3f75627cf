"""`trio-mcp tasks`: list the tasks of a server, show one, follow one to its result, or cancel one."""

from __future__ import annotations

from collections.abc import Mapping

import click

from ...base.values import one_line
from ...client import Client, ClientTask
from ...types import CallToolResult, InputRequest, Task
from ..arguments import json_option
from ..command import REFUSED, CommandError, Status, command
from ..connecting import Answering, Connecting, answers, connects, is_legacy, use_server
from ..terminal.messages import show_change, show_result
from ..terminal.output import note, show_json, show_lines
from ..terminal.prompting import Prompting, question_lines
from .call import show_outcome

EXAMPLES = """\
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


@command("tasks", EXAMPLES, {Status.TOOL_ERROR: "the result of the task is an error", **REFUSED})
@click.argument("action", type=click.Choice(["list", "show", "follow", "cancel"]), metavar="list|show|follow|cancel")
@connects
@click.argument("task_id", required=False, metavar="ID")
@json_option
@answers
def command_line(action: str, connecting: Connecting, task_id: str | None, as_json: bool, answering: Answering) -> int:
    """List, show, follow or cancel the tasks of a server.

    TARGET is what `trio-mcp call` takes, and ID what `call --task` shows. `list` takes no ID.
    """
    if (action == "list") != (task_id is None):
        raise CommandError("tasks list takes no ID" if task_id else f"name the task: tasks {action} TARGET ID")
    for name, given in (("answer", answering.answers), ("sample", answering.samples), ("root", answering.roots)):
        if given and action != "follow":
            raise CommandError(f"tasks {action} answers nothing: use --{name} with tasks follow")

    async def use(client: Client, prompting: Prompting) -> int:
        if task_id is None:
            return await list_tasks(client, as_json)
        task = find(client, task_id)
        if action == "follow":
            return await follow_task(task, as_json, prompting)
        return await (show_task if action == "show" else cancel_task)(task, as_json)

    return use_server(connecting, answering, use)


async def list_tasks(client: Client, as_json: bool) -> int:
    if not is_legacy(client):
        why = (
            f"the server speaks {client.protocol_version}, in which tasks are not listed: name one with tasks show TARGET ID, or "
            "try --mode legacy at a server that authenticates its callers"
        )
        raise CommandError(why, Status.REFUSED)
    tasks = [task async for task in client.tasks()]
    if as_json:
        show_json([task.wire() for task in tasks])
        return Status.OK
    show_lines([summary(task) for task in tasks])
    if not tasks:
        note("no tasks; a server that does not authenticate its callers lists only those of this connection")
    return Status.OK


async def show_task(task: ClientTask[CallToolResult], as_json: bool) -> int:
    state = await task.status()
    # Only of a task that is over: waiting for it, and answering it, is what `follow` is for.
    result = await task.result() if state.status in ("completed", "failed") else None
    if as_json:
        write_task(state, result, task.questions)
        return Status.OK
    for name, value in state.wire().items():
        note(one_line(f"{name}: {value}"))
    for line in asked_lines(state, task.questions):
        note(line)
    if result is not None:
        show_result(result)
    return Status.TOOL_ERROR if result is not None and result.is_error else Status.OK


async def follow_task(task: ClientTask[CallToolResult], as_json: bool, prompting: Prompting) -> int:
    """Show the changes of a task, answer what it asks, and write its result. A cancel leaves the task as it is."""
    result = await task.result(on_change=show_change)
    if not as_json or prompting.problem is not None:
        return show_outcome(result, prompting)
    write_task(await task.status(), result, task.questions)
    return Status.TOOL_ERROR if result.is_error else Status.OK


async def cancel_task(task: ClientTask[CallToolResult], as_json: bool) -> int:
    if (await task.status()).status in ENDED:
        note("the task is over already")
    else:
        await task.cancel()
    state = await task.status()
    if as_json:
        show_json(state.wire())
    else:
        show_lines([summary(state)])
    return Status.OK


def find(client: Client, task_id: str) -> ClientTask[CallToolResult]:
    try:
        return client.task(task_id)
    except ValueError as error:
        raise CommandError(str(error)) from None


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
    show_json({**task.wire(), **({"inputRequests": asked} if asked else {}), **outcome})
