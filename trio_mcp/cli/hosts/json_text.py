"""Changing one member of an object in a JSON text, whose other characters stay as they are, comments and all."""

# The text has been parsed before: nothing here looks for mistakes in it. Its members are found in copies of the same length, so
# that a position in one is a position in each:
#
#   text    "a": 1, // see "b"      what is changed
#   bare    "a": 1,                 comments are spaces
#   plain   "a": 1                  and so is a trailing comma: what `json` reads
#
# A new member follows the last comment of its object, which may be about the member before. A member is removed with the comments
# inside of it and with the white space before it, or with that behind it if a comment stays in its line. Every other comment
# stays, whatever it is about.

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from ...base.values import JsonValue
from ...mcp_json import find_comments, without_comments, without_trailing_commas

SPACE: Final = re.compile(r"[ \t\r\n]*")
BLANKS: Final = re.compile(r"[ \t]*")
INDENT: Final = re.compile(r'^([ \t]+)"', re.MULTILINE)
DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True)
class Member:
    """Where a member of an object is in its text: from the quote of its name, and its value, to the end of that.

    Attributes:
        comma: where the comma behind it is; None if there is none.
    """

    name: str
    start: int
    value: int
    end: int
    comma: int | None


class JsonText:
    """A JSON text that may have comments and trailing commas. Objects in it are named by the position of their bracket."""

    def __init__(self, text: str) -> None:
        self._text = text
        comments = find_comments(text)
        self._comment_starts = {start for start, _ in comments}
        self._comment_ends = {end for _, end in comments}
        self._line_comment_ends = {end for start, end in comments if text[start + 1] == "/"}
        self._bare = without_comments(text)
        self._plain = without_trailing_commas(self._bare)
        self.root = self._bare.index("{")

    def find_value(self, at: int, name: str) -> int | None:
        """Return where the value of a member begins; None if the object at `at` does not have it."""
        return next((each.value for each in self._scan(at)[0] if each.name == name), None)

    def with_member(self, at: int, name: str, value: JsonValue) -> str:
        """Return the text with a member of the object at `at`: a new one at its end, or with another value."""
        text = self._text
        members, end = self._scan(at)
        same = next((each for each in members if each.name == name), None)
        if same is not None:
            return text[: same.value] + self._value_text(value, line_indent(text, same.start)) + text[same.end :]
        if not members:
            return self._with_first(at, end, name, value)
        last, behind = members[-1], self._space_before(end)
        before = at if len(members) == 1 else members[-2].comma
        assert before is not None
        new = self._like_last(text[before + 1 : last.start], at, last, behind, name, value)
        # As it is in the text: a comma behind the last member, or none.
        middle = ("" if last.comma else ",") + text[last.end : behind]
        return f"{text[: last.end]}{middle}{new}{',' if last.comma else ''}{text[behind:]}"

    def without_member(self, at: int, name: str) -> str:
        """Return the text without a member of the object at `at`, which has it."""
        text = self._text
        members, end = self._scan(at)
        number = next(number for number, each in enumerate(members) if each.name == name)
        member = members[number]
        if len(members) == 1 and not (self._has_comment(at, member.start) or self._has_comment(member.end, end)):
            return text[: at + 1] + text[end:]
        # The last one may have no comma; then that of the one before it would be a trailing one.
        comma = members[number - 1].comma if member.comma is None and number else member.comma
        own = comma is not None and comma >= member.end
        stop = comma + 1 if own and comma is not None and not self._has_comment(member.end, comma) else member.end
        before, after = self._space_before(member.start), end_of(BLANKS, text, stop)
        is_beside_comment = after in self._comment_starts or before in self._line_comment_ends
        stays_in_line = text[after] not in "\r\n" and (number == 0 or is_beside_comment)
        cut = (member.start, after) if stays_in_line else (before, stop)
        cuts = {cut} if comma is None or cut[0] <= comma < cut[1] else {cut, (comma, comma + 1)}
        for start, stop in sorted(cuts, reverse=True):
            text = text[:start] + text[stop:]
        return text

    def _with_first(self, at: int, end: int, name: str, value: JsonValue) -> str:
        """Return the text with a member of an object that has none, which ends at `end`."""
        text, outer = self._text, line_indent(self._text, at)
        behind = self._space_before(end) if self._has_comment(at, end) else at + 1
        closing = text[behind:end]
        if behind == at + 1 or "\n" not in closing:
            closing = self._line_end() + outer
        return text[:behind] + self._line_text(name, value, outer + self._indent()) + closing + text[end:]

    def _like_last(self, space: str, at: int, last: Member, behind: int, name: str, value: JsonValue) -> str:
        """Return the text of a new member at `behind`, with white space before it.

        Args:
            space: what is before the last member: space, and perhaps comments.
        """
        indent = line_indent(self._text, last.start)
        if "\n" in space:
            new = self._line_text(name, value, indent)
            # Blanks at the end of a line would become part of a comment there.
            return new if space.strip() else space.lstrip(" \t") + new.lstrip()
        if behind in self._line_comment_ends:
            return self._line_text(name, value, line_indent(self._text, at) + self._indent())
        return f"{' ' if space.strip() else space or ' '}{json.dumps(name)}: {self._value_text(value, None)}"

    def _scan(self, at: int) -> tuple[list[Member], int]:
        """Return the members of an object, and where its closing bracket is."""
        members: list[Member] = []
        plain = self._plain
        at = end_of(SPACE, plain, at + 1)
        while plain[at] != "}":
            name, colon = DECODER.raw_decode(plain, at)
            value = end_of(SPACE, plain, end_of(SPACE, plain, colon) + 1)
            _, end = DECODER.raw_decode(plain, value)
            behind = end_of(SPACE, self._bare, end)
            comma = behind if self._bare[behind] == "," else None
            members.append(Member(name, at, value, end, comma))
            at = end_of(SPACE, plain, behind if comma is None else comma + 1)
        return members, at

    def _has_comment(self, start: int, end: int) -> bool:
        return any(start <= each < end for each in self._comment_starts)

    def _space_before(self, at: int) -> int:
        """Return where the white space before a position begins."""
        while self._text[at - 1] in " \t\r\n" and at not in self._comment_ends:
            at -= 1
        return at

    # how this text is written

    def _line_text(self, name: str, value: JsonValue, indent: str) -> str:
        """Return a member on separate lines, which begin with the end of the line before."""
        return f"{self._line_end()}{indent}{json.dumps(name)}: {self._value_text(value, indent)}"

    def _value_text(self, value: JsonValue, indent: str | None) -> str:
        """Return a value.

        Args:
            indent: of the line in which it begins; None for a value in one line.
        """
        step = None if indent is None else self._indent()
        try:
            new = json.dumps(value, indent=step, ensure_ascii=False)
            new.encode()
        except UnicodeEncodeError:
            # A lone surrogate can only be written as an escape.
            new = json.dumps(value, indent=step)
        return new.replace("\n", f"{self._line_end()}{indent}")

    def _indent(self) -> str:
        """Return what the text indents with."""
        indented = INDENT.search(self._bare)
        return indented[1] if indented else "  "

    def _line_end(self) -> str:
        return "\r\n" if "\r\n" in self._text else "\n"


def line_indent(text: str, at: int) -> str:
    """Return the white space at the beginning of the line of this position."""
    start = text.rfind("\n", 0, at) + 1
    return text[start : end_of(BLANKS, text, start)]


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where the characters of a pattern end that begin at a position; that position if there are none."""
    found = pattern.match(text, at)
    return at if found is None else found.end()
