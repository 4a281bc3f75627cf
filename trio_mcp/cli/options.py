"""Options that several commands have, as decorators."""

from __future__ import annotations

import click

from .parameters import Pair, TargetText

HEADER_FORM = "NAME=VALUE, such as authorization='Bearer ...'"

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
target_argument = click.argument("target", type=TargetText(), metavar="TARGET")
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("text", "json")
"""Those of `configure_logging`, which is loaded only where one is given."""

level_option = click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), help="The lowest level that is logged; with info, each call is."
)
format_option = click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="How records are written: as text, or as a JSON object in each line.",
)
header_option = click.option(
    "--header",
    "headers",
    multiple=True,
    type=Pair(HEADER_FORM, is_secret=True),
    metavar="NAME=VALUE",
    help="An HTTP header, for a URL; repeatable.",
)
