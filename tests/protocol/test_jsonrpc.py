"""JSON-RPC messages: which bytes are one, which are not and who gets the error, and what is sent."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, strategies as st
from json_strategies import json_values
from log_limits import new_records
from naming import naming, unnamed

from trio_mcp.errors import InvalidRequestState, ProtocolError
from trio_mcp.protocol import shown_text
from trio_mcp.protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    Encoded,
    ErrorDetail,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    decoded,
    dump,
    error_response,
    is_request_id,
    parse,
)
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.types import JsonObject, JsonValue

SAFE = 2**53 - 1

ids = st.integers(-SAFE, SAFE) | st.text(max_size=64)
values = json_values(st.integers(-SAFE, SAFE))
objects = st.dictionaries(st.text(max_size=8), values, max_size=4)
methods = st.text(min_size=1, max_size=256)
more = st.none() | st.dictionaries(st.text(max_size=8).map(lambda name: f"x-{name}"), values, min_size=1, max_size=2)
errors = st.builds(ErrorDetail, st.integers(-SAFE, SAFE), st.text(), values, more)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Request, ids, methods, objects),
    st.builds(Notification, methods, objects),
    st.builds(Response, ids, objects),
    st.builds(ErrorResponse, st.none() | ids, errors),
)

CORPUS = [
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1.5}}}',
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    b'{"jsonrpc":"2.0","id":"r-1","result":{"content":[{"type":"text","text":"\xc3\xa9"}]}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no","data":[1]}}',
]

# Tables of JSON texts without blanks, one after the other.

BAD_IDS = f"null 1.5 1e-3 1e16 true false {{}} [] [1] {SAFE + 1} {-SAFE - 1} {'9' * 300}"
BAD_REQUESTS = {
    '"method":"ping",%s': '"no":"version" "jsonrpc":"1.0" "jsonrpc":2.0 "jsonrpc":null "JSONRPC":"2.0"',
    '"jsonrpc":"2.0","method":%s': f'"" null 1 {{}} ["ping"] "{"m" * 257}"',
    '"jsonrpc":"2.0",%s:"ping"': '"Method" "\uff4dethod" "m\u0435thod" "metho\u1e0f" "method\\u0020" "method\\u0000"',
    '"jsonrpc":"2.0","method":"ping","params":%s': '[1] "a" 1 false',
    '"jsonrpc":"2.0","method":"ping",%s': '"result":{} "error":{"code":1,"message":""}',
}
BAD_ANSWERS = f"""
"result":{{}},"error":{{"code":1,"message":"x"}} "result":null,"error":null "result":[],"error":null "result":[1] "result":"ok"
"error":null "error":"x" "error":{{}} "error":{{"code":1}} "error":{{"message":"x"}}
"error":{{"code":"1","message":"x"}} "error":{{"code":1.5,"message":"x"}} "error":{{"code":true,"message":"x"}}
"error":{{"code":1,"message":null}} "error":{{"code":{SAFE + 1},"message":"x"}}
"""


def refused(text: str | bytes) -> Malformed:
    outcome = parse(text if isinstance(text, bytes) else text.encode())
    assert isinstance(outcome, Malformed), outcome
    return outcome


def with_id(id: str) -> str:
    return f'{{"jsonrpc":"2.0","id":{id},"method":"ping"}}'


# Reading


@given(messages)
def test_what_is_dumped_is_parsed_back(message: Message) -> None:
    assert message == parse(dump(message))


@given(messages)
def test_what_is_dumped_is_one_line_of_json_rpc(message: Message) -> None:
    line = dump(message)
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line)["jsonrpc"] == "2.0"


@given(st.binary(max_size=100))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    assert isinstance(parse(data), Request | Notification | Response | ErrorResponse | Malformed)


members = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "code", "Method", "x"])


@given(st.dictionaries(members, st.just("2.0") | values | st.dictionaries(members, values), max_size=6))
def test_any_object_is_a_message_or_malformed(value: JsonObject) -> None:
    outcome = parse(json.dumps({"jsonrpc": "2.0"} | value).encode())
    if isinstance(outcome, Malformed):
        assert outcome.error.code == INVALID_REQUEST
        assert outcome.error.request_id is None or outcome.error.request_id == value["id"]


@pytest.mark.parametrize("text", CORPUS)
def test_a_message_with_any_byte_replaced_is_a_message_or_malformed(text: bytes) -> None:
    for position in range(len(text)):
        for byte in range(256):
            outcome = parse(text[:position] + bytes([byte]) + text[position + 1 :])
            assert not isinstance(outcome, Malformed) or outcome.error.code in (PARSE_ERROR, INVALID_REQUEST)


@pytest.mark.parametrize("text", CORPUS)
def test_a_message_cut_short_anywhere_is_a_parse_error_under_the_id_of_a_request_or_none(text: bytes) -> None:
    whole = json.loads(text)
    for end in range(len(text)):
        outcome = refused(text[:end])
        assert outcome.error.code == PARSE_ERROR
        assert outcome.error.request_id in (None, whole["id"] if "method" in whole and "id" in whole else None)


@pytest.mark.parametrize("text", ["1", "1.5", '"ping"', "null", "true", "{}", '{"id":1}', '{"jsonrpc":"2.0"}'])
def test_json_that_is_no_message_is_an_invalid_request(text: str) -> None:
    assert refused(text).error.code == INVALID_REQUEST


@pytest.mark.parametrize("members", [frame % text for frame, texts in BAD_REQUESTS.items() for text in texts.split()])
def test_a_malformed_request_is_refused_under_its_id(members: str) -> None:
    error = refused(f'{{"id":3,{members}}}').error
    assert (error.code, error.request_id) == (INVALID_REQUEST, 3)
    if '"params"' in members:
        assert unnamed(str(error), '"params"', "object") == []


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ('"id":1,"method":"ping","Params":{"a":1}', Request(1, "ping")),
        ('"id":1,"method":"ping","param\u017f":{"a":1}', Request(1, "ping")),
        ('"id":1,"method":"ping","params ":{"a":1}', Request(1, "ping")),
        ('"id":"a","method":"ping","extra":[1],"Result":{}', Request("a", "ping")),
        ('"Id":1,"method":"ping"', Notification("ping")),
        ('"\u0131d":1,"method":"ping"', Notification("ping")),
        (r'"\u006dethod":"ping"', Notification("ping")),
        ('"error":{"code":-32700,"message":"x"}', ErrorResponse(None, ErrorDetail(PARSE_ERROR, "x"))),
        ('"id":null,"error":{"code":-32700,"message":"x"}', ErrorResponse(None, ErrorDetail(PARSE_ERROR, "x"))),
    ],
)
def test_a_member_is_known_by_its_exact_name_and_others_are_no_part_of_it(members: str, message: Message) -> None:
    parsed = parse(f'{{"jsonrpc":"2.0",{members}}}'.encode())
    assert message == parsed


@pytest.mark.parametrize(
    "id", ["0", "-1", str(SAFE), str(-SAFE), '""', '"1"', '"' + "x" * 256 + '"', '"' + "é" * 128 + '"']
)
def test_a_valid_id_is_kept_as_it_is(id: str) -> None:
    message = parse(with_id(id).encode())
    assert isinstance(message, Request)
    assert (json.loads(id), type(json.loads(id))) == (message.id, type(message.id))


@pytest.mark.parametrize("id", [*BAD_IDS.split(), *(f'"{text}"' for text in ("x" * 257, "é" * 129, "x" * 1024 * 1024))])
def test_an_invalid_id_is_refused_and_not_echoed(id: str) -> None:
    error = refused(with_id(id)).error
    assert (error.code, error.request_id) == (INVALID_REQUEST, None)
    assert len(str(error)) < 200


@pytest.mark.parametrize("value", [True, False, None, 1.0, [], {}, SAFE + 1, "x" * 257, "\ud800" * 86, b"1"])
def test_invalid_ids(value: object) -> None:
    assert not is_request_id(value)


@pytest.mark.parametrize("members", BAD_ANSWERS.split())
def test_a_malformed_answer_names_the_request_it_fails_and_is_not_answered(members: str) -> None:
    outcome = refused(f'{{"jsonrpc":"2.0","id":5,{members}}}')
    assert (outcome.error.code, outcome.error.request_id) == (INVALID_REQUEST, None)
    assert outcome.answers == 5


NO_IDS = ['"result":{}', *[f'"id":{id},"result":{{}}' for id in ("null", "1.5", "true")]]


@pytest.mark.parametrize("members", [*NO_IDS, '"id":1.5,"error":{"code":1,"message":"x"}'])
def test_an_answer_needs_a_valid_id(members: str) -> None:
    outcome = refused(f'{{"jsonrpc":"2.0",{members}}}')
    assert (outcome.error.code, outcome.error.request_id, outcome.answers) == (INVALID_REQUEST, None, None)


def test_a_message_over_a_limit_is_an_invalid_request_naming_it() -> None:
    outcome = parse(CORPUS[0], JsonLimits(max_bytes=20))
    assert isinstance(outcome, Malformed)
    assert outcome.error.code == INVALID_REQUEST
    assert unnamed(str(outcome.error), 20, "max_bytes") == []


@pytest.mark.parametrize("text", [b'{"jsonrpc":', b"\xff", b"[", b'{"jsonrpc":"1.0"}', b'{"\\ud800":1}'])
def test_a_malformed_message_does_not_keep_its_bytes_alive(text: bytes) -> None:
    error = refused(text).error
    assert (error.__cause__, error.__context__, error.__traceback__) == (None, None, None)
    assert getattr(error, "value", None) is None


# What other languages write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"id":1.0,"method":"ping"', Request(1, "ping")),
        ('"id":1e3,"method":"ping"', Request(1000, "ping")),
        ('"id":-0.0,"method":"ping"', Request(0, "ping")),
        ('"id":1,"method":"ping","params":null', Request(1, "ping")),
        ('"id":1,"method":"ping","params":[]', Request(1, "ping")),
        ('"id":1,"method":"ping","params":null,"result":null,"error":null', Request(1, "ping")),
        ('"method":"notifications/x","params":null', Notification("notifications/x")),
        ('"id":null,"method":"notifications/x"', Notification("notifications/x")),
        ('"id":5.0,"result":{}', Response(5, {})),
        ('"id":5,"result":{},"error":null', Response(5, {})),
        ('"id":5,"result":null', Response(5, {})),
        ('"id":5,"result":[]', Response(5, {})),
        ('"id":5.0,"result":null,"error":{"code":-1.0,"message":"x"}', ErrorResponse(5, ErrorDetail(-1, "x"))),
    ],
)
def test_what_has_one_meaning_only_is_read_as_it_is_meant(text: str, expected: Message) -> None:
    message = parse(f'{{"jsonrpc":"2.0",{text}}}'.encode())
    assert message == expected
    assert not isinstance(message, Request) or type(message.id) is int


def test_a_byte_order_mark_before_a_message_is_skipped_and_one_inside_is_kept() -> None:
    raw = b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{"text":"\xef\xbb\xbf"}}'
    assert parse(raw) == Response(1, {"text": "\ufeff"})
    assert refused(b"\xef\xbb\xbf" + raw).error.code == PARSE_ERROR


HALF = r"\ud83d"


@pytest.fixture(autouse=True)
def no_warning_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of warning is shown a few times a minute."""
    monkeypatch.setattr(shown_text, "records", new_records())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f'"id":1,"result":{{"content":[{{"type":"text","text":"a{HALF}"}}]}}',
            {"content": [{"type": "text", "text": "a\ufffd"}]},
        ),
        (
            f'"id":1,"result":{{"tools":[{{"name":"a{HALF}","x":{{"uri":"{HALF}"}}}},{{"name":"b"}}],"uri":"b"}}',
            {"tools": [{"name": None, "x": {"uri": None}}, {"name": "b"}], "uri": "b"},
        ),
        (f'"id":1,"result":{{"structuredContent":{{"name":"{HALF}"}}}}', {"structuredContent": {"name": "\ufffd"}}),
        (f'"id":1,"result":{{"n":[{"1," * 1200}1],"t":"{HALF}"}}', {"n": [1] * 1201, "t": "\ufffd"}),
    ],
)
def test_half_a_character_in_a_text_that_is_shown_is_replaced_with_a_warning(
    text: str, expected: JsonObject, caplog: pytest.LogCaptureFixture
) -> None:
    assert parse(f'{{"jsonrpc":"2.0",{text}}}'.encode()) == Response(1, expected)
    assert "surrogate" in caplog.text


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (f'"id":1,"method":"{HALF}"', 1),
        (f'"id":1,"method":"tools/call","params":{{"name":"t","arguments":{{"a":"{HALF}"}}}}', 1),
        (f'"id":1,"method":"ping","params":{{"{HALF}":1}}', 1),
        (f'"id":1,"method":"m","params":{{"content":[{{"type":"tool_use","input":{{"a":["{HALF}"]}}}}]}}', 1),
        (f'"id":1,"method":"ping","params":{{"a":"{HALF}","b":[{"1," * 1200}1e999]}}', 1),
    ],
)
def test_half_a_character_in_a_name_or_an_argument_is_refused(text: str, id: int) -> None:
    error = refused(f'{{"jsonrpc":"2.0",{text}}}').error
    assert (error.code, error.request_id) == (PARSE_ERROR, id)


