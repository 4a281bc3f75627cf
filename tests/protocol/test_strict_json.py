"""JSON: one meaning for every text, limits that are named, time linear in the input."""

from __future__ import annotations

import json
import math
import sys
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from naming import naming, unnamed

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.strict_json import DEFAULT_LIMITS, JsonLimits, dumps, loads
from trio_mcp.types.base import JsonValue

MIB = 1024 * 1024
LARGEST_DOUBLE = sys.float_info.max

scalars = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def refusal(data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        loads(data, limits)
    return caught.value


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
    assert loads(dumps(value)) == value


@given(values)
def test_what_the_standard_encoder_escapes_is_read_the_same(value: JsonValue) -> None:
    assert loads(json.dumps(value).encode()) == value


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


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        '{"a":}',
        '{"a":1,}',
        "[1,]",
        "01",
        "+1",
        ".5",
        "1.",
        "'a'",
        '"\t"',
        '"\\x41"',
        "tru",
        "1 2",
        "{a:1}",
    ],
)
def test_malformed_text_is_a_parse_error(text: str) -> None:
    assert refusal(text.encode()).code == -32700


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":1,"b":2,"a":3}',
        '{"params":{"name":"x","name":"y"}}',
        '[[{"deep":[{"k":{},"k":[]}]}]]',
        '{"a":1,"\\u0061":2}',
        '{"":1,"":2}',
    ],
)
def test_a_name_twice_in_one_object_is_refused_at_every_level(text: str) -> None:
    error = refusal(text.encode())
    assert error.code == -32700
    assert unnamed(str(error), "twice") == []


@given(values, st.text(max_size=8))
def test_a_repeated_name_is_refused_whatever_it_is_and_holds(value: JsonValue, name: str) -> None:
    member = dumps(name) + b":" + dumps(value)
    assert "occurs twice" in str(refusal(b'{"outer":[{%b,"x":1,%b}]}' % (member, member)))


def test_equal_names_in_different_objects_are_fine() -> None:
    assert loads(b'[{"a":1},{"a":{"a":2}}]') == [{"a": 1}, {"a": {"a": 2}}]


def test_a_refusal_quotes_a_long_or_odd_name_short_and_in_ascii() -> None:
    text = str(refusal(json.dumps({"é\n" * 1000: 1}).encode()[:-1] + b"," + json.dumps({"é\n" * 1000: 1}).encode()[1:]))
    assert text.isascii()
    assert "\n" not in text
    assert len(text) < 400


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 309 + ".0"])
@pytest.mark.parametrize("frame", ["%s", '{"a":[%s]}'])
def test_a_number_that_is_none_or_infinite_is_refused(number: str, frame: str) -> None:
    assert refusal((frame % number).encode()).code == -32700


def test_the_largest_double_and_large_integers_are_read_exactly() -> None:
    assert loads(repr(LARGEST_DOUBLE).encode()) == LARGEST_DOUBLE
    assert loads(b"18446744073709551617") == 2**64 + 1


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 320, "0." + "1" * 400, "1e" + "0" * 400])
def test_a_number_over_the_length_limit_is_refused_naming_it(number: str) -> None:
    error = refusal(f'{{"a":{number}}}'.encode())
    assert error.code == -32600
    assert unnamed(str(error), 320, "max_number_chars") == []


def test_a_number_of_just_the_length_limit_is_read() -> None:
    assert loads(b"9" * 320) == 10**320 - 1


@pytest.mark.parametrize("bad", range(0x80, 0x100))
def test_a_byte_that_is_not_utf_8_is_refused_wherever_it_stands(bad: int) -> None:
    text = b'{"a":["b",1.5,true]}'
    for position in range(len(text)):
        assert refusal(text[:position] + bytes([bad]) + text[position + 1 :]).code == -32700


@pytest.mark.parametrize("sequence", [b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80"])
def test_surrogates_overlong_forms_and_cut_sequences_in_utf_8_are_refused(sequence: bytes) -> None:
    error = refusal(b'"%b"' % sequence)
    assert error.code == -32700
    assert unnamed(str(error), "byte 1", "UTF-8") == []


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-8-sig", "UTF-8 with a byte order mark"),
        ("utf-16", "UTF-16"),
        ("utf-16-le", "UTF-16-LE"),
        ("utf-16-be", "UTF-16-BE"),
        ("utf-32", "UTF-32"),
        ("utf-32-le", "UTF-32-LE"),
        ("utf-32-be", "UTF-32-BE"),
    ],
)
def test_another_encoding_is_refused_by_its_name(encoding: str, name: str) -> None:
    error = refusal('{"method":"ping"}'.encode(encoding))
    assert error.code == -32700
    assert unnamed(str(error), name, "UTF-8") == []


@pytest.mark.parametrize(
    "text",
    [
        r'"\ud800"',
        r'"\uDC00"',
        r'"x\uDBFFx"',
        r'"\udc00\ud800"',
        r'"\ud800\ud800\udc00"',
        r'"\ud83d\ude00\ude00"',
        r'"\\\ud800"',
        r'{"\ud800":1}',
        r'{"a":[{"b":"\udfff"}]}',
    ],
)
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    error = refusal(text.encode())
    assert error.code == -32700
    assert unnamed(str(error), "surrogate") == []


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


