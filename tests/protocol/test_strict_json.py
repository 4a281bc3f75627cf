"""JSON: one meaning for every text, limits that are named, time linear in the input."""

from __future__ import annotations

import json
import math
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from json_strategies import json_values
from naming import naming

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.strict_json import DEFAULT_LIMITS, JsonLimits, dumps, loads
from trio_mcp.types import JsonValue

MIB = 1024 * 1024
LARGEST_DOUBLE = sys.float_info.max

values = json_values(st.integers(-(10**30), 10**30))

# Texts without blanks, one after the other.

MALFORMED = r"""{ {"a":} {"a":1,} [1,] 01 +1 .5 1. 'a' "\x41" tru {a:1}"""
NAMES_TWICE = r"""
{"a":1,"a":1} {"a":1,"b":2,"a":3} {"params":{"name":"x","name":"y"}} [[{"deep":[{"k":{},"k":[]}]}]]
{"a":1,"\u0061":2} {"":1,"":2}
"""
LONE_SURROGATES = r"""
"\ud800" "\uDC00" "x\uDBFFx" "\udc00\ud800" "\ud800\ud800\udc00" "\ud83d\ude00\ude00" "\\\ud800"
{"\ud800":1} {"a":[{"b":"\udfff"}]}
"""


def refused(data: bytes, code: int, *names: object, limits: JsonLimits = DEFAULT_LIMITS) -> str:
    """Check that a text is refused with a code and names what it should; its error's text."""
    with pytest.raises(RemoteProtocolError, match=naming(*names)) as caught:
        loads(data, limits)
    assert caught.value.code == code
    return str(caught.value)


def outcome(data: bytes) -> JsonValue | RemoteProtocolError:
    try:
        return loads(data)
    except RemoteProtocolError as error:
        return error


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


# Reading


@given(values)
def test_what_is_written_is_read_back(value: JsonValue) -> None:
    assert loads(dumps(value)) == value == loads(json.dumps(value).encode())


@given(st.binary(max_size=80))
@example(b"\xff\xfe")
@example(b"")
def test_any_bytes_are_read_or_refused_with_a_code(data: bytes) -> None:
    result = outcome(data)
    if isinstance(result, RemoteProtocolError):
        assert result.code in (-32700, -32600)


@given(st.text(alphabet='[]{}",:\\ud8c01eE.-+ntfalsrNaI \n', max_size=40))
def test_what_is_accepted_the_standard_decoder_reads_the_same(text: str) -> None:
    result = outcome(text.encode())
    if not isinstance(result, RemoteProtocolError):
        assert result == json.loads(text)


@pytest.mark.parametrize("text", ["", " ", "1 2", '"\t"', *MALFORMED.split()])
def test_malformed_text_is_a_parse_error(text: str) -> None:
    refused(text.encode(), -32700)


@pytest.mark.parametrize("text", NAMES_TWICE.split())
def test_a_name_twice_in_one_object_is_refused_at_every_level(text: str) -> None:
    refused(text.encode(), -32700, "twice")


def test_equal_names_in_different_objects_are_fine() -> None:
    assert loads(b'[{"a":1},{"a":{"a":2}}]') == [{"a": 1}, {"a": {"a": 2}}]


def test_a_refusal_quotes_a_long_or_odd_name_short_and_in_ascii() -> None:
    member = json.dumps("é\n" * 1000).encode() + b":1"
    text = refused(b"{%b,%b}" % (member, member), -32700)
    assert text.isascii()
    assert "\n" not in text
    assert len(text) < 400


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 309 + ".0"])
@pytest.mark.parametrize("frame", ["%s", '{"a":[%s]}'])
def test_a_number_that_is_none_or_infinite_is_refused(number: str, frame: str) -> None:
    refused((frame % number).encode(), -32700)


@pytest.mark.parametrize("number", [LARGEST_DOUBLE, 2**64 + 1, 10**320 - 1], ids=["double", "integer", "length limit"])
def test_a_large_number_is_read_exactly(number: float) -> None:
    assert loads(repr(number).encode()) == number


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 320, "0." + "1" * 400, "1e" + "0" * 400])
def test_a_number_over_the_length_limit_is_refused_naming_it(number: str) -> None:
    refused(f'{{"a":{number}}}'.encode(), -32600, 320, "max_number_chars")


def test_a_byte_that_is_not_utf_8_is_refused_wherever_it_stands() -> None:
    text = b'{"a":["b",1.5,true]}'
    for bad in range(0x80, 0x100):
        for position in range(len(text)):
            refused(text[:position] + bytes([bad]) + text[position + 1 :], -32700)


