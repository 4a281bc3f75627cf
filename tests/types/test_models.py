"""What every model promises."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import trio_mcp.types as types
from trio_mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    CreateMessageRequestParams,
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitResult,
    Implementation,
    JsonValue,
    LoggingMessageNotificationParams,
    Model,
    ResourcesCapability,
    SamplingCapability,
    SamplingMessage,
    ServerCapabilities,
    StringSchema,
    TextContent,
    TitledSingleSelectEnumSchema,
    Tool,
    ToolResultContent,
    declares,
)

HELLO = TextContent(text="hello")


def test_the_text_of_a_resource_is_that_of_its_parts_that_are_text():
    parts = [
        types.TextResourceContents(uri="a://1", text="one "),
        types.BlobResourceContents(uri="a://2", blob="AA=="),
        types.TextResourceContents(uri="a://3", text="two"),
    ]
    assert types.ReadResourceResult(contents=parts).text == "one two"


def read(model: type[Model], value: JsonValue) -> Model:
    return model.model_validate(value, by_alias=True, by_name=False)


def test_names_are_camel_case_on_the_wire_and_unset_members_absent():
    tool = Tool(name="add", input_schema={"type": "object"}, meta={"a/b": 1})
    assert tool.wire() == {"_meta": {"a/b": 1}, "name": "add", "inputSchema": {"type": "object"}}


def test_encode_writes_what_wire_says_compactly():
    result = CallToolResult(content=[HELLO], structured_content={"a": [1.5, None]}, is_error=False)
    assert (
        result.encode()
        == b'{"content":[{"type":"text","text":"hello"}],"structuredContent":{"a":[1.5,null]},"isError":false}'
    )
    assert json.loads(result.encode()) == result.wire()


@pytest.mark.parametrize(
    "model",
    [
        CallToolResult(content=[], structured_content={"a": None}),
        CallToolRequestParams(name="a", arguments={"a": None, "b": [None]}),
        CallToolRequestParams(name="a", meta={"a": None}),
        LoggingMessageNotificationParams(level="info", data={"a": None}),
        CreateMessageRequestParams(messages=[], max_tokens=1, metadata={"a": None}),
    ],
    ids=lambda model: type(model).__name__,
)
def test_nulls_inside_free_form_json_survive(model: Model):
    assert "null" in model.encode().decode()
    assert read(type(model), json.loads(model.encode())) == model


def test_structured_content_that_is_null_is_not_the_same_as_none_at_all():
    assert CallToolResult(content=[], structured_content=None).wire() == {"content": [], "structuredContent": None}
    assert CallToolResult(content=[]).wire() == {"content": []}
    assert b'"structuredContent":null' in CallToolResult(content=[], structured_content=None).encode()
    assert read(CallToolResult, {"content": [], "structuredContent": None}).wire() == {
        "content": [],
        "structuredContent": None,
    }


def test_a_null_keeps_its_meaning_inside_another_model():
    block = ToolResultContent(tool_use_id="1", content=[], structured_content=None)
    assert SamplingMessage(role="user", content=[block]).wire()["content"] == [
        {"type": "tool_result", "toolUseId": "1", "content": [], "structuredContent": None}
    ]


def test_a_log_message_may_be_null():
    assert LoggingMessageNotificationParams(level="info", data=None).wire() == {"level": "info", "data": None}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(number: float):
    with pytest.raises(ValueError):
        CallToolResult(content=[], structured_content={"a": [number]}).encode()


def test_the_names_of_such_numbers_in_a_text_are_only_text():
    text = "NaN and Infinity"
    assert json.loads(TextContent(text=text).encode()) == {"type": "text", "text": text}


def test_a_lone_surrogate_is_refused():
    with pytest.raises(ValueError):
        CallToolResult(content=[], structured_content=["\ud800"]).encode()


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (CallToolResult, {"content": [], "isError": "true"}),
        (CallToolResult, {"content": [], "isError": 1}),
        (CallToolRequestParams, {"name": 1}),
        (CreateMessageRequestParams, {"messages": [], "maxTokens": "100"}),
        (CreateMessageRequestParams, {"messages": [], "maxTokens": True}),
        (CreateMessageRequestParams, {"messages": [], "maxTokens": 1.5}),
        (CallToolResult, {"content": [{"type": "hologram"}]}),
        (Implementation, {"name": "a"}),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_and_never_converted(model: type[Model], value: JsonValue):
    with pytest.raises(ValidationError):
        read(model, value)


def test_a_whole_number_is_an_integer_however_it_is_written():
    params = read(CreateMessageRequestParams, {"messages": [], "maxTokens": 100.0})
    assert params.wire()["maxTokens"] == 100
    assert b"100.0" not in params.encode()


def test_a_snake_case_name_from_the_wire_is_an_unknown_member():
    with pytest.raises(ValidationError):
        read(Tool, {"name": "a", "input_schema": {"type": "object"}})


def test_unknown_members_are_kept():
    wire = {"name": "a", "version": "1", "motto": ["b"]}
    assert read(Implementation, wire).wire() == wire


def test_models_are_frozen():
    with pytest.raises(ValidationError):
        HELLO.text = "other"  # type: ignore[misc]


@pytest.mark.parametrize("answer", ["a", 1, 1.5, True, ["a", "b"], None])
def test_an_elicited_answer_may_be_any_of_these(answer: JsonValue):
    wire: JsonValue = {"action": "accept", "content": {"a": answer}}
    assert read(ElicitResult, wire).wire() == wire


def test_property_schemas_are_told_apart_by_their_members():
    form = read(
        ElicitRequestFormParams,
        {
            "message": "?",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "text": {"type": "string", "minLength": 1},
                    "count": {"type": "integer", "maximum": 3},
                    "yes": {"type": "boolean"},
                    "one": {"type": "string", "enum": ["a"]},
                    "titled": {"type": "string", "oneOf": [{"const": "a", "title": "A"}]},
                    "legacy": {"type": "string", "enum": ["a"], "enumNames": ["A"]},
                    "some": {"type": "array", "items": {"type": "string", "enum": ["a"]}},
                    "titled_some": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}},
                },
            },
        },
    )
    assert isinstance(form, ElicitRequestFormParams)
    assert [type(schema).__name__ for schema in form.requested_schema.properties.values()] == [
        "StringSchema",
        "NumberSchema",
        "BooleanSchema",
        "UntitledSingleSelectEnumSchema",
        "TitledSingleSelectEnumSchema",
        "LegacyTitledEnumSchema",
        "UntitledMultiSelectEnumSchema",
        "TitledMultiSelectEnumSchema",
    ]


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "array"}, {}, "string", None])
def test_a_form_is_flat(schema: JsonValue):
    with pytest.raises(ValidationError):
        read(
            ElicitRequestFormParams,
            {"message": "?", "requestedSchema": {"type": "object", "properties": {"a": schema}}},
        )


def test_property_schemas_may_be_given_as_models():
    schema = types.RequestedSchema(properties={"a": StringSchema(), "b": TitledSingleSelectEnumSchema(one_of=[])})
    assert schema.wire()["properties"] == {"a": {"type": "string"}, "b": {"type": "string", "oneOf": []}}


@pytest.mark.parametrize(
    ("capabilities", "gate", "expected"),
    [
        (ClientCapabilities(), "elicitation", False),
        (ClientCapabilities(elicitation=ElicitationCapability()), "elicitation", True),
        (ClientCapabilities(elicitation=ElicitationCapability()), "elicitation.form", True),
        (ClientCapabilities(elicitation=ElicitationCapability()), "elicitation.url", False),
        (ClientCapabilities(elicitation=ElicitationCapability(url={})), "elicitation.form", False),
        (ClientCapabilities(elicitation=ElicitationCapability(url={})), "elicitation.url", True),
        (ClientCapabilities(sampling=SamplingCapability()), "sampling.tools", False),
        (ClientCapabilities(sampling=SamplingCapability(tools={})), "sampling.tools", True),
        (ServerCapabilities(resources=ResourcesCapability(subscribe=True)), "resources.subscribe", True),
        (ServerCapabilities(resources=ResourcesCapability(subscribe=False)), "resources.subscribe", False),
        (ServerCapabilities(resources=ResourcesCapability(list_changed=True)), "resources.listChanged", True),
        (ServerCapabilities(logging={}), "logging", True),
        (ServerCapabilities(logging={}), "roots", False),
        (ServerCapabilities(tasks={"list": {}}), "tasks.list", True),
    ],
)
def test_a_gate_opens_for_what_is_declared(
    capabilities: ClientCapabilities | ServerCapabilities, gate: str, expected: bool
):
    assert expected is declares(capabilities, gate)


def test_the_public_names_are_complete():
    names = {name for name in vars(types) if not name.startswith("_")}
    modules = {name for name in names if type(getattr(types, name)).__name__ == "module"}
    assert set(types.__all__) == names - modules


WITHOUT_THE_TOP = """
import sys, types
top = types.ModuleType("trio_mcp")  # the top package exports every floor, and so would load Trio
top.__path__ = [sys.argv[1]]
sys.modules["trio_mcp"] = top
import trio_mcp.types, trio_mcp.protocol.codec
sys.exit("trio" in sys.modules)
"""


def test_neither_types_nor_codecs_load_trio():
    package = Path(types.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", WITHOUT_THE_TOP, package], check=False).returncode == 0
