"""Every shape that a sample may have on the wire since 2025-11-25 is read, and written again as it came."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trio_mcp.types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    JsonValue,
    Model,
    SamplingMessage,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

TEXT: JsonObject = {"type": "text", "text": "hello"}
IMAGE: JsonObject = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
AUDIO: JsonObject = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
LINK: JsonObject = {"type": "resource_link", "uri": "file:///a", "name": "a"}
RESOURCE: JsonObject = {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}}
USE: JsonObject = {"type": "tool_use", "id": "u1", "name": "look", "input": {"at": ["sky", None]}}
RESULT: JsonObject = {"type": "tool_result", "toolUseId": "u1", "content": [TEXT]}
ASKED: JsonObject = {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 100}
TOOL: JsonObject = {"name": "look", "inputSchema": {"type": "object"}}
ANSWER: JsonObject = {"role": "assistant", "content": TEXT, "model": "m"}


def read(model: type[Model], value: JsonValue) -> Model:
    return model.model_validate(value, by_alias=True, by_name=False)


SHAPES: list[tuple[type[Model], JsonObject]] = [
    (ToolUseContent, USE),
    (ToolUseContent, {**USE, "input": {}}),
    (ToolUseContent, {**USE, "_meta": {"cache": True}}),
    (ToolResultContent, RESULT),
    (ToolResultContent, {**RESULT, "content": []}),
    (ToolResultContent, {**RESULT, "content": [TEXT, IMAGE, AUDIO, LINK, RESOURCE]}),
    (ToolResultContent, {**RESULT, "structuredContent": {"n": 1}, "isError": False}),
    (ToolResultContent, {**RESULT, "isError": True, "_meta": {"cache": True}}),
    *[(ToolChoice, {"mode": mode}) for mode in ("auto", "required", "none")],
    (ToolChoice, {}),
    *[
        (SamplingMessage, {"role": role, "content": content})
        for role in ("user", "assistant")
        for content in (TEXT, IMAGE, AUDIO, USE, RESULT, [], [TEXT, IMAGE], [TEXT, USE, USE], [RESULT, RESULT])
    ],
    (CreateMessageRequestParams, ASKED),
    (CreateMessageRequestParams, {**ASKED, "tools": [TOOL]}),
    (CreateMessageRequestParams, {**ASKED, "tools": [TOOL], "toolChoice": {"mode": "required"}}),
    *[
        (CreateMessageRequestParams, {**ASKED, "includeContext": value})
        for value in ("none", "thisServer", "allServers")
    ],
    *[
        (CreateMessageResult, {**ANSWER, "content": content})
        for content in (TEXT, IMAGE, AUDIO, USE, [], [TEXT], [USE], [TEXT, USE, USE])
    ],
    *[
        (CreateMessageResult, {**ANSWER, "stopReason": reason})
        for reason in ("endTurn", "stopSequence", "maxTokens", "toolUse", "refusal", "")
    ],
    *[
        (ClientCapabilities, {"sampling": sampling})
        for sampling in ({}, {"tools": {}}, {"context": {}}, {"tools": {}, "context": {}})
    ],
]


@pytest.mark.parametrize(("model", "wire"), SHAPES, ids=lambda value: value.__name__ if isinstance(value, type) else "")
def test_it_is_written_as_it_came(model: type[Model], wire: JsonObject) -> None:
    assert read(model, wire).wire() == wire


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        *[
            (ToolUseContent, {name: USE[name] for name in USE if name != missing})
            for missing in ("id", "name", "input")
        ],
        (ToolUseContent, {**USE, "input": "sky"}),
        (ToolResultContent, {"type": "tool_result", "content": [TEXT]}),
        (ToolResultContent, {**RESULT, "content": [USE]}),
        (ToolResultContent, {**RESULT, "content": [RESULT]}),
        (ToolChoice, {"mode": "any"}),
        (SamplingMessage, {"role": "system", "content": TEXT}),
        (SamplingMessage, {"role": "user", "content": LINK}),
        (CreateMessageRequestParams, {"messages": ASKED["messages"]}),
        (CreateMessageRequestParams, {**ASKED, "includeContext": "everything"}),
        (CreateMessageResult, {**ANSWER, "stopReason": 1}),
        (CreateMessageResult, {"role": "assistant", "content": TEXT}),
    ],
)
def test_what_the_specification_does_not_have_is_refused(model: type[Model], wire: JsonObject) -> None:
    with pytest.raises(ValidationError):
        read(model, wire)
