"""What is sent to older revisions instead."""

from __future__ import annotations

import json

import pytest
from naming import naming
from samples import AUDIO, FORM, ICONS, IMAGE, LINK, RESULTS, TEXT

from trio_mcp.errors import LocalProtocolError
from trio_mcp.protocol.codec import Codec, codec_for
from trio_mcp.protocol.codec.downlevel import narrowed
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY, SUPPORTED
from trio_mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ContentBlock,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitationCapability,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    Implementation,
    InitializeRequestParams,
    JsonObject,
    JsonValue,
    ListToolsResult,
    Model,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)

modern = codec_for(MODERN)
legacy = codec_for(NEWEST_LEGACY)
LEGACY = SUPPORTED[1:]
FULL_FORM = ElicitRequestFormParams(mode="form", message="?", requested_schema=FORM)


def result(codec: Codec, method: str, model: Model) -> JsonObject:
    return json.loads(codec.encode_result(method, model).raw)


def request(version: str, method: str, model: Model) -> JsonObject:
    return json.loads(codec_for(version).encode_request(method, model).raw)


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("model", RESULTS, ids=lambda model: type(model).__name__)
def test_the_fast_path_writes_what_the_slow_one_would(version: str, model: Model):
    kind = type(model)
    try:
        slow = narrowed(version, model, kind)
    except LocalProtocolError:
        return
    assert json.loads(codec_for(version).encode(model, kind, "result").raw) == slow


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("value", [None, 1, "a", [1]])
def test_legacy_structured_content_is_an_object_or_absent(version: str, value: JsonValue):
    model = CallToolResult(content=[TextContent(text="t")], structured_content=value)
    assert result(codec_for(version), "tools/call", model) == {"content": [{"type": "text", "text": "t"}]}


@pytest.mark.parametrize("version", LEGACY)
def test_a_legacy_output_schema_describes_an_object(version: str):
    tools = [
        Tool(name="a", input_schema={"type": "object"}, output_schema={"type": kind}) for kind in ("object", "array")
    ]
    listed = result(codec_for(version), "tools/list", ListToolsResult(tools=tools))["tools"]
    kept = version >= "2025-06-18"
    assert ["outputSchema" in tool for tool in listed] == [kept, False]


def test_a_boolean_property_schema_is_written_as_an_object_for_legacy_peers():
    tool = Tool(name="a", input_schema={"type": "object", "properties": {"x": True, "y": False}})
    listed = result(legacy, "tools/list", ListToolsResult(tools=[tool]))["tools"]
    assert listed[0]["inputSchema"]["properties"] == {"x": {}, "y": {"not": {}}}
    assert tool.input_schema["properties"] == {"x": True, "y": False}


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("2025-11-25", ["text", "image", "audio", "resource_link"]),
        ("2025-06-18", ["text", "image", "audio", "resource_link"]),
        ("2025-03-26", ["text", "image", "audio", "text"]),
        ("2024-11-05", ["text", "image", "text", "text"]),
    ],
)
def test_a_block_that_a_revision_does_not_know_becomes_a_text_that_says_what_it_was(version: str, kinds: list[str]):
    blocks = result(codec_for(version), "tools/call", CallToolResult(content=[TEXT, IMAGE, AUDIO, LINK]))["content"]
    assert [block["type"] for block in blocks] == kinds
    said = " ".join(block["text"] for block in blocks[2:] if block["type"] == "text")
    assert ("audio/wav" in said, "file:///a" in said) == (kinds[2] == "text", kinds[3] == "text")
    assert all("annotations" in block for block in blocks)


def test_a_form_for_2025_06_18_has_no_mode_and_only_what_its_schema_has():
    sent = request("2025-06-18", "elicitation/create", FULL_FORM)
    assert "mode" not in sent
    assert "$schema" not in sent["requestedSchema"]
    properties = sent["requestedSchema"]["properties"]
    assert [name for name, schema in properties.items() if "default" in schema] == ["yes"]
    assert properties["titled"] == {"type": "string", "enum": ["a"], "enumNames": ["A"]}
    assert sent["requestedSchema"]["required"] == ["text"]


URL = "https://example.org"
CHOICES: list[JsonObject] = [{"type": "string", "enum": ["a"]}, {"anyOf": [{"const": "a", "title": "A"}]}]
FORMS = [
    ElicitRequestFormParams(message="?", requested_schema={"properties": {"it": {"type": "array", "items": choice}}})
    for choice in CHOICES
]
SAMPLING = CreateMessageRequestParams(
    messages=[], max_tokens=1, tools=[Tool(name="a", input_schema={"type": "object"})]
)


@pytest.mark.parametrize(
    ("version", "method", "params", "named"),
    [
        *[("2025-06-18", "elicitation/create", form, "params.requestedSchema.properties.it") for form in FORMS],
        ("2025-11-25", "elicitation/create", ElicitRequestURLParams(message="?", url=URL), "elicitationId"),
        ("2025-06-18", "elicitation/create", ElicitRequestURLParams(message="?", url=URL), "ElicitRequestURLParams"),
        ("2025-06-18", "sampling/createMessage", SAMPLING, "params.tools"),
    ],
)
def test_what_a_revision_cannot_say_is_refused_by_name(version: str, method: str, params: Model, named: str):
    with pytest.raises(LocalProtocolError, match=naming(named)):
        request(version, method, params)


@pytest.mark.parametrize("params", [*FORMS, FULL_FORM, SAMPLING], ids=["several", "titled", "all", "sampling"])
def test_the_newest_legacy_revision_says_all_of_it(params: Model):
    method = "sampling/createMessage" if params is SAMPLING else "elicitation/create"
    assert request(NEWEST_LEGACY, method, params) == params.wire()


