"""`trio-mcp prompt`: get a prompt of a server."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ...client import Client
from ...types import GetPromptResult, PromptReference
from ..arguments import Pair, check_once, complete_option, json_option, show_suggestions
from ..command import REFUSED, CommandError, Status, command
from ..connecting import Answering, Connecting, answers, connects, use_server
from ..terminal.messages import as_text
from ..terminal.output import show_json, show_lines
from ..terminal.prompting import Prompting
from .call import check_answers

EXAMPLES = """\
examples:
  trio-mcp prompt todo.py plan day=Monday
  trio-mcp prompt http://127.0.0.1:8000/mcp review file=app.py style=strict
  trio-mcp prompt mcp.json:shop offer --json
  trio-mcp prompt mcp.json:shop offer --complete city=Lis

All values are text, as the protocol wants it.
"""


@command("prompt", EXAMPLES, REFUSED)
@connects
@click.argument("name", metavar="PROMPT")
@click.argument("arguments", nargs=-1, type=Pair("key=value"), metavar="KEY=VALUE ...")
@complete_option
@answers
@json_option
def command_line(
    connecting: Connecting,
    name: str,
    arguments: Sequence[tuple[str, str]],
    begun: tuple[str, str] | None,
    answering: Answering,
    as_json: bool,
) -> int:
    """Get a prompt of a server: the messages that it makes of its arguments.

    TARGET is what `trio-mcp call` takes, and PROMPT one that `trio-mcp list` shows.
    """
    check_once(arguments)

    async def use(client: Client, prompting: Prompting) -> int:
        known = [prompt.name for prompt in await client.list_prompts()] if client.server_capabilities.prompts else []
        if name not in known:
            raise CommandError(f"the server has no prompt {name!r}; its prompts are: {', '.join(known) or 'none'}")
        if begun is not None:
            return await show_suggestions(client, PromptReference(name=name), begun, dict(arguments), as_json=as_json)
        with prompting.display.reports() as on_progress:
            result = await client.get_prompt(name, dict(arguments), on_progress=on_progress)
        check_answers(prompting, "the prompt")
        if as_json:
            show_json(result.wire())
        else:
            show_messages(result)
        return Status.OK

    return use_server(connecting, answering, use)


def show_messages(result: GetPromptResult) -> None:
    """Write the messages to stdout, each with its role."""
    for message in result.messages:
        show_lines([f"{message.role}: {as_text(message.content)}"])
