"""JSON as RFC 8259 defines it, within limits.

The common decoders are too tolerant for a protocol: two readers of one message must never see two meanings. The standard
library accepts the last of two equal names, `NaN`, `1e999` as infinity, UTF-16, a byte order mark, and a lone surrogate, which
then fails to encode far away. Deep nesting ends in a RecursionError whose depth depends on the stack. Here each of these is
rejected where it is read, with a message that says what to send instead.
"""

# The work stays in C: the scanner of the standard library reads, with hooks, and pydantic_core writes. pydantic_core reads two to
# four times faster, but has no hook for a name that occurs twice and no limit for numbers; `quick_json` proves that neither is
# there. What it cannot prove, and everything that is rejected, is read here, so that each error is worded in one place.
#
# Every check that needs a second pass over the text is started by a cheap search for a byte without which it cannot fail, so an
# ordinary message pays for none of them. Every second pass takes time linear in the text.

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, compress
from math import isfinite
from operator import ne
from typing import Final

from pydantic_core import to_json

from ..errors import RemoteProtocolError
from ..types.base import JsonObject, JsonValue
from .quick_json import (
    UNPROVEN,
    has_number_over,
    is_infinite_in,
    may_overflow,
    outside_strings,
    quick_loads,
    without_escapes,
)

_MAX_ENCODED_DEPTH = 255  # the limit of pydantic_core
_MAX_DIGITS = 640  # the least value that `sys.set_int_max_str_digits` allows


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """The limits of one message.

    Attributes:
        max_bytes: bytes of text.
        max_depth: nested arrays and objects, 255 at most: a message that can be read can also be written again.
        max_number_chars: characters of a number, 640 at most; the largest double has 309 digits.
        max_values: arrays, objects, strings, numbers, booleans and nulls together, and the names of members. Each costs some
            hundred bytes of memory, and some hundred nanoseconds in which nothing else runs, however few bytes of text it has.
    """

    max_bytes: int = 4 * 1024 * 1024
    max_depth: int = 64
    max_number_chars: int = 320
    max_values: int = 100_000

    def __post_init__(self) -> None:
        if not 0 < self.max_depth <= _MAX_ENCODED_DEPTH:
            raise ValueError(f"max_depth must be from 1 to {_MAX_ENCODED_DEPTH}, not {self.max_depth}")
        if not 0 < self.max_number_chars <= _MAX_DIGITS:
            raise ValueError(f"max_number_chars must be from 1 to {_MAX_DIGITS}, not {self.max_number_chars}")


DEFAULT_LIMITS = JsonLimits()

VALUE_SIZE: Final = 120
"""Bytes of memory that a value takes besides its text, at most; measured with CPython 3.11 to 3.13."""

EXACT_FROM: Final = 64 * 1024
"""Bytes by which a rough count of the values may be too high before they are counted exactly."""


