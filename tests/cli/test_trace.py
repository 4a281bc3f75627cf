"""What the demo shows of a message."""

from __future__ import annotations

import pytest
from naming import unnamed
from peer import answers_of, arrived

from trio_mcp.cli.terminal.trace import summary


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"},7]', ["request 1: ping", "message"]),
        (b"[]", ["batch"]),
        (b"7", ["JSON object"]),
    ],
    ids=["batch", "empty", "number"],
)
def test_what_came_is_shown_as_what_it_is(data: bytes, shown: list[str]) -> None:
    line = summary(arrived(data).message)
    assert all(part in line for part in shown)


def test_the_answers_to_a_batch_are_shown_one_by_one() -> None:
    error = {"code": -32601, "message": "no such method"}
    line = summary(answers_of({"id": "a", "result": {}}, {"id": 2, "error": error}))
    assert unnamed(line, "a", "2", "-32601 no such method") == []
