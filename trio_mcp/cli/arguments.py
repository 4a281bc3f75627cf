"""Parse a tool's arguments from the command line, `city=Lisbon seats=2`, and show how to call it."""

# Only the JSON types of a property are read from the schema, to decide between a string and other JSON. Nothing is validated: the
# server does that, and its error names the argument. Examples:
#
#   type of `value`       value=7    value=x    value="7"    value=null
#   string                "7"        "x"        "\"7\""      "null"
#   integer               7          "x"        "7"          null
#   string, null          "7"        "x"        "7"          null
#   any, or unknown       7          "x"        "7"          null

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import click

from ..base.checks import check_int
from ..protocol.revisions import SUPPORTED
from ..protocol.schema.references import dereference
from ..types import JsonObject, JsonValue, PromptReference, ResourceTemplateReference, Tool
from .command import CommandError, Status
from .terminal.output import note, show_json, show_lines

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..client import Client


KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def read_arguments(tool: Tool, given: Sequence[tuple[str, str]], whole: str | None) -> JsonObject:
    """Return the arguments of a call: the JSON object `whole`, if given, with every key and value added to it.

    A value is JSON if it is valid JSON and the tool's schema does not require a string there; otherwise it is a string.

    Raises:
        CommandError: a key is given twice, or `whole` is not a JSON object.
    """
    arguments = read_object(whole)
    check_once(given)
    schemas = properties(tool.input_schema)
    values = {key: read_value(text, kinds(schemas.get(key, {}), tool.input_schema)) for key, text in given}
    return {**arguments, **values}


def check_once(given: Sequence[tuple[str, str]]) -> None:
    """Raise `CommandError` if a key is given twice."""
    # Not the last one: two values for one argument are more likely a typing error than a correction.
    if twice := [key for key, count in Counter(key for key, _ in given).items() if count > 1]:
        raise CommandError(f"{twice[0]!r} is given twice")


def read_object(text: str | None) -> JsonObject:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise CommandError(f"--args is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CommandError('--args takes an object, such as \'{"city": "Lisbon"}\'')
    return cast("JsonObject", value)


def read_value(text: str, wanted: set[str]) -> JsonValue:
    """Return a value: the text if the schema wants only strings, or allows them and the text is not JSON it wants more."""
    # A string first: a user who writes zip=01234 or name=true for a string means these characters.
    if wanted == {"string"}:
        return text
    try:
        value = cast("JsonValue", json.loads(text, parse_constant=reject))
    except ValueError:
        return text
    kind = KINDS.get(type(value), "null")
    # 7 is parsed as an integer, and is a number too.
    fits = kind in wanted or (kind == "integer" and "number" in wanted)
    return text if "string" in wanted and not fits else value


def reject(constant: str) -> JsonValue:
    """Reject NaN and Infinity, which `json.loads` accepts and JSON does not have (RFC 8259 section 6)."""
    raise ValueError(constant)


def signature(tool: Tool) -> str:
    """Return how to call a tool: its name, and its arguments with their types, the optional ones in brackets."""
    required = tool.input_schema.get("required")
    needed = required if isinstance(required, list) else []
    words = [tool.name]
    for name, schema in properties(tool.input_schema).items():
        word = f"{name}={shape(schema, tool.input_schema)}"
        words.append(word if name in needed else f"[{word}]")
    return " ".join(words)


def shape(schema: JsonObject, root: JsonObject) -> str:
    """Return the type of an argument, or its choices, with bars between them."""
    choices = (dereference(schema, root) or {}).get("enum")
    if isinstance(choices, list):
        # The choices say more than their type, and are what the user types.
        return "|".join(map(str, choices))
    return "|".join(sorted(kinds(schema, root) - {"null"})) or "any"


def kinds(schema: JsonObject, root: JsonObject) -> set[str]:
    """Return the JSON types that a schema allows; empty if it does not restrict them."""
    schema = dereference(schema, root) or {}
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {str(item) for item in kind}
    # What pydantic writes for `int | None`, and what other libraries write for it.
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, list):
        return {found for option in options if isinstance(option, dict) for found in kinds(option, root)}
    choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return {KINDS.get(type(choice), "null") for choice in choices} if isinstance(choices, list) else set()


def properties(schema: JsonObject) -> dict[str, JsonObject]:
    """Return the schemas of an object's members, such as a tool's arguments; an empty one for a boolean or a malformed one."""
    found = schema.get("properties")
    members = found.items() if isinstance(found, dict) else ()
    return {name: schema if isinstance(schema, dict) else {} for name, schema in members}


# Types of the values on a command line: what they accept, and what is said about others.

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


# Completing a value of a prompt or a template: what `--complete KEY=BEGUN` of `read` and `prompt` writes.

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
