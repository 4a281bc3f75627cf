"""What a server receives holds a limited number of models: each takes far longer to validate than its text to parse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from naming import unnamed
from samples import TASK

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.codec.models import validated
from trio_mcp.types import (
    CreateMessageResult,
    ElicitResult,
    Implementation,
    JsonValue,
    ListRootsResult,
    ListTasksResult,
    Model,
)
from trio_mcp.types.base import MAX_RECEIVED

Sample = Callable[[list[JsonValue]], JsonValue]


def sampled(content: JsonValue) -> JsonValue:
    return {"role": "assistant", "model": "m", "content": content}


def tool_result(content: list[JsonValue]) -> JsonValue:
    return {"type": "tool_result", "toolUseId": "1", "content": content}


TEXT: JsonValue = {"type": "text", "text": "a"}

RECEIVED: dict[str, tuple[type[Model], JsonValue, str, Sample]] = {
    "icons": (
        Implementation,
        {"src": "https://example.com/i.png"},
        "icons",
        lambda items: {"name": "x", "version": "1", "icons": items},
    ),
    "tasks": (ListTasksResult, TASK.wire(), "tasks", lambda items: {"tasks": items}),
    "roots": (ListRootsResult, {"uri": "file:///a"}, "roots", lambda items: {"roots": items}),
    "form": (
        ElicitResult,
        "a",
        "content",
        lambda items: {"action": "accept", "content": {str(number): item for number, item in enumerate(items)}},
    ),
    "sample": (CreateMessageResult, TEXT, "content", sampled),
    "results of tools": (
        CreateMessageResult,
        TEXT,
        "content",
        lambda items: sampled([tool_result(items[:2000]), tool_result(items[2002:])]),
    ),
    "one result of a tool": (CreateMessageResult, TEXT, "content", lambda items: sampled(tool_result(items[1:]))),
}


@pytest.mark.parametrize(("model", "item", "member", "sample"), RECEIVED.values(), ids=RECEIVED)
def test_as_many_as_the_limit_are_read_and_more_are_refused_unread(
    model: type[Model], item: JsonValue, member: str, sample: Sample
) -> None:
    validated(model, sample([item] * MAX_RECEIVED), "params")
    # The first is wrong too: the error would name it if any had been validated.
    wrong: list[JsonValue] = [{"type": 3}]
    with pytest.raises(RemoteProtocolError) as raised:
        validated(model, sample(wrong + [item] * (MAX_RECEIVED + 2)), "params")
    assert raised.value.code == -32602
    assert unnamed(str(raised.value), f"params.{member}", str(MAX_RECEIVED)) == []