@pytest.mark.parametrize("members", ['"method":"ping"', '"result":{}'])
def test_half_a_character_in_an_id_is_refused_without_an_id(members: str) -> None:
    outcome = refused(f'{{"jsonrpc":"2.0","id":"{HALF}",{members}}}')
    assert (outcome.error.request_id, outcome.answers) == (None, None)


# Writing


@pytest.mark.parametrize(
    ("message", "members"),
    [
        (Request(1, "ping"), '"id":1,"method":"ping"'),
        (Request('a"b', "m", {"x": 1}), '"id":"a\\"b","method":"m","params":{"x":1}'),
        (Notification("m", {"x": []}), '"method":"m","params":{"x":[]}'),
        (Response(1, {}), '"id":1,"result":{}'),
        (ErrorResponse(None, ErrorDetail(PARSE_ERROR, "x")), '"error":{"code":-32700,"message":"x"}'),
        (ErrorResponse(1, ErrorDetail(1, "x", 0)), '"id":1,"error":{"code":1,"message":"x","data":0}'),
        (Response(1, Encoded(b'{"b" : 1.0,"a":1e1}')), '"id":1,"result":{"b" : 1.0,"a":1e1}'),
        (Request(1, "m", Encoded(b'{"b" : 1.0}')), '"id":1,"method":"m","params":{"b" : 1.0}'),
    ],
)
def test_a_message_on_the_wire(message: Message, members: str) -> None:
    """What is encoded already is spliced in unchanged."""
    assert dump(message) == f'{{"jsonrpc":"2.0",{members}}}'.encode()


