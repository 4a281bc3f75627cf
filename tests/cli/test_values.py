"""What a person's text means: as an argument of a tool, and as a field of a form."""

from __future__ import annotations

import pytest
from naming import naming

from trio_mcp.base import logs
from trio_mcp.cli import arguments
from trio_mcp.cli.arguments import read_arguments
from trio_mcp.cli.command import CommandError
from trio_mcp.cli.terminal.fields import default_text, hint, read_field
from trio_mcp.types import JsonObject, JsonValue, RequestedSchema, Tool


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "5", "5"),
        ({"type": "string"}, "null", "null"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"$ref": "#/$defs/Word"}, "true", "true"),
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, "five", "five"),
        ({"type": "array"}, '["a", 1]', ["a", 1]),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "5", "5"),
        ({"type": ["string", "number"]}, "5", 5),
        ({}, "5", 5),
        ({}, "NaN", "NaN"),
        ({}, "a=b", "a=b"),
        ({}, "", ""),
    ],
)
def test_an_argument_is_what_its_schema_wants(schema: JsonObject, text: str, value: JsonValue) -> None:
    root: JsonObject = {"type": "object", "properties": {"x": schema}, "$defs": {"Word": {"type": "string"}}}
    assert read_arguments(Tool(name="t", input_schema=root), [("x", text)], None) == {"x": value}


def test_an_argument_that_no_schema_names_is_left_to_the_server() -> None:
    assert read_arguments(Tool(name="t", input_schema={"type": "object"}), [("y", "1")], '{"z": 2}') == {"y": 1, "z": 2}


def test_an_argument_given_twice_is_refused() -> None:
    with pytest.raises(CommandError, match=naming("'x'")):
        read_arguments(Tool(name="t", input_schema={}), [("x", "1"), ("x", "2")], None)


def field(schema: JsonObject):
    return RequestedSchema.model_validate({"type": "object", "properties": {"x": schema}}).properties["x"]


TITLED: JsonObject = {"type": "string", "oneOf": [{"const": "c", "title": "Chess"}, {"const": "g", "title": "Go"}]}
SEVERAL: JsonObject = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "maxItems": 2}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "0", False),
        ({"type": "integer", "minimum": 1}, " 7 ", 7),
        ({"type": "integer"}, "9" * 400, int("9" * 400)),
        ({"type": "number", "maximum": 1}, "-0.5", -0.5),
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "string", "format": "date"}, "2026-07-28", "2026-07-28"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T10:00:00Z", "2026-07-28T10:00:00Z"),
        ({"type": "string", "format": "uri"}, "https://example.com/a", "https://example.com/a"),
        ({"type": "string", "enum": ["A", "a"]}, "a", "a"),
        (TITLED, "chess", "c"),
        (TITLED, "G", "g"),
        ({"type": "string", "enum": ["c"], "enumNames": ["Chess"]}, "Chess", "c"),
        (SEVERAL, "c, a", ["c", "a"]),
        (SEVERAL, "", []),
    ],
)
def test_a_text_that_fits_a_field_is_its_value(schema: JsonObject, text: str, value: object) -> None:
    assert read_field(field(schema), text) == value


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "boolean"}, "perhaps"),
        ({"type": "integer"}, "1.5"),
        ({"type": "integer", "minimum": 1}, "0"),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "inf"),
        ({"type": "integer", "maximum": 9}, "9" * 400),
        ({"type": "string", "minLength": 2}, "a"),
        ({"type": "string", "maxLength": 2}, "abc"),
        ({"type": "string", "format": "date"}, "28.7.2026"),
        ({"type": "string", "format": "date-time"}, "2026-07-28"),
        ({"type": "string", "format": "uri"}, "example"),
        ({"type": "string", "format": "email"}, "a@b"),
        ({"type": "string", "enum": ["AB", "Ab"]}, "ab"),
        (TITLED, ""),
        (SEVERAL, "a, b, c"),
        (SEVERAL, "a, a"),
        (SEVERAL, "d"),
    ],
)
def test_a_text_that_does_not_fit_a_field_is_refused(schema: JsonObject, text: str) -> None:
    with pytest.raises(ValueError, match="please"):
        read_field(field(schema), text)


@pytest.mark.parametrize(
    ("schema", "said", "default"),
    [
        ({"type": "boolean", "default": False}, "y or n", "n"),
        ({"type": "integer", "minimum": 0, "default": 0}, "a whole number at least 0", "0"),
        ({"type": "string", "minLength": 1, "maxLength": 9}, "text, 1 to 9 characters", None),
        ({**TITLED, "default": "c"}, "c (Chess), g (Go)", "c"),
        ({**SEVERAL, "default": ["a", "b"]}, "a, b, c; separate several by commas", "a, b"),
    ],
)
def test_a_field_says_what_it_takes_and_its_default(schema: JsonObject, said: str, default: str | None) -> None:
    assert (hint(field(schema)), default_text(field(schema))) == (said, default)


def test_the_command_line_has_the_values_that_logging_has() -> None:
    assert (arguments.LOG_LEVELS, arguments.LOG_FORMATS) == (logs.LOG_LEVELS, logs.LOG_FORMATS)