def test_a_refusal_of_half_a_pair_says_where_it_is() -> None:
    assert "params.arguments.names[1] holds" in str(refusal(rb'{"params":{"arguments":{"names":["a","\ud800"]}}}'))


# Depth


def test_depth_up_to_the_limit_is_read() -> None:
    loads(nested(64))
    loads(b'{"a":' * 64 + b"1" + b"}" * 64)


@pytest.mark.parametrize("depth", [65, 10**2, 10**3, 10**4])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_depth_over_the_limit_is_refused_naming_it(depth: int, opening: bytes) -> None:
    error = refusal((opening * depth)[: 4 * MIB])
    assert error.code == -32600
    assert unnamed(str(error), 64, "max_depth") == []


def test_a_wide_text_is_not_deep() -> None:
    assert len(json.dumps(loads(b"[" + b",".join([b"[{}]"] * 1000) + b"]")).split(",")) == 1000


@pytest.mark.parametrize("string", ["[" * 500, '\\"' + "[" * 500, "\\\\" + "{" * 500, '\\\\\\"' + "[" * 500])
def test_brackets_inside_strings_do_not_count(string: str) -> None:
    assert [json.loads(f'"{string}"')] == loads(f'["{string}"]'.encode())


def test_brackets_after_a_string_that_ends_in_a_backslash_count() -> None:
    assert "max_depth" in str(refusal(b'["\\\\",' + b"[" * 100))


def test_a_depth_limit_may_be_set_up_to_what_can_be_written() -> None:
    loads(nested(255), JsonLimits(max_depth=255))
    assert "max_depth" in str(refusal(nested(256), JsonLimits(max_depth=255)))
    with pytest.raises(ValueError, match=naming("max_depth", 255)):
        JsonLimits(max_depth=256)


@pytest.mark.parametrize("length", [0, 641])
def test_a_number_limit_stays_where_python_converts_integers(length: int) -> None:
    with pytest.raises(ValueError, match=naming("max_number_chars", 640)):
        JsonLimits(max_number_chars=length)


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
    error = refusal(b"[]" + b" " * (4 * MIB - 1))
    assert error.code == -32600
    assert unnamed(str(error), 4 * MIB + 1, 4 * MIB, "max_bytes") == []


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
    assert unnamed(str(refusal(text)), "surrogate") == []


# Writing


def test_writing_is_compact_utf_8() -> None:
    assert '{"a":[1,2.5,null,true,"é\u2028"]}'.encode() == dumps({"a": [1, 2.5, None, True, "é\u2028"]})


@given(values)
def test_nothing_written_holds_a_line_break(value: JsonValue) -> None:
    assert not {*b"\r\n"} & {*dumps(value)}


def test_line_breaks_and_nul_in_strings_are_escaped() -> None:
    assert dumps("\r\n\0") == rb'"\r\n\u0000"'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_json_cannot_hold_is_refused_with_its_path(number: float) -> None:
    value: JsonValue = {"rows": [{"price": 1.0}, 2, 3, {"price": number}]}
    with pytest.raises(ValueError, match=naming("result.rows[3].price", number, "JSON")):
        dumps(value, "result")


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity is not NaN"])
def test_text_that_only_speaks_of_such_numbers_is_written(text: str) -> None:
    value: JsonValue = {text: [text, None]}
    assert value == loads(dumps(value))


def test_a_bad_number_beside_such_text_is_still_found() -> None:
    with pytest.raises(ValueError, match=naming("b", "nan")):
        dumps({"a": "NaN", "b": math.nan})


def test_half_a_surrogate_pair_is_refused_with_its_path() -> None:
    with pytest.raises(ValueError, match=naming("content[0].text", "surrogate")):
        dumps({"content": [{"text": "\ud800"}]})
    with pytest.raises(ValueError, match=naming(r'content["\udfff"]', "surrogate", "name")):
        dumps({"content": {"\udfff": 1}})


def test_a_flaw_in_the_value_itself_is_named_by_the_root() -> None:
    with pytest.raises(ValueError, match=naming("value", "nan")):
        dumps(math.nan)
    with pytest.raises(ValueError, match=naming("id", "surrogate")):
        dumps("\ud800", "id")


def test_odd_names_are_quoted_in_the_path() -> None:
    with pytest.raises(ValueError, match=naming('result["two words"][""]._meta[0]', "inf")):
        dumps({"two words": {"": {"_meta": [math.inf]}}}, "result")


def test_endless_and_too_deep_values_are_refused() -> None:
    endless: list[JsonValue] = []
    endless.append(endless)
    with pytest.raises(ValueError, match=naming(255)):
        dumps(endless)
    deep: list[JsonValue] = []
    for _ in range(255):
        deep = [deep]
    with pytest.raises(ValueError, match="nested more than 255 levels deep"):
        dumps(deep)
    assert len(dumps(deep[0])) == 510


def test_a_value_that_is_no_json_is_refused_by_its_type() -> None:
    value: dict[str, JsonValue] = {}
    value["when"] = object()  # type: ignore[assignment]
    with pytest.raises(ValueError, match=naming("when", "object", "JSON")):
        dumps(value)