@pytest.mark.parametrize("sequence", [b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"])
def test_surrogates_overlong_forms_and_cut_sequences_in_utf_8_are_refused(sequence: bytes) -> None:
    refused(b'"%b"' % sequence, -32700, "byte 1", "UTF-8")


OTHERS = {name.lower(): name for name in ("UTF-16", "UTF-16-LE", "UTF-16-BE", "UTF-32", "UTF-32-LE", "UTF-32-BE")}


@pytest.mark.parametrize(("encoding", "name"), OTHERS.items())
def test_another_encoding_is_refused_by_its_name(encoding: str, name: str) -> None:
    refused('{"method":"ping"}'.encode(encoding), -32700, name, "UTF-8")


def test_a_byte_order_mark_before_a_text_is_skipped_and_a_second_one_is_not() -> None:
    assert loads(b'\xef\xbb\xbf{"a": "\\n"}') == {"a": "\n"}
    refused(b"\xef\xbb\xbf\xef\xbb\xbf{}", -32700)


@pytest.mark.parametrize("text", LONE_SURROGATES.split())
def test_a_lone_surrogate_is_refused(text: str) -> None:
    refused(text.encode(), -32700, "surrogate")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"\\ud800"', "\\ud800"),
        (r'"\\\\ud800"', "\\\\ud800"),
        (r'"\uD7FF\uE000"', "\ud7ff\ue000"),
        (r'"\u0000"', "\0"),
        (r'"\u2028"', "\u2028"),
    ],
)
def test_whole_pairs_and_escaped_backslashes_are_read(text: str, value: str) -> None:
    assert value == loads(text.encode())


def test_the_refusal_of_a_lone_surrogate_says_where_it_is() -> None:
    refused(rb'{"params":{"arguments":{"names":["a","\ud800"]}}}', -32700, "params.arguments.names[1]")


# Depth


def test_depth_up_to_the_limit_is_read() -> None:
    loads(nested(64))
    loads(b'{"a":' * 64 + b"1" + b"}" * 64)


@pytest.mark.parametrize("depth", [65, 10**2, 10**3, 10**4])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_depth_over_the_limit_is_refused_naming_it(depth: int, opening: bytes) -> None:
    refused((opening * depth)[: 4 * MIB], -32600, 64, "max_depth")


def test_a_wide_text_is_not_deep() -> None:
    assert loads(b"[" + b",".join([b"[{}]"] * 1000) + b"]") == [[{}]] * 1000


@pytest.mark.parametrize("string", ["[" * 500, '\\"' + "[" * 500, "\\\\" + "{" * 500, '\\\\\\"' + "[" * 500])
def test_brackets_inside_strings_do_not_count(string: str) -> None:
    assert [json.loads(f'"{string}"')] == loads(f'["{string}"]'.encode())


def test_brackets_after_a_string_that_ends_in_a_backslash_count() -> None:
    refused(b'["\\\\",' + b"[" * 100, -32600, "max_depth")


def test_a_depth_limit_may_be_set_up_to_what_can_be_written() -> None:
    loads(nested(255), JsonLimits(max_depth=255))
    refused(nested(256), -32600, "max_depth", limits=JsonLimits(max_depth=255))
    with pytest.raises(ValueError, match=naming("max_depth", 255)):
        JsonLimits(max_depth=256)


@pytest.mark.parametrize("length", [0, 641])
def test_a_number_limit_stays_where_python_converts_integers(length: int) -> None:
    with pytest.raises(ValueError, match=naming("max_number_chars", 640)):
        JsonLimits(max_number_chars=length)


