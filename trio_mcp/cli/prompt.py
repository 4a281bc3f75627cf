"""`trio-mcp prompt`: get a prompt of a server."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..client import Client
from ..types import GetPromptResult
from .arguments import check_once
from .call import check_answers
from .command import command
from .connecting import use_server
from .connection_options import Answering, Connecting, answers, connects
from .errors import CommandError, Status
from .options import json_option
from .output import as_text, show_json, show_lines
from .parameters import Pair
from .prompting import Prompting

EXAMPLES = """\
examples:
  trio-mcp prompt examples/ports/todo.py plan day=Monday
  trio-mcp prompt http://127.0.0.1:8000/mcp review file=app.py style=strict
  trio-mcp prompt mcp.json:shop offer --json

All values are text, as the protocol wants it.
"""


@command("prompt", EXAMPLES)
@connects
@click.argument("name", metavar="PROMPT")
@click.argument("arguments", nargs=-1, type=Pair("key=value"), metavar="KEY=VALUE ...")
@answers
@json_option
def command_line(
    connecting: Connecting, name: str, arguments: Sequence[tuple[str, str]], answering: Answering, as_json: bool
) -> int:
    """Get a prompt of a server: the messages that it makes of its arguments.

    TARGET is what `trio-mcp call` takes, and PROMPT one that `trio-mcp list` shows.
    """
    check_once(arguments)

    async def use(client: Client, prompting: Prompting) -> int:
        known = [prompt.name for prompt in await client.list_prompts()] if client.server_capabilities.prompts else []
        if name not in known:
            raise CommandError(f"the server has no prompt {name!r}; its prompts are: {', '.join(known) or 'none'}")
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