@pytest.mark.parametrize("more", ["", ',"data":null', ',"x":[1]', ',"data":0,"x":null'])
def test_members_of_an_error_that_only_a_proxy_passes_on_are_written_again(more: str) -> None:
    text = f'{{"jsonrpc":"2.0","id":1,"error":{{"code":1,"message":"x"{more}}}}}'
    message = parse(text.encode())
    assert not isinstance(message, Malformed)
    assert json.loads(dump(message)) == json.loads(text)


@given(objects)
def test_encoded_members_with_line_breaks_between_tokens_stay_one_line_with_the_same_meaning(value: JsonObject) -> None:
    pretty = json.dumps(value, indent=1).replace("\n", "\r\n").encode()
    line = dump(Response(1, Encoded(pretty)))
    assert b"\n" not in line
    assert b"\r" not in line
    assert Response(1, value) == parse(line)


def test_a_reader_gets_the_members_of_encoded_and_plain_objects_alike() -> None:
    assert {"a": 1} == decoded(Encoded(b'{"a":1}')) == decoded({"a": 1})
    with pytest.raises(TypeError, match=naming("JSON object", "list")):
        decoded(Encoded(b"[]"))


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (Request(1, "m", {"a": math.nan}), r"params\.a"),
        (Response(1, {"rows": [{"price": math.inf}]}), r"result\.rows\[0\]\.price"),
        (ErrorResponse(1, ErrorDetail(1, "x", {"a": math.nan})), r"error\.data\.a"),
        (Request(1, "m", {"a": 10**320}), r"params\.a"),
        (Request("\ud800", "m"), "id"),
        (Notification("\ud800"), "method"),
    ],
)
def test_a_message_that_cannot_be_json_is_refused_with_the_path(message: Message, path: str) -> None:
    with pytest.raises(ValueError, match=f"^{path} "):
        dump(message)


def test_half_a_character_in_the_text_of_an_error_is_replaced_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    error = ErrorResponse(1, ErrorDetail(1, "\ud800", {"a": ["\ud800"]}))
    assert parse(dump(error)) == ErrorResponse(1, ErrorDetail(1, "\ufffd", {"a": ["\ufffd"]}))
    assert "surrogate" in caplog.text


def test_a_broken_rule_becomes_an_error_response() -> None:
    data: JsonValue = {"supported": []}
    broken = ProtocolError("no", code=-32022, data=data, request_id="a")
    assert ErrorResponse("a", ErrorDetail(-32022, "no", data)) == error_response(broken)


def test_the_reason_for_an_invalid_state_is_not_in_its_response() -> None:
    response = error_response(InvalidRequestState("expired"))
    assert ErrorResponse(None, ErrorDetail(INVALID_PARAMS, InvalidRequestState.TEXT)) == response
