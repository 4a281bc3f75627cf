"""What every model promises."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from naming import naming
from pydantic import ValidationError

import trio_mcp.types as types
from trio_mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    CreateMessageRequestParams,
    ElicitationCapability,
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
    ToolUseContent,
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


@pytest.mark.parametrize(
    ("model", "wire", "field"),
    [
        (CallToolResult(content=[]), "isError", "is_error"),
        (CallToolResult(content=[]), "structuredContent", "structured_content"),
        (CallToolResult(content=[]), "_meta", "meta"),
        (Tool(name="a", input_schema={}), "inputSchema", "input_schema"),
    ],
)
def test_a_name_of_the_wire_is_answered_with_the_name_of_the_field(model: Model, wire: str, field: str) -> None:
    assert not hasattr(model, wire)
    with pytest.raises(AttributeError, match=naming(type(model).__name__, repr(wire), f".{field}")):
        getattr(model, wire)


def test_an_unknown_member_is_an_attribute_and_any_other_name_is_missing() -> None:
    model: Any = read(Implementation, UNKNOWN)
    assert model.motto == ["b"]
    with pytest.raises(AttributeError, match=r"'motte'$"):
        _ = model.motte


def read(model: type[Model], value: JsonValue) -> Model:
    return model.model_validate(value, by_alias=True, by_name=False)


NULL_BLOCK = ToolResultContent(tool_use_id="1", content=[], structured_content=None)
UNKNOWN = {"name": "a", "version": "1", "motto": ["b"]}
WIRE: list[tuple[Model, JsonValue]] = [
    (Tool(name="a", input_schema={}, meta={"a/b": 1}), {"_meta": {"a/b": 1}, "name": "a", "inputSchema": {}}),
    (CallToolResult(content=[]), {"content": []}),
    # A null in free-form JSON is a value, and a member that is not set is absent.
    (CallToolResult(content=[], structured_content=None), {"content": [], "structuredContent": None}),
    (CallToolResult(content=[], structured_content={"a": None}), {"content": [], "structuredContent": {"a": None}}),
    (CallToolRequestParams(name="a", arguments={"b": [None]}), {"name": "a", "arguments": {"b": [None]}}),
    (CallToolRequestParams(name="a", meta={"a": None}), {"name": "a", "_meta": {"a": None}}),
    (LoggingMessageNotificationParams(level="info", data=None), {"level": "info", "data": None}),
    (LoggingMessageNotificationParams(level="info", data={"a": None}), {"level": "info", "data": {"a": None}}),
    (
        CreateMessageRequestParams(messages=[], max_tokens=1, metadata={"a": None}),
        {"messages": [], "maxTokens": 1, "metadata": {"a": None}},
    ),
    (SamplingMessage(role="user", content=[NULL_BLOCK]), {"role": "user", "content": [NULL_BLOCK.wire()]}),
    (NULL_BLOCK, {"type": "tool_result", "toolUseId": "1", "content": [], "structuredContent": None}),
    (Implementation.model_validate(UNKNOWN), UNKNOWN),
    (TextContent(text="NaN and Infinity"), {"type": "text", "text": "NaN and Infinity"}),
    (
        types.RequestedSchema(properties={"a": StringSchema(), "b": TitledSingleSelectEnumSchema(one_of=[])}),
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "oneOf": []}}},
    ),
]


@pytest.mark.parametrize(("model", "wire"), WIRE, ids=lambda value: type(value).__name__)
def test_a_model_is_written_and_read_back(model: Model, wire: JsonValue):
    assert model.wire() == json.loads(model.encode()) == wire
    assert read(type(model), wire).wire() == wire


def test_encode_is_compact():
    result = CallToolResult(content=[HELLO], structured_content={"a": [1.5, None]}, is_error=False)
    content = b'"content":[{"type":"text","text":"hello"}]'
    assert result.encode() == b'{%b,"structuredContent":{"a":[1.5,null]},"isError":false}' % content


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "\ud800"])
def test_what_json_does_not_have_is_refused(value: JsonValue):
    with pytest.raises(ValueError):
        CallToolResult(content=[], structured_content={"a": [value]}).encode()


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (CallToolResult, {"content": [], "isError": "true"}),
        (CallToolResult, {"content": [], "isError": 1}),
        (CallToolRequestParams, {"name": 1}),
        (CreateMessageRequestParams, {"messages": [], "maxTokens": "100"}),
        (CreateMessageRequestParams, {"messages": [], "maxTokens": True}),
        (CreateMessageRequestParams, {"messages": [], "maxTokens": 1.5}),
        (CallToolResult, {"content": [{"type": 1}]}),
        (CallToolResult, {"content": [{"type": "text", "txt": "a"}]}),
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


def test_models_are_frozen():
    with pytest.raises(ValidationError):
        HELLO.text = "other"  # type: ignore[misc]


@pytest.mark.parametrize("answer", ["a", 1, 1.5, True, ["a", "b"], None])
def test_an_elicited_answer_may_be_any_of_these(answer: JsonValue):
    wire: JsonValue = {"action": "accept", "content": {"a": answer}}
    assert read(ElicitResult, wire).wire() == wire


FORM: list[tuple[str, JsonValue]] = [
    ("StringSchema", {"type": "string", "minLength": 1}),
    ("NumberSchema", {"type": "integer", "maximum": 3}),
    ("BooleanSchema", {"type": "boolean"}),
    ("UntitledSingleSelectEnumSchema", {"type": "string", "enum": ["a"]}),
    ("TitledSingleSelectEnumSchema", {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}),
    ("LegacyTitledEnumSchema", {"type": "string", "enum": ["a"], "enumNames": ["A"]}),
    ("UntitledMultiSelectEnumSchema", {"type": "array", "items": {"type": "string", "enum": ["a"]}}),
    ("TitledMultiSelectEnumSchema", {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}]}}),
]


@pytest.mark.parametrize(("name", "schema"), FORM)
def test_property_schemas_are_distinguished_by_their_members(name: str, schema: JsonValue):
    form = read(types.RequestedSchema, {"type": "object", "properties": {"a": schema}})
    assert isinstance(form, types.RequestedSchema)
    assert type(form.properties["a"]).__name__ == name


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "array"}, {}, "string", None])
def test_a_form_is_flat(schema: JsonValue):
    with pytest.raises(ValidationError):
        read(types.RequestedSchema, {"type": "object", "properties": {"a": schema}})


FORMS = ElicitationCapability()
URLS = ElicitationCapability(url={})


@pytest.mark.parametrize(
    ("capabilities", "opened", "closed"),
    [
        (ClientCapabilities(), "", "elicitation"),
        (ClientCapabilities(elicitation=FORMS), "elicitation elicitation.form", "elicitation.url"),
        (ClientCapabilities(elicitation=URLS), "elicitation elicitation.url", "elicitation.form"),
        (ClientCapabilities(sampling=SamplingCapability()), "sampling", "sampling.tools"),
        (ClientCapabilities(sampling=SamplingCapability(tools={})), "sampling.tools", "sampling.context"),
        (ServerCapabilities(resources=ResourcesCapability(subscribe=True)), "resources.subscribe", "tools"),
        (ServerCapabilities(resources=ResourcesCapability(subscribe=False)), "resources", "resources.subscribe"),
        (ServerCapabilities(resources=ResourcesCapability(list_changed=True)), "resources.listChanged", "tools"),
        (ServerCapabilities(logging={}, tasks={"list": {}}), "logging tasks tasks.list", "roots tasks.cancel"),
    ],
)
def test_a_gate_opens_for_what_is_declared(
    capabilities: ClientCapabilities | ServerCapabilities, opened: str, closed: str
):
    assert all(declares(capabilities, gate) for gate in opened.split())
    assert not any(declares(capabilities, gate) for gate in closed.split())


def test_the_public_names_are_complete():
    for name in types.__all__:
        getattr(types, name)  # loaded when it is first used
    names = {name for name in vars(types) if not name.startswith("_")}
    modules = {name for name in names if type(getattr(types, name)).__name__ == "module"}
    assert set(types.__all__) == names - modules - {"TYPE_CHECKING"}


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


def test_a_deep_copy_is_equal_and_shares_nothing_that_can_be_changed() -> None:
    use = ToolUseContent.model_validate(
        {"type": "tool_use", "id": "u", "name": "n", "input": {"a": [{"b": 1}]}, "x": [1]}
    )
    message = SamplingMessage(role="assistant", content=[HELLO, use], meta={"m": [2]})
    copy = message.deep_copy()
    assert copy == message
    assert copy.model_fields_set == message.model_fields_set
    assert isinstance(copy.content, list)
    copied = copy.content[1]
    assert isinstance(copied, ToolUseContent)
    copied.input["a"][0]["b"] = 3
    copied.__pydantic_extra__["x"].append(4)
    assert copy.meta is not None
    copy.meta["m"].append(5)
    copy.content.append(HELLO)
    assert message.wire() == SamplingMessage(role="assistant", content=[HELLO, use], meta={"m": [2]}).wire()
    assert use.wire() == {"type": "tool_use", "id": "u", "name": "n", "input": {"a": [{"b": 1}]}, "x": [1]}


@pytest.mark.parametrize("model", [types.PromptMessage, types.SamplingMessage])
def test_text_in_place_of_a_block_is_answered_with_what_to_write(model: Any) -> None:
    with pytest.raises(ValidationError, match=naming("content", "TextContent(text=...)")):
        model(role="user", content="hi")
    assert model(role="user", content=types.TextContent(text="hi")).content.text == "hi"
