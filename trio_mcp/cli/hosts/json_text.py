"""Changing one member of an object in a JSON text, whose other characters stay as they are."""

# The text has been parsed before: nothing here looks for mistakes in it.

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from ...json_value import JsonValue

SPACE: Final = re.compile(r"[ \t\r\n]*")
INDENT: Final = re.compile(r'^([ \t]+)"', re.MULTILINE)
DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True)
class Member:
    """Where a member of an object is in its text: from the quote of its name, and its value, to the end of that."""

    name: str
    start: int
    value: int
    end: int


def with_member(text: str, at: int, name: str, value: JsonValue) -> str:
    """Return the text with a member of the object that begins at `at`: a new one at its end, or with another value."""
    members, end = scan(text, at)
    same = next((each for each in members if each.name == name), None)
    if same is not None:
        return text[: same.value] + value_text(text, value, line_indent(text, same.start)) + text[same.end :]
    if not members:
        outer = line_indent(text, at)
        inner = outer + indent_of(text)
        new = f"\n{inner}{json.dumps(name)}: {value_text(text, value, inner)}\n{outer}"
        return text[: at + 1] + with_line_ends_of(text, new) + text[end:]
    last = members[-1]
    # As before the last one: between lines of the same indentation, or in the same line.
    before = text[members[-2].end + 1 if len(members) > 1 else at + 1 : last.start]
    if "\n" in before:
        new = f"{json.dumps(name)}: {value_text(text, value, line_indent(text, last.start))}"
    else:
        before, new = before or " ", f"{json.dumps(name)}: {value_text(text, value, None)}"
    return f"{text[: last.end]},{before}{new}{text[last.end :]}"


def without_member(text: str, at: int, name: str) -> str:
    """Return the text without a member of the object that begins at `at`, which has it."""
    members, end = scan(text, at)
    number = next(number for number, each in enumerate(members) if each.name == name)
    if len(members) == 1:
        return text[: at + 1] + text[end:]
    if number == 0:
        return text[: members[0].start] + text[members[1].start :]
    return text[: members[number - 1].end] + text[members[number].end :]


def find_value(text: str, at: int, name: str) -> int | None:
    """Return where the value of a member begins; None if the object that begins at `at` does not have it."""
    return next((each.value for each in scan(text, at)[0] if each.name == name), None)


def scan(text: str, at: int) -> tuple[list[Member], int]:
    """Return the members of the object that begins at `at`, and where its closing bracket is."""
    members: list[Member] = []
    at = skip(text, at + 1)
    while text[at] != "}":
        name, colon = DECODER.raw_decode(text, at)
        value = skip(text, skip(text, colon) + 1)
        _, end = DECODER.raw_decode(text, value)
        members.append(Member(name, at, value, end))
        at = skip(text, end)
        if text[at] == ",":
            at = skip(text, at + 1)
    return members, at


def skip(text: str, at: int) -> int:
    """Return where the next character is that is no white space."""
    found = SPACE.match(text, at)
    return at if found is None else found.end()


def indent_of(text: str) -> str:
    """Return what the text indents with."""
    indented = INDENT.search(text)
    return indented[1] if indented else "  "


def line_indent(text: str, at: int) -> str:
    """Return the white space at the beginning of the line of this position."""
    start = text.rfind("\n", 0, at) + 1
    return text[start : start + len(text[start:at]) - len(text[start:at].lstrip(" \t"))]


def value_text(text: str, value: JsonValue, indent: str | None) -> str:
    """Return a value as this text would have it.

    Args:
        indent: of the line in which it begins; None for a value in one line.
    """
    step = None if indent is None else indent_of(text)
    try:
        new = json.dumps(value, indent=step, ensure_ascii=False)
        new.encode()
    except UnicodeEncodeError:
        # A lone surrogate can only be written as an escape.
        new = json.dumps(value, indent=step)
    return with_line_ends_of(text, new.replace("\n", f"\n{indent}"))


def with_line_ends_of(text: str, new: str) -> str:
    return re.sub(r"\r?\n", "\r\n", new) if "\r\n" in text else new
