"""Options that several commands have, as decorators."""

from __future__ import annotations

import click

from .parameters import Pair, TargetText

HEADER_FORM = "NAME=VALUE, such as authorization='Bearer ...'"

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
target_argument = click.argument("target", type=TargetText(), metavar="TARGET")
header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    type=Pair(HEADER_FORM),
    metavar="NAME=VALUE",
    help="An HTTP header, for a URL; repeatable.",
)
