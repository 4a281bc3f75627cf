"""Text that cannot be read may have been an answer: the id is found where JSON-RPC libraries write it, and nowhere else."""

from __future__ import annotations

import pytest

from trio_mcp.protocol.jsonrpc import Malformed, parse
from trio_mcp.protocol.strict_json import JsonLimits

BIG = b"[%s]" % b",".join([b"1"] * 3000)


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"a":%b}}', 7),
        (b'{"id":"x","jsonrpc":"2.0","result":{"a":%b}}', "x"),
        (b' { "jsonrpc" : "2.0" , "id" : -3 , "error" : {"data":%b}}', -3),
        (b'{"result":{"a":%b},"jsonrpc":"2.0","id":7}', 7),
        (b'{"jsonrpc":"2.0","result":{"a":%b},"id":"\\"x"}\r\n', '"x'),
        (b'{"jsonrpc": "2.0", "result": {"a":%b}, "id": 7, "jsonrpc": "2.0"}', 7),
        # No member of the message itself.
        (b'{"jsonrpc":"2.0","result":{"a":%b,"id":7}}', None),
        (b'{"jsonrpc":"2.0","result":{"a":%b},"error":{"b":1,"id":7}}', None),
        (b'{"a":{"id":7,"result":%b}}', None),
        # No answer.
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":%b}}', None),
        (b'{"method":"ping","params":{"a":%b},"jsonrpc":"2.0","id":7}', None),
        (b'DEBUG "id":7,"result": %b', None),
        # No valid id.
        (b'{"jsonrpc":"2.0","id":99999999999999999,"result":{"a":%b}}', None),
        (b'{"jsonrpc":"2.0","id":null,"result":{"a":%b}}', None),
    ],
)
@pytest.mark.parametrize("flaw", [BIG, b"NaN", b"1e999"])
def test_the_request_that_unreadable_text_answers(text: bytes, answers: object, flaw: bytes) -> None:
    message = parse(text % flaw, JsonLimits(max_values=1000))
    assert isinstance(message, Malformed)
    assert message.answers == answers


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":%b}}',
        b'{"method":"x","params":{"a":%b},"jsonrpc":"2.0","id":7}',
    ],
    ids=["id first", "id last"],
)
def test_a_request_over_a_limit_is_rejected_under_its_id(text: bytes) -> None:
    message = parse(text % BIG, JsonLimits(max_values=1000))
    assert isinstance(message, Malformed)
    assert (message.answers, message.error.request_id) == (None, 7)


@pytest.mark.parametrize("id", [b"7", b"7.0"])
@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":%b,"method":"ping","params":',
        b'{"jsonrpc":"2.0","id":%b,"method":"ping","params":{"a":NaN}}',
        b'{"id":%b,"jsonrpc":"2.0","method":"ping","params":{"a":1,"a":2}}',
        b'{"jsonrpc":"2.0","method":"ping","id":%b,"params":{"a":1e999}}',
        b'{"method":"ping","params":{"a":1,"a":2},"jsonrpc":"2.0","id":%b}',
    ],
)
def test_a_request_that_is_not_json_is_rejected_under_its_id(text: bytes, id: bytes) -> None:
    message = parse(text % id)
    assert isinstance(message, Malformed)
    assert (message.answers, message.error.request_id) == (None, 7)


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","params":{"id":7},"method":"ping","a":NaN}',
        b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{},"id":8}',
        b'{"jsonrpc":"2.0","id":7',
    ],
)
def test_a_request_without_one_clear_id_is_rejected_without_an_id(text: bytes) -> None:
    message = parse(text)
    assert isinstance(message, Malformed)
    assert message.error.request_id is None
