"""A message has a limited number of values, whatever their text is; commas and brackets inside strings are no values.

The name of a member counts as a value: to read an object takes twice as long as an array of its values.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from naming import unnamed

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.strict_json import JsonLimits, dumps, loads
from trio_mcp.types import JsonValue

MIB = 1 << 20
SMALL = JsonLimits(max_values=4)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(alphabet='[]{},:"\\ a', max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[{,"\\', max_size=5), inner, max_size=4)
    ),
)


def count(value: JsonValue) -> int:
    match value:
        case dict():
            return 1 + len(value) + sum(map(count, value.values()))
        case list():
            return 1 + sum(map(count, value))
    return 1


@given(json_values)
def test_the_limit_counts_values_exactly(value: JsonValue) -> None:
    text, values = dumps(value), count(value)
    assert loads(text, JsonLimits(max_values=values)) == value
    if values > 1:
        with pytest.raises(RemoteProtocolError, match="max_values"):
            loads(text, JsonLimits(max_values=values - 1))


@pytest.mark.parametrize(
    "text", [b"[1,2,3]", b'{"a":[1]}', b"[ [ ] , [ ] ]", b'[",,,,","[[[[","\\",,,,"]', b'["\\\\",1,2]', b'[{":,:":0}]']
)
def test_as_many_values_as_the_limit_are_read(text: bytes) -> None:
    loads(text, SMALL)


@pytest.mark.parametrize("text", [b"[1,2,3,4]", b"[[[[[]]]]]", b'{"a":1,"b":2}', b'["","","",""]', b"[[],[],[],[]]"])
def test_one_value_more_is_refused_and_the_limit_named(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as raised:
        loads(text, SMALL)
    assert raised.value.code == -32600
    assert unnamed(str(raised.value), "5", "4", "max_values") == []


@pytest.mark.parametrize("unit", [b"1,", b'"",', b"[[[]]],", b'{"a":{}},', b'{"a":1},', b"[", b"{", b'"[",'])
def test_a_text_of_many_values_is_refused_before_any_is_made(unit: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="max_values"):
        loads(b"[" + unit * ((4 * MIB - 2) // len(unit)))


@pytest.mark.parametrize("unit", [b",", b"[", b":", b"{", b"\\\\", b'\\",', b"a" * 64])
def test_a_long_string_is_one_value(unit: bytes) -> None:
    text = unit * ((4 * MIB - 2) // len(unit))
    loads(b'"%b"' % text)


@pytest.mark.parametrize("number", [b"1" + b"0" * 320, b"-" + b"7" * 320, b"9" * 5_000])
def test_a_number_that_is_too_long_is_found_among_many(number: bytes) -> None:
    rows = b"[" + b"1," * 5_000
    with pytest.raises(RemoteProtocolError, match="max_number_chars"):
        loads(rows + number + b"]")
    assert loads(rows + b'"' + number + b'"]') == [1] * 5_000 + [number.decode()]
    longest = number[:320]
    assert loads(rows + longest + b"]") == [1] * 5_000 + [int(longest)]