@pytest.mark.parametrize("name", ["max_bytes", "max_depth", "max_number_chars", "max_values"])
@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_a_limit_is_a_whole_number_of_at_least_one(name: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        JsonLimits(**{name: value})


def test_a_nearly_used_up_stack_is_a_refusal_and_no_recursion_error() -> None:
    outcomes: list[JsonValue | RemoteProtocolError] = []

    def descend() -> None:
        with suppress(RecursionError):
            descend()
        try:
            result = outcome(nested(64))
        except RecursionError:  # the call itself no longer fits
            return
        outcomes.append(result)

    descend()
    assert {result.code for result in outcomes if isinstance(result, RemoteProtocolError)} <= {-32600}
    assert not isinstance(outcomes[-1], RemoteProtocolError)


# Size and time


def test_a_text_over_the_size_limit_is_refused_naming_it() -> None:
    assert loads(b"[]" + b" " * (4 * MIB - 2)) == []
    refused(b"[]" + b" " * (4 * MIB - 1), -32600, 4 * MIB + 1, 4 * MIB, "max_bytes")


@pytest.mark.parametrize(
    ("head", "unit", "tail"),
    [
        (b"", b'"', b""),
        (b'"', b"\\", b""),
        (b"", b"\\", b""),
        (b'"', b'\\"', b""),
        (b"", b"[]", b""),
        (b"", b"]", b""),
        (b"[", b'"[",', b"1]"),
        (b'["', b"\\ud83d\\ude00", b'"]'),
        (b'["', b"\\\\ud800", b'"]'),
        (b"[", b"1,", b"]"),
        (b"", b"\n", b"x"),
        (b'{"a":1,', b'"a":1,', b'"b":1}'),
    ],
)
def test_a_hostile_text_of_the_largest_size_takes_linear_time(head: bytes, unit: bytes, tail: bytes) -> None:
    """With anything quadratic these four mebibytes would take minutes."""
    text = head + unit * ((4 * MIB - len(head) - len(tail)) // len(unit)) + tail
    outcome(text)


def test_long_names_on_the_way_to_a_flaw_take_linear_time() -> None:
    name = b'{"%b":' % (b"k" * 60_000)
    text = name * 60 + b"[" + b"1," * 90_000 + b'"\\ud800"]' + b"}" * 60
    refused(text, -32700, "surrogate")


# Writing


def test_writing_is_compact_utf_8() -> None:
    assert '{"a":[1,2.5,null,true,"é\u2028"]}'.encode() == dumps({"a": [1, 2.5, None, True, "é\u2028"]})


@given(values)
def test_nothing_written_holds_a_line_break(value: JsonValue) -> None:
    assert not {*b"\r\n"} & {*dumps(value)}


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity is not NaN"])
def test_text_that_only_speaks_of_such_numbers_is_written(text: str) -> None:
    value: JsonValue = {text: [text, None]}
    assert value == loads(dumps(value))


@pytest.mark.parametrize(
    ("value", "root", "names"),
    [
        ({"rows": [{"price": 1.0}, 2, 3, {"price": math.nan}]}, "result", ("result.rows[3].price", "nan", "JSON")),
        ({"price": math.inf}, "result", ("result.price", "inf")),
        ({"price": -math.inf}, "result", ("result.price", "-inf")),
        ({"a": "NaN", "b": math.nan}, "", ("b", "nan")),
        (math.nan, "", ("value", "nan")),
        ({"two words": {"": {"_meta": [math.inf]}}}, "result", ('result["two words"][""]._meta[0]', "inf")),
        ("\ud800", "id", ("id", "surrogate")),
        ({"content": [{"text": "\ud800"}]}, "", ("content[0].text", "surrogate")),
        ({"content": {"\udfff": 1}}, "", (r'content["\udfff"]', "surrogate", "name")),
        ({"when": object()}, "", ("when", "object", "JSON")),
        ({"rows": [1, 10**320]}, "result", ("result.rows[1]", "320 characters")),
        ({"rows": [1, -(10**319)]}, "result", ("result.rows[1]", "320 characters")),
        ({"x" * 320: "0" * 320, "total": 10**5000}, "", ("total", "320 characters")),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(value: JsonValue, root: str, names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*names)):
        dumps(value, root)


@pytest.mark.parametrize("number", [10**320, -(10**319)])
def test_a_number_that_is_too_long_is_found_wherever_it_stands(number: int) -> None:
    for before in range(40):
        with pytest.raises(ValueError, match=naming("n", "320 characters")):
            dumps({"x" * before: "é", "n": number})


@pytest.mark.parametrize("value", [10**320 - 1, 1 - 10**319, "0" * 1000, [True, *[10**319] * 3], {"0" * 1000: 1.5}])
def test_every_number_that_is_written_can_be_read(value: JsonValue) -> None:
    assert loads(dumps(value)) == value


def test_endless_and_too_deep_values_are_refused() -> None:
    endless: list[JsonValue] = []
    endless.append(endless)
    deep: list[JsonValue] = json.loads(nested(256))
    for value in (endless, deep):
        with pytest.raises(ValueError, match=naming(255)):
            dumps(value)
    assert len(dumps(deep[0])) == 510
