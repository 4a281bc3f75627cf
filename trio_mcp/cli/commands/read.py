"""`trio-mcp read`: read a resource of a server."""

from __future__ import annotations

import base64
import sys

import click

from ...base.regular_files import write_regular
from ...base.values import one_line, printable
from ...client import Client
from ...types import BlobResourceContents, ReadResourceResult, ResourceTemplateReference, TextResourceContents
from ..arguments import complete_option, json_option, show_suggestions
from ..command import REFUSED, CommandError, Status, command
from ..connecting import Answering, Connecting, answers, connects, use_server
from ..terminal.output import show_json
from ..terminal.prompting import Prompting
from .call import check_answers

EXAMPLES = """\
examples:
  trio-mcp read todo.py todo://items
  trio-mcp read http://127.0.0.1:8000/mcp file:///logo.png --output logo.png
  trio-mcp read mcp.json:shop shop://orders/7 --json
  trio-mcp read mcp.json:shop 'shop://orders/{number}' --complete number=7

A text goes to stdout. Bytes go to stdout too if that is a file or a pipe, and need --output on a terminal.
"""


@command("read", EXAMPLES, REFUSED)
@connects
@click.argument("uri", metavar="URI")
@click.option("--output", type=click.Path(dir_okay=False, writable=True), metavar="FILE", help="Write it to a file.")
@complete_option
@answers
@json_option
def command_line(
    connecting: Connecting,
    uri: str,
    output: str | None,
    begun: tuple[str, str] | None,
    answering: Answering,
    as_json: bool,
) -> int:
    """Read a resource of a server.

    TARGET is what `trio-mcp call` takes. URI is one that `trio-mcp list` shows, or of a template with its values filled in.
    """

    async def use(client: Client, prompting: Prompting) -> int:
        if begun is not None:
            return await show_suggestions(client, ResourceTemplateReference(uri=uri), begun, {}, as_json=as_json)
        with prompting.display.reports() as on_progress:
            result = await client.read_resource(uri, on_progress=on_progress)
        check_answers(prompting, "the resource")
        if as_json:
            show_json(result.wire())
        elif output is not None:
            save(result, output)
        else:
            show_contents(result)
        return Status.OK

    return use_server(connecting, answering, use)


def show_contents(result: ReadResourceResult) -> None:
    """Write the contents to stdout. Raises `CommandError` for bytes on a terminal."""
    for contents in result.contents:
        if isinstance(contents, TextResourceContents):
            shown = printable(contents.text) if sys.stdout.isatty() else contents.text
            sys.stdout.write(shown if shown.endswith("\n") else f"{shown}\n")
        elif sys.stdout.isatty():
            kind = one_line(contents.mime_type or "unknown type")
            raise CommandError(f"{one_line(contents.uri)} is binary ({kind}): give --output FILE")
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(data_of(contents))
    sys.stdout.flush()


def save(result: ReadResourceResult, path: str) -> None:
    """Write the contents to a file. Raises `CommandError`."""
    parts = [
        each.text.encode() if isinstance(each, TextResourceContents) else data_of(each) for each in result.contents
    ]
    try:
        write_regular(path, b"".join(parts))
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}", Status.UNREACHABLE) from error


def data_of(contents: BlobResourceContents) -> bytes:
    try:
        return base64.b64decode(contents.blob, validate=True)
    except ValueError as error:
        raise CommandError(f"{one_line(contents.uri)} is not valid base64", Status.REFUSED) from error
