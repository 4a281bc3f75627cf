"""The quick reader: it reads what the strict one would read, to the same value, and proves nothing else."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given, strategies as st
from json_strategies import json_values

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.strict_json import (
    DEFAULT_LIMITS,
    UNPROVEN,
    _strict_loads,
    has_number_over,
    quick_loads,
    sparse_loads,
)
from trio_mcp.types import JsonValue

LONGEST = DEFAULT_LIMITS.max_number_chars

# Pieces that meet at every boundary: names that repeat in another spelling, quotes in strings, numbers at a limit.
PIECES = (
    *'[]{}:,"\\ 0',
    *('"a"', '"b"', '"\\u0061"', '"\\""', '"\\\\"', '"\\u0022"', '"Infinity"', '"\\ud83d\\ude00"', '"\\ud800"', '"é"'),
    *("1", "-0", "1.5", "1e5", "1e999", "-1e-999", "NaN", "Infinity", "true", "null"),
    *("9" * LONGEST, "9" * (LONGEST + 1)),
    *('{"a":', '"a":1,', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}', f'"{"9" * (LONGEST + 1)}"', f"1.{'0' * LONGEST}"),
)


def read_strictly(data: bytes, *, many: bool) -> JsonValue | RemoteProtocolError:
    try:
        return _strict_loads(data, DEFAULT_LIMITS, many=many)
    except RemoteProtocolError as error:
        return error


def same(one: JsonValue, other: JsonValue) -> bool:
    """Equal, with equal types: `1 == 1.0 == True` for Python."""
    return repr(one) == repr(other)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=40), st.booleans())
@example('{"a":1,"\\u0061":2}', False)
@example('[1e999,"Infinity"]', True)
@example('{"a\\\\":1,"a\\\\":2}', False)
@example('{"a":1,"a":2}', True)
@example('{"a:":1,"b":2}', True)
@example('[{"b":{"":0,"":0}}]', True)
@example('["Infinity",-1e999]', True)
@example("NaN", False)
@example("[1,]", False)
@example('"\\ud800"', False)
@example(f'["", {"9" * (LONGEST + 1)}]', True)
def test_what_it_reads_the_strict_reader_reads_the_same(text: str, many: bool) -> None:
    data = text.encode("utf-8", "surrogatepass")
    readers = (quick_loads,) if "\\" in text else (quick_loads, sparse_loads)
    for reader in readers:
        value = reader(data, LONGEST)
        if value is not UNPROVEN:
            strict = read_strictly(data, many=many)
            assert not isinstance(strict, RemoteProtocolError)
            assert same(value, strict)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_the_strict_reader_judges_alike_with_and_without_hooks(text: str) -> None:
    few, many = (read_strictly(text.encode(), many=many) for many in (False, True))
    if isinstance(few, RemoteProtocolError):
        assert isinstance(many, RemoteProtocolError)
    else:
        assert not isinstance(many, RemoteProtocolError)
        assert same(few, many)


@given(json_values(st.integers(-(10**30), 10**30)))
@example(['"', "\\", '\\"', "Infinity", "NaN", "é\u2028", {'"': "\\u0022"}, "9" * 1000, math.ulp(0), 10**319])
def test_it_reads_all_that_is_well_formed(value: JsonValue) -> None:
    assert same(quick_loads(json.dumps(value).encode(), LONGEST), value)
    text = json.dumps(value, ensure_ascii=False)
    assert same(quick_loads(text.encode(), LONGEST), value)
    if "\\" not in text:
        assert same(sparse_loads(text.encode(), LONGEST), value)


def test_a_long_number_beside_many_strings_is_not_read() -> None:
    assert sparse_loads(b'["' + b'","' * 300 + b'", ' + b"9" * (LONGEST + 1) + b"]", LONGEST) is UNPROVEN


@pytest.mark.parametrize(
    "number", ["9" * (LONGEST + 1), "0." + "1" * LONGEST, "1e" + "0" * LONGEST, "-" + "9" * LONGEST]
)
def test_a_number_over_the_limit_is_found_and_not_in_a_string(number: str) -> None:
    assert has_number_over(f'{{"a":{number}}}'.encode(), LONGEST)
    assert not has_number_over(f'{{"a":"\\\\","b\\"":"{number}"}}'.encode(), LONGEST)
