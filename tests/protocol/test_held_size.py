"""How much memory a parsed message is counted as."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable

import pytest
from pydantic_core import to_json

from trio_mcp.protocol.json_limits import DEFAULT_LIMITS, NAME_SIZE, VALUE_SIZE, held_size, measure
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
    assert held_size(text) == len(text) + 2 * VALUE_SIZE + NAME_SIZE


def test_empty_lists_count_once() -> None:
    text = b"[" + b"[]," * 50_000 + b"{}]"
    assert len(loads(text)) == 50_001  # type: ignore[arg-type]
    assert held_size(text) == len(text) + 50_002 * VALUE_SIZE


def test_a_received_message_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    size = held_size(text)
    monkeypatch.setattr("trio_mcp.protocol.strict_json.measure", None)
    assert received(text, DEFAULT_LIMITS).size == size


LONG = 200_000
WIDE = {
    "ASCII": ("a" * LONG, 1),
    "ASCII with a quote": ("a" * LONG + '"', 1),
    "one character of Latin-1": ("a" * LONG + "ä", 3),
    "one character of two bytes": ("a" * LONG + "中", 3),
    "one emoji": ("a" * LONG + "😀", 5),
    "emojis": ("😀" * LONG, 5),
}


@pytest.mark.parametrize("escaped", [False, True], ids=["plain", "escaped"])
@pytest.mark.parametrize(("text", "width"), WIDE.values(), ids=WIDE)
def test_a_long_text_counts_by_its_widest_character(text: str, width: int, escaped: bool) -> None:
    data = json.dumps(text, ensure_ascii=escaped).encode()
    assert held_size(data) == width * len(data) + VALUE_SIZE


@pytest.mark.parametrize("escaped", [False, True], ids=["plain", "escaped"])
@pytest.mark.parametrize("text", [text for text, _ in WIDE.values()], ids=WIDE)
def test_text_takes_no_more_memory_than_it_counts(text: str, escaped: bool) -> None:
    assert_takes_no_more(json.dumps(text, ensure_ascii=escaped).encode())


MANY: dict[str, Callable[[], object]] = {
    "empty lists": lambda: [[[]] for _ in range(20_000)],
    "floats": lambda: [number + 0.5 for number in range(20_000)],
    "texts": lambda: [f"text {number}" for number in range(20_000)],
    "texts with an emoji": lambda: [f"text {number} 😀" for number in range(20_000)],
    "objects of one member": lambda: [{f"k{number}": number} for number in range(20_000)],
    "nested objects": lambda: [{f"k{number}": {"x": [1]}} for number in range(12_000)],
    "an object of many members": lambda: {f"k{number}": f"v{number}" for number in range(20_000)},
    "names beyond ASCII": lambda: [{f"k{number}ä": number} for number in range(20_000)],
}


@pytest.mark.parametrize("make", MANY.values(), ids=MANY)
def test_values_take_no_more_memory_than_they_count(make: Callable[[], object]) -> None:
    assert_takes_no_more(json.dumps(make()).encode())


def assert_takes_no_more(data: bytes) -> None:
    """The value takes no more than its size when pydantic has read its strings, and parsing it no more than the peak."""
    measured = measure(data)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        value = loads(data, DEFAULT_LIMITS, measured)
        _, peak = tracemalloc.get_traced_memory()
        to_json(value)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # What is measured with takes some hundred bytes as well.
    assert held - before <= measured.size + 4096
    # A reader of escapes takes a quarter more while it does not know how many there are.
    assert peak - before <= measured.peak + len(data) // 2
