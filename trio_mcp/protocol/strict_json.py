"""JSON as RFC 8259 defines it, within limits.

The common decoders are too tolerant for a protocol: two readers of one message must never see two meanings. The standard
library accepts the last of two equal names, `NaN`, `1e999` as infinity, UTF-16, and a lone surrogate, which then fails to encode
far away. Deep nesting ends in a RecursionError whose depth depends on the stack. Here each of these is rejected where it is read,
with a message that says what to send instead. A byte order mark before the text has one meaning, and is skipped (RFC 8259, 8.1).
"""

# The work stays in C: the scanner of the standard library reads, with hooks, and pydantic_core writes. pydantic_core reads two to
# four times faster, but has no hook for a name that occurs twice and no limit for numbers; `quick_loads` proves that neither is
# there. What it cannot prove, and everything that is rejected, is read here, so that each error is worded in one place.
#
# Every check that needs a second pass over the text is started by a cheap search for a byte without which it cannot fail, so an
# ordinary message pays for none of them. Every second pass takes time linear in the text.

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cache, lru_cache
from itertools import compress
from math import isfinite
from operator import ne
from typing import Final, Literal

from pydantic_core import from_json, to_json

from ..errors import RemoteProtocolError
from ..types.base import JsonObject, JsonValue
from .json_limits import (
    BACKSLASH,
    DEFAULT_LIMITS,
    MAX_ENCODED_DEPTH,
    SHORT,
    JsonLimits as JsonLimits,  # noqa: PLC0414  re-exported
    Measure,
    measure,
    outside_strings,
    over_limit,
    without_escapes,
)


class LoneSurrogate(RemoteProtocolError):
    """A text holds half of a character.

    Attributes:
        why: where it is.
        value: what was parsed, with the lone surrogates in it. Nothing can encode it.
    """

    def __init__(self, why: str, value: JsonValue) -> None:
        super().__init__(f"The message is not JSON: {why}.", code=-32700)
        self.why = why
        self.value = value


def loads(data: bytes, limits: JsonLimits = DEFAULT_LIMITS, measured: Measure | None = None) -> JsonValue:
    """Parse a JSON text in UTF-8.

    Args:
        measured: what `measure` returned for this text and these limits, if it was called before.

    Raises:
        RemoteProtocolError: -32700 if it is not JSON (malformed, not UTF-8, a name twice in one object, NaN, an infinite
            number, a lone surrogate: `LoneSurrogate`), -32600 if it exceeds a limit, which the message names.
    """
    values = (measured or measure(data, limits)).values
    # Escapes are expensive in a long text, which is searched for them twice more.
    if len(data) <= SHORT or BACKSLASH not in data:
        quick = quick_loads if len(data) <= SHORT or values * _DENSE >= len(data) else sparse_loads
        if (value := quick(data, limits.max_number_chars)) is not UNPROVEN:
            return value
    return _strict_loads(data.removeprefix(BOM_UTF8), limits, many=values > _MANY)