def loads(data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> JsonValue:
    """Parse a JSON text in UTF-8.

    Raises:
        RemoteProtocolError: -32700 if it is not JSON (malformed, not UTF-8, a name twice in one object, NaN, an infinite
            number, a lone surrogate), -32600 if it exceeds a limit, which the message names.
    """
    if len(data) > limits.max_bytes:
        raise _over_limit(f"has {len(data)} bytes", limits.max_bytes, "max_bytes")
    values = _check_shape(data, limits)
    # Escapes are dear there: the text is searched for them twice more.
    quick = values * _DENSE >= len(data) and (len(data) <= _SHORT or b"\\" not in data)
    if quick and (value := quick_loads(data, limits.max_number_chars)) is not UNPROVEN:
        return value
    return _strict_loads(data, limits, many=values > _MANY)


def _strict_loads(data: bytes, limits: JsonLimits, *, many: bool) -> JsonValue:
    """Parse a text whose shape was checked; with `many` values no Python code runs for each number."""
    if many and has_number_over(data, limits.max_number_chars):
        raise _over_limit(
            f"has a number of more than {limits.max_number_chars} characters",
            limits.max_number_chars,
            "max_number_chars",
        )
    try:
        text = data.decode("utf-8")
        value: JsonValue = (_UNHOOKED if many else _decoder(limits.max_number_chars)).decode(text)
    except UnicodeDecodeError as error:
        raise _not_json(_other_encoding(data) or f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _not_json(_other_encoding(data) or f"{error.msg} (character {error.pos})") from None
    except RecursionError:
        raise _over_limit("is nested too deep for the stack", limits.max_depth, "max_depth") from None
    # Nearly every text ends at the search for one character, which is fifty times faster than one for several.
    if "\\" in text and "\\u" in text and ("\\ud" in text or "\\uD" in text):
        _check_surrogates(value)
    if many and may_overflow(data) and is_infinite_in(value, to_json(value)):
        raise _not_json("it has a number that is too large for a double")
    return value


def dumps(value: JsonValue, root: str = "") -> bytes:
    """Encode a value as compact JSON in UTF-8, without a line break.

    Args:
        root: the name of the value in error messages, for example `result`.

    Raises:
        ValueError: it holds NaN, an infinite number, a number of more than 320 characters or a lone surrogate, or is nested
            deeper than 255. The message has the path of the first one, like `result.rows[3].price`.
    """
    try:
        raw = to_json(value)
    except ValueError as error:
        raise ValueError(_first_flaw(value, root) or str(error)) from None
    # pydantic_core writes NaN and Infinity without quotes, but a string may hold these words too. With another spelling for the
    # numbers the two texts differ only if there is such a number.
    if is_infinite_in(value, raw) or has_long_number(raw):
        raise ValueError(_first_flaw(value, root) or "NaN, infinite and very long numbers cannot be sent")
    return raw


def held_size(data: bytes) -> int:
    """Return how many bytes of memory the value of a JSON text takes, at most; the text must have been accepted by `loads`."""
    # A string with one character beyond Latin-1 takes up to four bytes for each of its characters.
    width = 1 if data.isascii() and b"\\u" not in data else 4
    values = 1 + data.count(b",") + data.count(b"[") + data.count(b"{")
    # This counts the commas in strings too: a text of a megabyte may have a hundred thousand.
    if values * VALUE_SIZE > len(data) + EXACT_FROM:
        skeleton = _without_strings(data, len(data))
        values = _count_values(skeleton, _structure(skeleton))
    return width * len(data) + VALUE_SIZE * values


def has_long_number(raw: bytes) -> bool:
    """Return whether a JSON text has a number of more than 320 characters: readers with the default limits reject the message."""
    # Such a number is an integer with 320 digits in a row, of which a sample takes 24. Only if the sample has as many is the text
    # searched, and then again without its strings: a search of every picture that is sent would cost as much as its encoding.
    if len(raw) <= _MAX_NUMBER_CHARS or _SAMPLED_DIGITS not in raw[::_SAMPLE_STEP].translate(_DIGITS_AS_ZEROS):
        return False
    if _MANY_DIGITS not in raw.translate(_DIGITS_AS_ZEROS):
        return False
    numbers = outside_strings(without_escapes(raw)).translate(_DIGITS_AS_ZEROS)
    return b"0" + _MANY_DIGITS in numbers or b"-" + _MANY_DIGITS in numbers


_MAX_NUMBER_CHARS = DEFAULT_LIMITS.max_number_chars
_SAMPLE_STEP = 13  # not a power of two, or a text that repeats itself could show the same byte in every sample
_DIGITS_AS_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_DIGITS = b"0" * _MAX_NUMBER_CHARS
_SAMPLED_DIGITS = b"0" * (_MAX_NUMBER_CHARS // _SAMPLE_STEP)


# Decoding


def _not_json(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"The message is not JSON: {reason}.", code=-32700)


def _over_limit(measure: str, limit: int, name: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"The message {measure}; the limit is {limit} ({name}).", code=-32600)


def _quoted(text: str) -> str:
    """Return a name from the peer for an error message: plain ASCII, and short."""
    return json.dumps(text if len(text) <= 40 else text[:40] + "...")


def _object(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _not_json(f"the name {_quoted(_first_twice(pairs, members))} occurs twice in one object")
    return members


def _first_twice(pairs: list[tuple[str, JsonValue]], members: JsonObject) -> str:
    # A dict has each name where it came first: the two go side by side up to the first name that comes again.
    names = [name for name, _ in pairs]
    return next(compress(names, map(ne, names, members)), names[-1])


def _constant(name: str) -> JsonValue:
    raise _not_json(f"{name} is not a JSON number")


_UNHOOKED = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
"""Does not look at numbers, which takes half of the time where there are many."""


@lru_cache(maxsize=16)
def _decoder(max_number_chars: int) -> json.JSONDecoder:

    def too_long(digits: str) -> RemoteProtocolError:
        return _over_limit(f"has a number of {len(digits)} characters", max_number_chars, "max_number_chars")

    def integer(digits: str) -> int:
        if len(digits) > max_number_chars:
            raise too_long(digits)
        return int(digits)

    def real(digits: str) -> float:
        if len(digits) > max_number_chars:
            raise too_long(digits)
        number = float(digits)
        if not isfinite(number):
            raise _not_json(f"the number {_quoted(digits)} is too large for a double")
        return number

    return json.JSONDecoder(object_pairs_hook=_object, parse_int=integer, parse_float=real, parse_constant=_constant)


_WHITE_SPACE = b" \t\r\n"
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NOT_STRUCTURE = bytes(set(range(256)) - set(b"[]{},:"))
_MANY = 1_000  # values from which on two passes over the text cost less than a call for each number
_DENSE = 256  # bytes for each value up to which `quick_loads` is faster: it writes long texts again
_SHORT = 4096  # bytes up to which `bytes.count` is faster than `_count`
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _check_shape(data: bytes, limits: JsonLimits) -> int:
    """Raise if the text has too many values or is nested too deep. Takes milliseconds for each MiB, whatever is in it.

    Returns:
        an upper bound of the values.
    """
    # These counts include what stands in strings. Only if there is enough of it are strings taken out and the rest measured.
    if len(data) <= _SHORT:
        brackets = data.count(b"[") + data.count(b"{")
        opened = brackets + data.count(b",")
    else:
        brackets = _count(data, b"[", limits.max_values) + _count(data, b"{", limits.max_values)
        opened = brackets + _count(data, b",", limits.max_values)
    # Each value but the first has one of these before it, and so has each name.
    if brackets > limits.max_depth or 2 * opened >= limits.max_values:
        skeleton = _without_strings(data, limits.max_values)
        structure = _structure(skeleton)
        opened = _check_values(skeleton, structure, limits.max_values)
        _check_depth(structure, limits.max_depth)
    return opened + 1


def _count(data: bytes, byte: bytes, limit: int) -> int:
    """Return how often a byte occurs, or the limit if that is less."""
    # A replacement finds the next occurrence with `memchr`. `bytes.count` looks at each byte, which takes ten times longer where
    # the byte is rare: a picture in base64 has none.
    return len(data) - len(data.replace(byte, b"", limit))


def _without_strings(data: bytes, max_values: int) -> bytes:
    """Return a JSON text with a quote in place of each string."""
    text = without_escapes(data)
    # Each string has two quotes, and is a value or a name.
    if text.count(b'"') > 2 * max_values:
        raise _over_limit("has too many values", max_values, "max_values")
    return outside_strings(text)


def _count_values(skeleton: bytes, structure: bytes) -> int:
    # A comma brings one more value, and a bracket its first value unless it is closed at once.
    opened = structure.count(b",") + structure.count(b"[") + structure.count(b"{")
    if b"[]" in structure or b"{}" in structure:
        # Nothing stood between them in the text, or a number.
        dense = skeleton.translate(None, _WHITE_SPACE)
        return 1 + opened - dense.count(b"[]") - dense.count(b"{}")
    return 1 + opened


def _structure(skeleton: bytes) -> bytes:
    """Return the brackets, commas and colons alone: a message may have millions of digits for few of them."""
    return skeleton.translate(None, _NOT_STRUCTURE)


def _check_values(skeleton: bytes, structure: bytes, max_values: int) -> int:
    # A name takes as long to read as a value, and a colon follows each.
    values = _count_values(skeleton, structure) + structure.count(b":")
    if values > max_values:
        raise _over_limit(f"has {values} values and names", max_values, "max_values")
    return values


def _check_depth(structure: bytes, max_depth: int) -> None:
    # +1 for each opening and -1 for each closing bracket; the depth is the largest sum of a prefix.
    steps = array("b", structure.translate(_STEPS, _NOT_BRACKETS))
    depth = max(accumulate(steps), default=0)
    if depth > max_depth:
        raise _over_limit(f"is nested {depth} levels deep", max_depth, "max_depth")


def _check_surrogates(value: JsonValue) -> None:
    """Raise if the value holds a lone surrogate (RFC 8259, 8.2): it is not a character, and could not be encoded again."""
    try:
        to_json(value)
    except ValueError as error:
        raise _not_json(_first_flaw(value, "") or str(error)) from None


def _other_encoding(data: bytes) -> str | None:
    encoding = json.detect_encoding(data)
    if encoding == "utf-8":
        return None
    name = "UTF-8 with a byte order mark" if encoding == "utf-8-sig" else encoding.upper()
    return f"it looks like {name}, and only UTF-8 without a byte order mark is read (RFC 8259, 8.1)"


# Where a value cannot be encoded

_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN_NAME = re.compile(r"[A-Za-z_$][\w$]{0,63}", re.ASCII)


def _first_flaw(value: JsonValue, root: str) -> str | None:
    steps: list[str | int] = []
    reason = _flaw(value, steps)
    return None if reason is None else f"{json_path(root, steps)} {reason}"


def _flaw(value: JsonValue, steps: list[str | int]) -> str | None:
    """Return the reason why the first value below cannot be encoded, or None; `steps` then leads to it."""
    match value:
        case None | bool():
            return None
        case int():
            # The sign is one of the characters.
            if -(10 ** (_MAX_NUMBER_CHARS - 1)) < value < 10**_MAX_NUMBER_CHARS:
                return None
            return f"is a number of more than {_MAX_NUMBER_CHARS} characters, which JSON readers reject"
        case float():
            return None if isfinite(value) else f"is {value}, which JSON cannot hold"
        case str():
            return "holds a lone surrogate, which is not a character" if _SURROGATE.search(value) else None
        case dict():
            return _flaw_within(value.items(), steps)
        case list():
            return _flaw_within(enumerate(value), steps)
    return f"is a {type(value).__name__}, which is not a JSON value"


def _flaw_within(members: Iterable[tuple[str | int, JsonValue]], steps: list[str | int]) -> str | None:
    if len(steps) >= _MAX_ENCODED_DEPTH:
        return f"is nested more than {_MAX_ENCODED_DEPTH} levels deep, or contains itself"
    for step, member in members:
        # Most members are plain text or whole numbers, and there may be a hundred thousand of them.
        plain = member.isascii() if isinstance(member, str) else isinstance(member, int) and member.bit_length() < 64
        if plain and (isinstance(step, int) or step.isascii()):
            continue
        steps.append(step)
        if isinstance(step, str) and _SURROGATE.search(step):
            return "has a lone surrogate in its name"
        reason = _flaw(member, steps)
        if reason is not None:
            return reason
        steps.pop()
    return None


def json_path(root: str, steps: Sequence[str | int]) -> str:
    """Return the path of a value for error messages, like `result.rows[3].price`, cut after sixteen steps."""
    path = root
    for step in steps[:16]:
        if isinstance(step, str) and _PLAIN_NAME.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f"[{_quoted(step)}]" if isinstance(step, str) else f"[{step}]"
    return (path or "the value") + ("..." if len(steps) > 16 else "")
