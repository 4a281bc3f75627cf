"""How much memory a parsed message is counted as."""

from __future__ import annotations

import json

import pytest

from trio_mcp.protocol.json_limits import DEFAULT_LIMITS, VALUE_SIZE, held_size
from trio_mcp.protocol.strict_json import loads
from trio_mcp.session import received

TEXTS = {
    "a number": (b"7", 1, 1),
    "a list": (b"[1, 2, 3]", 4, 1),
    "members": (b'{"a": 1, "b": {"c": null}}', 4, 1),
    "characters beyond ASCII": ('"ä"'.encode(), 1, 4),
    "escaped characters": (b'"\\u00e4"', 1, 4),
}


@pytest.mark.parametrize(("text", "values", "width"), TEXTS.values(), ids=TEXTS)
def test_a_message_counts_its_bytes_and_so_much_for_each_value(text: bytes, values: int, width: int) -> None:
    assert held_size(text) == width * len(text) + VALUE_SIZE * values


def test_commas_and_brackets_in_a_long_text_are_no_values() -> None:
    text = json.dumps({"rows": 'a,b,[{"\\,' * 100_000}).encode()
    assert held_size(text) == len(text) + 2 * VALUE_SIZE


def test_empty_lists_count_once() -> None:
    text = b"[" + b"[]," * 50_000 + b"{}]"
    assert len(loads(text)) == 50_001  # type: ignore[arg-type]
    assert held_size(text) == len(text) + 50_002 * VALUE_SIZE


def test_a_received_message_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    size = held_size(text)
    monkeypatch.setattr("trio_mcp.protocol.strict_json.measure", None)
    assert received(text, DEFAULT_LIMITS).size == size