def _strict_loads(data: bytes, limits: JsonLimits, *, many: bool) -> JsonValue:
    """Parse a text whose shape was checked; with `many` values no Python code runs for each number."""
    if many and has_number_over(data, limits.max_number_chars):
        raise over_limit(
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
        raise over_limit("is nested too deep for the stack", limits.max_depth, "max_depth") from None
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
        raise ValueError(first_flaw(value, root) or str(error)) from None
    # pydantic_core writes NaN and Infinity without quotes, but a string may hold these words too. With another spelling for the
    # numbers the two texts differ only if there is such a number.
    if is_infinite_in(value, raw) or has_long_number(raw):
        raise ValueError(first_flaw(value, root) or "NaN, infinite and very long numbers cannot be sent")
    return raw


def is_sendable(raw: bytes) -> bool:
    """Return whether a JSON text certainly has no NaN, infinite number, or number of more than 320 characters."""
    return not has_nan_words(raw) and not has_long_number(raw)


def has_nan_words(raw: bytes) -> bool:
    """Return whether a JSON text has one of the words NaN and Infinity, which may also stand in a string."""
    # The search for one byte is fifty times faster than one for a word, and mostly enough.
    return (_CAPITAL_N in raw and b"NaN" in raw) or (_CAPITAL_I in raw and b"Infinity" in raw)


# As numbers, because to look for a byte as a text of length one takes ten times as long in a short text.
_CAPITAL_N: Final = ord("N")
_CAPITAL_I: Final = ord("I")


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
        return over_limit(f"has a number of {len(digits)} characters", max_number_chars, "max_number_chars")

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


_MANY = 1_000  # values from which on two passes over the text cost less than a call for each number
_DENSE = 256  # bytes for each value up to which `quick_loads` is faster than `sparse_loads`: it writes long texts again


def _check_surrogates(value: JsonValue) -> None:
    """Raise if the value holds a lone surrogate (RFC 8259, 8.2): it is not a character, and could not be encoded again."""
    try:
        to_json(value)
    except ValueError as error:
        raise LoneSurrogate(first_flaw(value, "") or str(error), value) from None


def has_surrogate(text: str) -> bool:
    """Return whether a text has a lone surrogate."""
    return not text.isascii() and surrogates().search(text) is not None


def _other_encoding(data: bytes) -> str | None:
    encoding = json.detect_encoding(data)
    if encoding == "utf-8":
        return None
    return f"it looks like {encoding.upper()}, and only UTF-8 is read (RFC 8259, 8.1)"


# JSON read by the fast parser of pydantic_core, with a proof that the strict reader would have returned the same value
#
# That parser rejects what is not JSON, NaN, lone surrogates and other encodings than UTF-8. It accepts three things that the
# strict reader rejects: a name that occurs twice in an object, a number that is too large for a double, and a number of any
# length.
#
# A name that occurs twice loses a member, and with it at least the two quotes of the name. So the value is written again, and
# the quotes that begin and end strings are counted in both texts. They are the quotes that no backslash precedes: in the text
# that was read `\u0022` has none, and in the one that is written the quote of `\"` is left out.
#
# A long text with few values is not written again. The names of its value are counted, and the colons outside of its strings.
#
# An infinite number is written as `Infinity`. That word may also stand in a string; then the text is written once more with
# another spelling for such numbers, and the two differ only if there is one.


class Unproven(Enum):
    """The text has to be read by the strict reader."""

    UNPROVEN = "unproven"


UNPROVEN: Final = Unproven.UNPROVEN


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
    # As most programs write JSON; then nothing has to be counted.
    if written == data:
        return value
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
    return has_nan_words(written) and written != to_json(value, inf_nan_mode="null")


def may_overflow(data: bytes) -> bool:
    """Return whether a JSON text may have a number that is too large for a double: it has an exponent, or hundreds of digits."""
    # A search for one byte is much faster than one for digits and the byte behind them.
    return any(_may_follow(digits, byte, data) for digits, byte in ((1, b"e"), (1, b"E"), (_DIGITS_OF_A_DOUBLE, b".")))


def _may_follow(digits: int, byte: bytes, data: bytes) -> bool:
    """Return whether `byte` follows at least `digits` digits, or is too frequent to look at each occurrence."""
    *parts, rest = data.split(byte, _MAX_PARTS)
    return byte in rest or any(len(part) >= digits and part[-digits:].isdigit() for part in parts)


def has_number_over(data: bytes, max_chars: int) -> bool:
    """Return whether a JSON text has a number of more characters."""
    run = b"0" * (max_chars + 1)
    # Strings may have as many digits. They are taken out only if there are.
    return run in data.translate(_AS_ZEROS) and run in outside_strings(without_escapes(data)).translate(_AS_ZEROS)


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


# Where a value cannot be encoded

_PLAIN_NAME = r"[A-Za-z_$][\w$]{0,63}"


@cache
def surrogates() -> re.Pattern[str]:
    """Return the pattern of a lone surrogate. Most programs never meet text that needs it, and compiling it takes a while."""
    return re.compile("[\ud800-\udfff]")


def first_flaw(value: JsonValue, root: str) -> str | None:
    """Return where a value cannot be encoded, and why; None if it can be."""
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
            return "holds a lone surrogate, which is not a character" if surrogates().search(value) else None
        case dict():
            return _flaw_within(value.items(), steps)
        case list():
            return _flaw_within(enumerate(value), steps)
    return f"is a {type(value).__name__}, which is not a JSON value"


def _flaw_within(members: Iterable[tuple[str | int, JsonValue]], steps: list[str | int]) -> str | None:
    if len(steps) >= MAX_ENCODED_DEPTH:
        return f"is nested more than {MAX_ENCODED_DEPTH} levels deep, or contains itself"
    for step, member in members:
        # Most members are plain text or whole numbers, and there may be a hundred thousand of them.
        plain = member.isascii() if isinstance(member, str) else isinstance(member, int) and member.bit_length() < 64
        if plain and (isinstance(step, int) or step.isascii()):
            continue
        steps.append(step)
        if isinstance(step, str) and surrogates().search(step):
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
        if isinstance(step, str) and re.fullmatch(_PLAIN_NAME, step, re.ASCII):
            path += f".{step}" if path else step
        else:
            path += f"[{_quoted(step)}]" if isinstance(step, str) else f"[{step}]"
    return (path or "the value") + ("..." if len(steps) > 16 else "")
