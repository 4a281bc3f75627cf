"""`trio-mcp list`: list the tools, resources and prompts of a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import click

from ...base.values import printable
from ...client import Client
from ...types import JsonValue, Prompt, Resource, ResourceTemplate, Tool
from ..arguments import json_option, signature
from ..command import REFUSED, CommandError, Status, command
from ..connecting import Answering, Connecting, connects, use_server
from ..terminal.output import note, rich_screen, show_json, show_lines
from ..terminal.prompting import Prompting

EXAMPLES = """\
examples:
  trio-mcp list travel.py
  trio-mcp list http://127.0.0.1:8000/mcp --only resources
  trio-mcp list mcp.json
  trio-mcp list mcp.json:shop --json
  trio-mcp list cursor:shop
  trio-mcp list 'npx -y some-mcp-server' --only tools

`trio-mcp inspect` shows the schemas as well, and what is wrong with them.
"""

Offers = Sequence[Tool] | Sequence[Resource] | Sequence[ResourceTemplate] | Sequence[Prompt]
KINDS = ("tools", "resources", "templates", "prompts")


@command("list", EXAMPLES, REFUSED)
@partial(connects, several=True)
@click.option("--only", type=click.Choice(KINDS), multiple=True, help="List these alone; repeatable.")
@json_option
def command_line(servers: Mapping[str, Callable[[], Connecting]], only: Sequence[str], as_json: bool) -> int:
    """List the tools, resources, resource templates and prompts of a server.

    TARGET is a URL, a command in quotes that starts a server, a Python file or module (app.py, app.py:name, shop.server), or a
    server of a file (mcp.json:name). Of a file without a name all servers are listed.
    """
    found: dict[str, JsonValue] = {}
    status = Status.OK

    async def use(client: Client, _prompting: Prompting) -> int:
        offers = await read_offers(client, only or KINDS)
        for each in client.dropped:
            note(f"left out, since it cannot be read: the {each.kind} {printable(each.name)}: {each.why}")
        found[server] = {kind: [each.wire() for each in items] for kind, items in offers.items()}
        if not as_json:
            show_server(server if len(servers) > 1 else None, offers)
        return Status.OK

    for server, connecting in servers.items():
        try:
            use_server(connecting(), Answering(), use)
        except CommandError as error:
            if len(servers) == 1:
                raise
            note(f"{server}: {error}")
            status = max(status, error.status)
    if as_json:
        show_json(found if len(servers) > 1 else found[server])
    return status


def show_server(name: str | None, offers: Mapping[str, Offers]) -> None:
    """Write what a server offers to stdout; `name` if there are several."""
    if name is not None:
        show_lines([name])
    for kind, items in offers.items():
        if items:
            show_offers(kind, [item_of(each) for each in items])
    if not any(offers.values()):
        note("the server offers none of these to this client")


async def read_offers(client: Client, kinds: Sequence[str] = KINDS) -> dict[str, Offers]:
    """Return what a server offers of each kind; nothing of a kind that it does not declare."""
    declared = client.server_capabilities
    tools, resources, prompts = declared.tools, declared.resources, declared.prompts
    offers: dict[str, Offers] = {
        "tools": await client.list_tools() if tools and "tools" in kinds else [],
        "resources": await client.list_resources() if resources and "resources" in kinds else [],
        "templates": await client.list_resource_templates() if resources and "templates" in kinds else [],
        "prompts": await client.list_prompts() if prompts and "prompts" in kinds else [],
    }
    return {kind: items for kind, items in offers.items() if kind in kinds}


def item_of(offer: Tool | Resource | ResourceTemplate | Prompt) -> tuple[str, str]:
    """Return a line that says how to use it, and its description."""
    return usage(offer), offer.description or ""


def usage(offer: Tool | Resource | ResourceTemplate | Prompt) -> str:
    match offer:
        case Tool():
            return signature(offer)
        case Resource(uri=address) | ResourceTemplate(uri_template=address):
            return f"{address} ({offer.mime_type})" if offer.mime_type else address
        case Prompt():
            words = [each.name if each.required else f"[{each.name}]" for each in offer.arguments or ()]
            return " ".join([offer.name, *words])


def show_tools(tools: Sequence[Tool], *, as_json: bool) -> int:
    """Write how to call each tool, and its description, to stdout."""
    if as_json:
        show_json([tool.wire() for tool in tools])
    else:
        show_items([item_of(tool) for tool in tools])
    return Status.OK


def show_offers(kind: str, items: Sequence[tuple[str, str]]) -> None:
    if sys.stdout.isatty():
        rich_screen().show_heading(kind)
    else:
        sys.stdout.write(f"{kind}:\n")
    show_items(items)


def show_items(items: Sequence[tuple[str, str]]) -> None:
    """Write lines, each with a text that is indented below it."""
    for head, body in items:
        shown, text = " ".join(printable(head).split()), printable(body)
        if sys.stdout.isatty():
            rich_screen().show_item(shown, text)
            continue
        sys.stdout.write(f"{shown}\n")
        for line in text.splitlines():
            sys.stdout.write(f"    {line}".rstrip() + "\n")
    sys.stdout.flush()
