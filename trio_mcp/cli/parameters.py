"""Types of the values on a command line: what they accept, and what is said about others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..base.checks import check_int
from ..protocol.revisions import SUPPORTED

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

MODES = ("auto", "modern", "legacy", *SUPPORTED)


class Seconds(click.ParamType[float]):
    """A finite number of seconds, 0 or more."""

    name = "seconds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            # Written so that NaN fails: it compares as false with everything.
            if 0 <= (number := float(str(value))) < float("inf"):
                return number
        except ValueError:
            pass
        return self.fail(f"{value!r} is not a number of seconds", param, ctx)


class WholeNumber(click.ParamType[int]):
    """A whole number from `least` to `most`, both included."""

    name = "integer"

    def __init__(self, least: int = 0, most: int | None = None) -> None:
        self.least = least
        self.most = most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return check_int("", int(str(value)), least=self.least, most=self.most)
        except ValueError:
            span = f"of at least {self.least}" if self.most is None else f"from {self.least} to {self.most}"
            return self.fail(f"{value!r} is not a whole number {span}", param, ctx)


class UrlPath(click.ParamType[str]):
    """The path of a URL."""

    name = "path"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not str(value).startswith("/"):
            self.fail(f"{value!r} does not begin with a slash", param, ctx)
        return str(value)


class Pair(click.ParamType[tuple[str, str]]):
    """A text such as `key=value`.

    Several in a variable of the environment are in a line each: a value may have spaces in it.

    Args:
        form: how to write it, for the error.
        is_secret: the error does not show the text.
    """

    name = "pair"
    envvar_list_splitter = "\n"

    def __init__(self, form: str = "KEY=VALUE", *, is_secret: bool = False) -> None:
        self.form = form
        self.is_secret = is_secret

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{'the text' if self.is_secret else repr(value)} is not {self.form}", param, ctx)
        return key, rest


class TargetText(click.ParamType[str]):
    """The text that names a server; a shell completes the names of files."""

    name = "target"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        # Loaded for shells alone.
        from click import shell_completion  # noqa: PLC0415

        return [shell_completion.CompletionItem(incomplete, type="file")]


# Options that several commands have, as decorators.

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
