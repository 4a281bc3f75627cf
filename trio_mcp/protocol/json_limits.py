"""The limits of a JSON text, and what is measured of it before it is parsed.

A text is measured once, in a few milliseconds for each MiB, whatever is in it: how many values it has, how deep they are nested,
and how much memory they take once they are parsed. So a text over a limit, or without room in the memory budget, is never parsed.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from ..base.checks import check_int
from ..base.named_tuples import NamedTuple
from ..base.values import ComparedByFields, make_tuple
from ..errors import RemoteProtocolError

MAX_ENCODED_DEPTH: Final = 255
"""The limit of pydantic_core."""

BACKSLASH: Final = ord("\\")
"""As a number, because to look for a byte as a text of length one takes ten times as long in a short text."""

_MAX_DIGITS = 640  # the least value that `sys.set_int_max_str_digits` allows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JsonLimits(ComparedByFields):
    """The limits of one message.

    Attributes:
        max_bytes: bytes of text.
        max_depth: nested arrays and objects, 255 at most: a message that can be read can also be written again.
        max_number_chars: characters of a number, 640 at most; the largest double has 309 digits.
        max_values: arrays, objects, strings, numbers, booleans and nulls together, and the names of members. Each costs some
            hundred bytes of memory, and some hundred nanoseconds in which nothing else runs, however few bytes of text it has.

    Raises:
        TypeError, ValueError: one of these is not a whole number in its range.
    """

    max_bytes: int = 4 * 1024 * 1024
    max_depth: int = 64
    max_number_chars: int = 320
    max_values: int = 100_000

    def __post_init__(self) -> None:
        check_int("max_bytes", self.max_bytes, least=1)
        check_int("max_depth", self.max_depth, least=1, most=MAX_ENCODED_DEPTH)
        check_int("max_number_chars", self.max_number_chars, least=1, most=_MAX_DIGITS)
        check_int("max_values", self.max_values, least=1)


DEFAULT_LIMITS: Final = JsonLimits()
"""Those of a message to a server."""

CLIENT_LIMITS: Final = JsonLimits(max_bytes=16 * 1024 * 1024, max_values=1_000_000)
"""Those of a message to a client: it has chosen its server, and may read long lists and large results."""

VALUE_SIZE: Final = 120
"""Bytes of memory that a value takes besides its text, at most; measured with CPython 3.11 to 3.13."""

NAME_SIZE: Final = 64
"""Bytes of memory that the name of a member takes besides its text, at most; its place in the object belongs to the value."""

EXACT_FROM: Final = 64 * 1024
"""Bytes by which a rough count of the values may be too high before they are counted exactly."""

SHORT: Final = 4096
"""Bytes up to which a plain count, or a search for several bytes, is faster than what long texts need."""


FEW: Final = 50
"""Occurrences up to which one search for each costs less than a copy of a long text."""


class Measure(NamedTuple):
    """What was measured of a text that is within its limits.

    Attributes:
        values: an upper bound of its values.
        size: bytes of memory that its value takes, at most.
        peak: bytes that it takes while it is parsed: the value, and the decoded text or the text that it is compared with.
    """

    values: int
    size: int
    peak: int


def measure(data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Measure:
    """Measure a JSON text.

    Raises:
        RemoteProtocolError: -32600, it has too many bytes or values, or is nested too deep; the message names the limit.
    """
    if len(data) > limits.max_bytes:
        raise over_limit(f"has {len(data)} bytes", limits.max_bytes, "max_bytes")
    # These counts include what stands in strings. Only if there is enough of it are strings taken out and the rest measured.
    if len(data) <= SHORT:
        # One pass for all of them: `bytes.count` looks at each byte as well.
        brackets = opened = len(data) - len(data.translate(None, b"[{,"))
        if opened > limits.max_depth:
            brackets = data.count(b"[") + data.count(b"{")
    else:
        brackets = _count(data, b"[", limits.max_values) + _count(data, b"{", limits.max_values)
        opened = brackets + _count(data, b",", limits.max_values)
    # Each value but the first has one of these before it, and so has each name.
    values = 1 + opened
    if (
        brackets > limits.max_depth
        or 2 * opened >= limits.max_values
        # A text of a megabyte may have a hundred thousand commas, each of which would count as a value.
        or values * VALUE_SIZE > len(data) + EXACT_FROM
    ):
        return _measure_exactly(data, limits)
    width = 1 if BACKSLASH not in data and data.isascii() else _width(data)
    text = width * len(data)
    size = text + VALUE_SIZE * values
    return make_tuple(Measure, (values, size, size + text))


def held_size(data: bytes) -> int:
    """Return how many bytes of memory the value of a JSON text takes, at most; the text must be one that `loads` accepts."""
    return measure(data, _NO_LIMITS).size


_NO_LIMITS = JsonLimits(max_bytes=sys.maxsize, max_depth=MAX_ENCODED_DEPTH, max_values=sys.maxsize)


def without_escapes(data: bytes) -> bytes:
    """Return a JSON text in which every quote begins or ends a string."""
    # Not by a regular expression: it would take a step for each escape, of which there may be millions.
    return data.replace(b"\\\\", b"").replace(b'\\"', b"") if BACKSLASH in data else data


def outside_strings(text: bytes) -> bytes:
    """Return a JSON text without escapes with a quote in place of each string."""
    return b'"'.join(text.split(b'"')[::2])


def over_limit(measured: str, limit: int, name: str) -> RemoteProtocolError:
    """Return the error for a text that is over a limit."""
    return RemoteProtocolError(f"The message {measured}; the limit is {limit} ({name}).", code=-32600)


_WHITE_SPACE = b" \t\r\n"
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},:"))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _width(data: bytes) -> int:
    """Return the bytes of memory for each byte of the text that its strings take, at most."""
    # All characters of a string take as many bytes as its widest: one in ASCII, at most two in the Basic Multilingual Plane, four
    # beyond that. And a string beyond ASCII keeps its UTF-8 as well from the first time that pydantic reads it.
    escaped = BACKSLASH in data and b"\\u" in data
    if not escaped and data.isascii():
        return 1
    if len(data) <= SHORT:
        return _SHORT_WIDTH
    # Such a character has one of these bytes in UTF-8, and a pair of surrogates as an escape.
    if any(lead in data for lead in _LEADS_OF_FOUR) or (escaped and (b"\\ud" in data or b"\\uD" in data)):
        return 4 + 1
    return 2 + 1


_SHORT_WIDTH = 4  # between the two that longer texts are searched for
_LEADS_OF_FOUR = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4")


def _count(data: bytes, byte: bytes, limit: int) -> int:
    """Return how often a byte occurs, or the limit if that is less."""
    # `find` and `replace` look for the next occurrence with `memchr`. `bytes.count` looks at each byte, which takes ten times
    # longer where the byte is rare: a picture in base64 has none. `replace` copies the text, `find` costs a call for each.
    position = -1
    for found in range(min(FEW, limit)):
        position = data.find(byte, position + 1)
        if position < 0:
            return found
    return len(data) - len(data.replace(byte, b"", limit))


def _measure_exactly(data: bytes, limits: JsonLimits) -> Measure:
    skeleton = _without_strings(data, limits.max_values)
    structure = _structure(skeleton)
    values = _count_values(skeleton, structure)
    # A name takes as long to read as a value, and a colon follows each.
    names = structure.count(b":")
    with_names = values + names
    if with_names > limits.max_values:
        raise over_limit(f"has {with_names} values and names", limits.max_values, "max_values")
    _check_depth(structure, limits.max_depth)
    text = _width(data) * len(data)
    size = text + VALUE_SIZE * values + NAME_SIZE * names
    return Measure(with_names, size, size + text)


def _without_strings(data: bytes, max_values: int) -> bytes:
    """Return a JSON text with a quote in place of each string."""
    text = without_escapes(data)
    # Each string has two quotes, and is a value or a name.
    if text.count(b'"') > 2 * max_values:
        raise over_limit("has too many values", max_values, "max_values")
    return outside_strings(text)


def _structure(skeleton: bytes) -> bytes:
    """Return the brackets, commas and colons alone: a message may have millions of digits for few of them."""
    return skeleton.translate(None, _NOT_STRUCTURE)


def _count_values(skeleton: bytes, structure: bytes) -> int:
    # A comma brings one more value, and a bracket its first value unless it is closed at once.
    opened = structure.count(b",") + structure.count(b"[") + structure.count(b"{")
    if b"[]" in structure or b"{}" in structure:
        # Nothing stood between them in the text, or a number.
        dense = skeleton.translate(None, _WHITE_SPACE)
        return 1 + opened - dense.count(b"[]") - dense.count(b"{}")
    return 1 + opened


def _check_depth(structure: bytes, max_depth: int) -> None:
    # +1 for each opening and -1 for each closing bracket; the depth is the largest sum of a prefix.
    steps = array("b", structure.translate(_STEPS, _NOT_BRACKETS))
    depth = max(accumulate(steps), default=0)
    if depth > max_depth:
        raise over_limit(f"is nested {depth} levels deep", max_depth, "max_depth")
