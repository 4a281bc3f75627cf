"""`trio-mcp call`: call one tool from a terminal, and answer its questions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
import trio

from ...client import Client
from ...client.tasks.follow import CANCEL_TIMEOUT
from ...errors import CapabilityError, McpError
from ...protocol.revisions import REQUIRED_CAPABILITIES
from ...types import CallToolResult, JsonObject, Tool
from ..arguments import Pair, json_option, read_arguments
from ..command import REFUSED, CommandError, Status, command, rejected
from ..connecting import Answering, Connecting, answers, connects, is_legacy, use_server
from ..terminal.messages import save_files, show_change, show_result
from ..terminal.output import note, show_json
from ..terminal.prompting import Prompting
from .list import show_tools

EXAMPLES = """\
examples:
  trio-mcp call travel.py --list
  trio-mcp call travel.py book_flight destination=Lisbon
  trio-mcp call 'trio-mcp run travel.py' search_flights destination=Oslo
  trio-mcp call http://127.0.0.1:8000/mcp report year=2026 --task
  trio-mcp call mcp.json:shop search query=lamps --json
  trio-mcp call charts.py chart year=2026 --save chart.png
  trio-mcp call http://127.0.0.1:8000/mcp book_flight destination=Lisbon \\
      --answer flight=TP1 --answer seat=aisle --answer value=yes --sample 'A short hop.'

A VALUE is JSON if it is valid JSON, unless the tool wants a string there: city=Lisbon seats=2 tags='["a"]'.
The result goes to stdout; questions, progress and log messages go to stderr. Questions are asked at the terminal,
unless --answer and --sample answer them; without a terminal they are declined. Several values for one field, and several
samples, are used in turn, and the last of them for all further questions. What was not used is named on stderr.
"""


@command("call", EXAMPLES, {Status.TOOL_ERROR: "the tool answered with an error result", **REFUSED})
@connects
@click.argument("tool", required=False, metavar="TOOL")
@click.argument("arguments", nargs=-1, type=Pair("key=value"), metavar="KEY=VALUE ...")
@click.option("--list", "listed", is_flag=True, help="List the tools and their arguments.")
@click.option("--args", "whole", metavar="OBJECT", help="The arguments as one JSON object; KEY=VALUE is put into it.")
@click.option("--task", "as_task", is_flag=True, help="Run the tool as a task, and show its id and its state.")
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Write the image or file of the result to FILE."
)
@answers
@json_option
def command_line(
    connecting: Connecting,
    tool: str | None,
    arguments: Sequence[tuple[str, str]],
    listed: bool,
    whole: str | None,
    as_task: bool,
    save: Path | None,
    answering: Answering,
    as_json: bool,
) -> int:
    """Call a tool of a server, and answer what it asks.

    TARGET is a URL, a command in quotes that starts a server, a Python file or module (app.py, app.py:name, shop.server), or a
    server of a file (mcp.json:name).
    """
    if tool is None and not listed:
        raise CommandError("name the tool to call, or list them with --list")

    async def use(client: Client, prompting: Prompting) -> int:
        tools = await client.list_tools()
        if tool is None or listed:
            return show_tools(tools, as_json=as_json)
        # The schema is needed to read the arguments, so the tools are listed even for a single call.
        chosen = choose(tools, tool, for_client=is_legacy(client))
        values = read_arguments(chosen, arguments, whole)
        with prompting.display.reports() as on_progress:
            if as_task:
                result = await call_as_task(client, chosen.name, values)
            else:
                result = await client.call_tool(chosen.name, values, on_progress=on_progress)
        status = show_outcome(result, prompting, as_json=as_json)
        if save is not None and not result.is_error:
            save_files(result, save)
        return status

    return use_server(connecting, answering, use, late="; the call was cancelled")


def show_outcome(result: CallToolResult, prompting: Prompting, *, as_json: bool = False) -> int:
    """Write the result of a call whose questions were answered, and return the exit status. Raises `CommandError`."""
    check_answers(prompting, "the tool")
    # A legacy server says it in a result, which a model reads; to a person it is the same as the error of a modern one.
    if result.is_error and (missing := (result.meta or {}).get(REQUIRED_CAPABILITIES)) is not None:
        raise rejected(result.text, missing)
    if as_json:
        show_json(result.wire())
    else:
        show_result(result)
    return Status.TOOL_ERROR if result.is_error else Status.OK


def check_answers(prompting: Prompting, what: str) -> None:
    """Raise `CommandError` if an answer of the command line did not fit; write a warning for those that were not used."""
    # Before the result is shown, which only says that the user closed a question.
    if prompting.problem is not None:
        raise prompting.problem
    if unused := prompting.unused:
        note(f"trio-mcp: warning: {what} did not ask for {', '.join(unused)}")


async def call_as_task(client: Client, name: str, arguments: JsonObject) -> CallToolResult:
    """Start a tool as a task, show its id and its changes, and return its result. A cancel cancels the task."""
    try:
        task = await client.start_tool(name, arguments)
    except CapabilityError as error:
        # Without its notes, which name the arguments of a program.
        raise CommandError(f"{error.args[0]}: leave out --task", Status.REFUSED) from error
    note(f"task {task.id}" if task.id else "the server has answered at once, without a task")
    try:
        return await task.result(on_change=show_change)
    except BaseException:
        with trio.move_on_after(CANCEL_TIMEOUT, shield=True), suppress(McpError):
            await task.cancel()
        raise


def choose(tools: Sequence[Tool], name: str, *, for_client: bool = False) -> Tool:
    """Return the tool of that name. Raises `CommandError`, which lists the names, if there is none.

    Args:
        for_client: the server may hide tools from this client.
    """
    for tool in tools:
        if tool.name == name:
            return tool
    known = ", ".join(tool.name for tool in tools) or "none"
    whose = " for this client" if for_client else ""
    raise CommandError(f"the server has no tool {name!r}{whose}; its tools are: {known}")
