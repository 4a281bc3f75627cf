"""JSON read by the fast parser of pydantic_core, with a proof that the strict reader would have returned the same value.

That parser rejects what is not JSON, NaN, lone surrogates and other encodings than UTF-8. It accepts three things that
`strict_json` rejects: a name that occurs twice in an object, a number that is too large for a double, and a number of any length.
"""

# A name that occurs twice loses a member, and with it at least the two quotes of the name. So the value is written again, and
# the quotes that begin and end strings are counted in both texts. They are the quotes that no backslash precedes: in the text
# that was read `\u0022` has none, and in the one that is written the quote of `\"` is left out.
#
# A long text with few values is not written again. The names of its value are counted, and the colons outside of its strings.
#
# An infinite number is written as `Infinity`. That word may also stand in a string; then the text is written once more with
# another spelling for such numbers, and the two differ only if there is one.

from __future__ import annotations

from enum import Enum
from math import isfinite
from typing import Final, Literal

from pydantic_core import from_json, to_json

from ..types.base import JsonValue, may_hold_nan


class Unproven(Enum):
    """The text has to be read by the strict reader."""

    UNPROVEN = "unproven"


UNPROVEN: Final = Unproven.UNPROVEN

# As numbers, because to look for a byte as a text of length one takes ten times as long in a short text.
BACKSLASH: Final = ord("\\")
_CAPITAL_I: Final = ord("I")


def quick_loads(data: bytes, max_number_chars: int) -> JsonValue | Literal[Unproven.UNPROVEN]:
    """Return the value of a JSON text, or `UNPROVEN` if it may have to be rejected; it must not be nested too deep."""
    if len(data) > max_number_chars and has_number_over(data, max_number_chars):
        return UNPROVEN
    try:
        # Names repeat and are kept once in memory; to look for each text among those of before would take longer.
        value: JsonValue = from_json(data, allow_inf_nan=False, cache_strings="keys")
        written = to_json(value)
    except ValueError:
        return UNPROVEN
    # What is read without escapes is written without them.
    escaped = BACKSLASH in data
    if (_count_quotes(written) != _count_quotes(data)) if escaped else (written.count(b'"') != data.count(b'"')):
        return UNPROVEN
    return UNPROVEN if _CAPITAL_I in written and is_infinite_in(value, written) else value


def sparse_loads(data: bytes, max_number_chars: int) -> JsonValue | Literal[Unproven.UNPROVEN]:
    """Do the same for a text without escapes that has few values, which are looked at one by one: the text is not written."""
    try:
        value: JsonValue = from_json(data, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        return UNPROVEN
    # Nothing of the strings is left, which are nearly all of such a text. A colon follows each name.
    skeleton = _outside_few_strings(data)
    if b"0" * (max_number_chars + 1) in skeleton.translate(_AS_ZEROS):
        return UNPROVEN
    return value if _names_if_finite(value) == skeleton.count(b":") else UNPROVEN


def _names_if_finite(value: JsonValue) -> int | None:
    """Return how many names of members a value has, or None if it has an infinite number."""
    names, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            names += len(each)
            left += each.values()
        elif isinstance(each, list):
            left += each
        elif isinstance(each, float) and not isfinite(each):
            return None
    return names


def is_infinite_in(value: JsonValue, written: bytes) -> bool:
    """Return whether a value holds NaN or an infinite number; `written` is its text by `to_json`."""
    return may_hold_nan(written) and written != to_json(value, inf_nan_mode="null")


def may_overflow(data: bytes) -> bool:
    """Return whether a JSON text may have a number that is too large for a double: it has an exponent, or hundreds of digits."""
    # A search for one byte is much faster than one for digits and the byte behind them.
    return any(_may_follow(digits, byte, data) for digits, byte in ((1, b"e"), (1, b"E"), (_DIGITS_OF_A_DOUBLE, b".")))


def _may_follow(digits: int, byte: bytes, data: bytes) -> bool:
    """Return whether this byte stands behind so many digits, or is too frequent to look at each."""
    *parts, rest = data.split(byte, _MAX_PARTS)
    return byte in rest or any(len(part) >= digits and part[-digits:].isdigit() for part in parts)


def has_number_over(data: bytes, max_chars: int) -> bool:
    """Return whether a JSON text has a number of more characters."""
    run = b"0" * (max_chars + 1)
    # Strings may have as many digits. They are taken out only if there are.
    return run in data.translate(_AS_ZEROS) and run in outside_strings(without_escapes(data)).translate(_AS_ZEROS)


def without_escapes(data: bytes) -> bytes:
    """Return a JSON text in which every quote begins or ends a string."""
    # Not by a regular expression: it would take a step for each escape, of which there may be millions.
    return data.replace(b"\\\\", b"").replace(b'\\"', b"") if BACKSLASH in data else data


def outside_strings(text: bytes) -> bytes:
    """Return a JSON text without escapes with a quote in place of each string."""
    return b'"'.join(text.split(b'"')[::2])


def _outside_few_strings(data: bytes) -> bytes:
    """Return what `outside_strings` does, without a copy of the strings if there are not too many."""
    parts: list[bytes] = []
    start = 0
    for _ in range(_FEW):
        begin = data.find(_QUOTE, start)
        if begin < 0:
            return b'"'.join([*parts, data[start:]])
        parts.append(data[start:begin])
        start = data.find(_QUOTE, begin + 1) + 1
    return outside_strings(data)


_FEW = 256
_QUOTE = ord('"')
_DIGITS_OF_A_DOUBLE = 308
_MAX_PARTS = 1000
_AS_ZEROS = bytes.maketrans(b"123456789+-.eE", b"0" * 14)


def _count_quotes(data: bytes) -> int:
    return without_escapes(data).count(b'"')
