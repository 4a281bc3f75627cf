"""Completing a value of a prompt or a template: what `--complete KEY=BEGUN` of `read` and `prompt` writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from ..client import Client
from ..types import PromptReference, ResourceTemplateReference
from .arguments import Pair
from .errors import Status
from .terminal.output import note, show_json, show_lines

complete_option: Final = click.option(
    "--complete",
    "begun",
    type=Pair("KEY=BEGUN"),
    metavar="KEY=BEGUN",
    help="Write the values that the server suggests for KEY, of which BEGUN is typed.",
)


async def show_suggestions(
    client: Client,
    reference: PromptReference | ResourceTemplateReference,
    begun: tuple[str, str],
    others: Mapping[str, str],
    *,
    as_json: bool,
) -> int:
    """Write what a server suggests for a value, one in a line.

    Args:
        begun: the name of the value, and what is typed of it.
        others: the values that are known.
    """
    found = await client.complete(reference, *begun, context=others or None)
    if as_json:
        show_json(found.wire())
        return Status.OK
    show_lines([" ".join(value.split()) for value in found.values])
    if found.has_more:
        note("there are more")
    return Status.OK