def test_the_id_of_a_url_question_ended_with_2025_11_25():
    bare = ElicitRequestURLParams(message="?", url=URL)
    named = bare.model_copy(update={"elicitation_id": "e"})
    assert request("2025-11-25", "elicitation/create", named)["elicitationId"] == "e"
    interim = json.loads(modern.encode_round("tools/call", {"k": ("elicitation/create", named)}, "s").raw)
    assert interim["inputRequests"]["k"]["params"] == bare.wire()


@pytest.mark.parametrize(
    ("declared", "written"),
    [
        (ElicitationCapability(), {}),
        (ElicitationCapability(form={}), {}),
        (ElicitationCapability(form={}, url={}), {}),
        (ElicitationCapability(url={}), None),
    ],
)
def test_2025_06_18_takes_any_elicitation_capability_for_forms(declared: ElicitationCapability, written: JsonValue):
    params = InitializeRequestParams(
        protocol_version="2025-06-18",
        capabilities=ClientCapabilities(elicitation=declared),
        client_info=Implementation(name="a", version="1", title="A", icons=ICONS),
    )
    sent = request("2025-06-18", "initialize", params)
    assert sent["capabilities"].get("elicitation") == written
    assert sent["clientInfo"] == {"name": "a", "version": "1", "title": "A"}


def test_a_message_of_several_blocks_becomes_several_messages_before_2025_11_25():
    call = ToolUseContent(id="1", name="add", input={"x": 1})
    answer = ToolResultContent(tool_use_id="1", content=[TextContent(text="2"), AUDIO, LINK])
    messages = [
        SamplingMessage(role="assistant", content=[TextContent(text="wait"), call]),
        SamplingMessage(role="user", content=answer),
    ]
    sent = request("2025-06-18", "sampling/createMessage", CreateMessageRequestParams(messages=messages, max_tokens=1))
    assert [(message["role"], message["content"]["type"]) for message in sent["messages"]] == [
        ("assistant", "text"),
        ("assistant", "text"),
        ("user", "text"),
    ]
    said = [message["content"]["text"] for message in sent["messages"]]
    assert said[0] == "wait"
    assert 'add, 1: {"x":1}' in said[1]
    assert all(part in said[2] for part in ("call 1", "2", "audio/wav", "file:///a"))


@pytest.mark.parametrize(
    ("content", "written"),
    [([TextContent(text="a"), TextContent(text="b")], {"type": "text", "text": "a\nb"}), ([IMAGE], IMAGE.wire())],
)
def test_an_answer_of_several_blocks_becomes_one_before_2025_11_25(content: list[ContentBlock], written: JsonObject):
    answer = CreateMessageResult(role="assistant", content=content, model="m")
    assert result(codec_for("2025-06-18"), "sampling/createMessage", answer)["content"] == written


USE = ToolUseContent(id="1", name="add", input={"x": 1})
several_blocks = pytest.mark.parametrize("version", [MODERN, NEWEST_LEGACY])


def answer_of(version: str, content: list[SamplingContentBlock]) -> JsonValue:
    answer = CreateMessageResult(role="assistant", content=content, model="m")
    if version == MODERN:
        return modern.encode_input_response("sampling/createMessage", answer)["content"]
    return result(codec_for(version), "sampling/createMessage", answer)["content"]


def message_of(version: str, content: list[SamplingContentBlock]) -> JsonValue:
    message = SamplingMessage(role="assistant", content=content)
    params = CreateMessageRequestParams(messages=[message], max_tokens=1)
    if version == MODERN:
        return json.loads(modern.encode_question("sampling/createMessage", params))["messages"][0]["content"]
    return request(version, "sampling/createMessage", params)["messages"][0]["content"]


@several_blocks
@pytest.mark.parametrize("block", [TextContent(text="a"), IMAGE, AUDIO, USE], ids=lambda block: block.type)
def test_an_answer_of_one_block_is_sent_as_that_block(version: str, block: SamplingContentBlock):
    assert answer_of(version, [block]) == block.wire()


@several_blocks
def test_an_answer_of_several_blocks_or_of_none_is_sent_as_an_array(version: str):
    blocks: list[SamplingContentBlock] = [TextContent(text="a"), USE]
    assert answer_of(version, blocks) == [block.wire() for block in blocks]
    assert answer_of(version, []) == []


@several_blocks
def test_a_message_of_one_block_is_sent_as_that_block_unless_it_is_of_a_tool(version: str):
    for block in (TextContent(text="a"), IMAGE, AUDIO):
        assert message_of(version, [block]) == block.wire()
    assert message_of(version, [USE]) == [USE.wire()]
    assert message_of(version, [TextContent(text="a"), USE]) == [{"type": "text", "text": "a"}, USE.wire()]


def test_modern_members_never_reach_a_legacy_peer():
    meta: JsonObject = {"io.modelcontextprotocol/serverInfo": {"name": "a", "version": "1"}, "mine": 1}
    model = ListToolsResult(tools=[], ttl_ms=5, cache_scope="public", result_type="complete", meta=meta)
    assert result(legacy, "tools/list", model) == {"tools": [], "_meta": {"mine": 1}}
    params = CallToolRequestParams(name="a", request_state="s", input_responses={}, meta=meta)
    assert request("2025-11-25", "tools/call", params) == {"name": "a", "_meta": {"mine": 1}}


def test_writing_leaves_the_model_as_it_was():
    before = [model.wire() for model in RESULTS]
    for version in LEGACY:
        for model in RESULTS:
            narrowed(version, model, type(model))
    assert before == [model.wire() for model in RESULTS]
