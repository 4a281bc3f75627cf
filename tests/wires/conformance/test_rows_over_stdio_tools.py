"""The rows about tools over stdio: what they return, what they tell, and what they ask a client of the handshake era."""

from __future__ import annotations

import re
from typing import get_args

from driven import SAID, DrivenServer
from rows import HANDSHAKE, row

from trio_mcp.types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    LoggingLevel,
    TextContent,
    TextResourceContents,
)

NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
DIALECT = "https://json-schema.org/draft/2020-12/schema"


# lists


@row("tools-list")
async def test_a_tool_is_listed_with_its_name_description_and_schema(server: DrivenServer) -> None:
    client = await server.client()
    orders = [[tool.name for tool in await client.list_tools()] for _ in range(3)]
    assert orders[0] == orders[1] == orders[2]
    assert all(NAME.fullmatch(name) for name in orders[0])
    tools = server.wire.results("tools/list")[0]["tools"]
    assert [tool["name"] for tool in tools] == orders[0]
    assert all(tool["description"] and tool["inputSchema"]["type"] == "object" for tool in tools)


@row("json-schema-2020-12")
async def test_a_schema_is_listed_with_every_keyword_it_has(server: DrivenServer) -> None:
    client = await server.client()
    tools = {tool.name: tool for tool in await client.list_tools()}
    (sent,) = [
        tool["inputSchema"] for tool in server.wire.result("tools/list")["tools"] if "json_schema" in tool["name"]
    ]
    assert tools["json_schema_2020_12_tool"].input_schema == sent
    assert sent["$schema"] == DIALECT
    address = sent["$defs"]["address"]
    assert (address["$anchor"], address["type"]) == ("addressDef", "object")
    assert sent["properties"].keys() == {"name", "phone", "email", "address", "contactMethod"}
    assert sent["properties"]["address"] == {"$ref": "#/$defs/address"}
    assert sent["allOf"] == [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}]
    assert sent["if"] == {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]}
    assert (sent["then"], sent["else"]) == ({"required": ["phone"]}, {"required": ["email"]})
    assert sent["additionalProperties"] is False


# what they return


@row("tools-call-simple-text")
async def test_a_tool_returns_text(server: DrivenServer) -> None:
    client = await server.client()
    result = await client.call_tool("test_simple_text")
    assert not result.is_error
    assert result.content == [TextContent(text="This is a simple text response for testing.")]


@row("tools-call-image")
async def test_a_tool_returns_an_image(server: DrivenServer) -> None:
    client = await server.client()
    (image,) = (await client.call_tool("test_image_content")).content
    assert isinstance(image, ImageContent)
    assert image.mime_type == "image/png"
    assert image.data.startswith("iVBORw0KGgo")


@row("tools-call-audio")
async def test_a_tool_returns_a_sound(server: DrivenServer) -> None:
    client = await server.client()
    (sound,) = (await client.call_tool("test_audio_content")).content
    assert isinstance(sound, AudioContent)
    assert sound.mime_type == "audio/wav"
    assert sound.data.startswith("UklGR")


@row("tools-call-embedded-resource")
async def test_a_tool_returns_a_resource_with_its_contents(server: DrivenServer) -> None:
    client = await server.client()
    (embedded,) = (await client.call_tool("test_embedded_resource")).content
    assert isinstance(embedded, EmbeddedResource)
    contents = embedded.resource
    assert isinstance(contents, TextResourceContents)
    assert (contents.uri, contents.mime_type) == ("test://embedded-resource", "text/plain")
    assert contents.text == "This is an embedded resource content."


@row("tools-call-mixed-content")
async def test_a_tool_returns_contents_of_several_types(server: DrivenServer) -> None:
    client = await server.client()
    text, image, resource = (await client.call_tool("test_multiple_content_types")).content
    assert isinstance(text, TextContent)
    assert isinstance(image, ImageContent)
    assert isinstance(resource, EmbeddedResource)
    assert resource.resource.uri == "test://mixed-content-resource"


@row("tools-call-error")
async def test_a_tool_that_raises_gives_a_result_that_says_so(server: DrivenServer) -> None:
    client = await server.client()
    result = await client.call_tool("test_error_handling")
    assert result.is_error is True
    assert result.text == "This tool intentionally returns an error for testing"


# what they tell


@row("tools-call-with-logging", HANDSHAKE)
async def test_what_a_tool_logs_arrives(server: DrivenServer) -> None:
    client = await server.client()
    await client.set_log_level("debug")
    await client.call_tool("test_tool_with_logging")
    done = ("started", "processing data", "completed")
    assert [(log.level, log.data) for log in server.logs] == [("info", f"Tool execution {each}") for each in done]
    assert len(server.wire.heard("notifications/message")) == 3


@row("tools-call-with-logging", HANDSHAKE)
async def test_what_is_below_the_level_that_was_set_does_not_arrive(server: DrivenServer) -> None:
    client = await server.client()
    await client.set_log_level("error")
    await client.call_tool("test_logging_tool")
    levels = get_args(LoggingLevel)
    assert [log.level for log in server.logs] == list(levels[levels.index("error") :])


@row("tools-call-with-progress")
async def test_progress_is_reported_under_the_token_of_the_call(server: DrivenServer) -> None:
    client = await server.client()
    reports: list[tuple[float, float | None]] = []
    result = await client.call_tool(
        "test_tool_with_progress", on_progress=lambda report: reports.append((report.progress, report.total))
    )
    assert not result.is_error
    assert reports == [(0, 100), (50, 100), (100, 100)]
    (call,) = server.wire.sent("tools/call")
    token = call["params"]["_meta"]["progressToken"]
    heard = server.wire.heard("notifications/progress")
    assert [message["params"]["progressToken"] for message in heard] == [token] * 3


# what they ask


@row("tools-call-sampling", HANDSHAKE)
async def test_a_tool_asks_the_model(server: DrivenServer) -> None:
    client = await server.client()
    result = await client.call_tool("test_sampling", {"prompt": "Test prompt for sampling"})
    (question,) = server.wire.heard("sampling/createMessage")
    (message,) = question["params"]["messages"]
    assert message == {"role": "user", "content": {"type": "text", "text": "Test prompt for sampling"}}
    assert question["params"]["maxTokens"] == 100
    assert not result.is_error
    assert result.text == f"LLM response: {SAID}"


@row("tools-call-elicitation", HANDSHAKE)
async def test_a_tool_asks_the_user(server: DrivenServer) -> None:
    client = await server.client()
    server.filled_in.append({"username": "testuser", "email": "test@example.com"})
    result = await client.call_tool("test_elicitation", {"message": "Please provide your information"})
    (question,) = server.wire.heard("elicitation/create")
    assert question["params"]["message"] == "Please provide your information"
    assert question["params"]["requestedSchema"]["required"] == ["username", "email"]
    assert not result.is_error
    assert result.text == 'User response: action=accept, content={"username":"testuser","email":"test@example.com"}'


@row("elicitation-sep1034-defaults", HANDSHAKE)
async def test_a_form_has_a_default_of_each_type(server: DrivenServer) -> None:
    client = await server.client()
    server.filled_in.append({"name": "Jane Smith", "age": 25, "score": 88, "status": "inactive", "verified": False})
    result = await client.call_tool("test_elicitation_sep1034_defaults")
    (question,) = server.wire.heard("elicitation/create")
    fields = question["params"]["requestedSchema"]["properties"]
    assert {name: (field["type"], field["default"]) for name, field in fields.items()} == {
        "name": ("string", "John Doe"),
        "age": ("integer", 30),
        "score": ("number", 95.5),
        "status": ("string", "active"),
        "verified": ("boolean", True),
    }
    assert fields["verified"]["default"] is True
    assert fields["status"]["enum"] == ["active", "inactive", "pending"]
    assert '"name":"Jane Smith","age":25,"score":88' in result.text


@row("elicitation-sep1330-enums", HANDSHAKE)
async def test_a_form_has_a_choice_of_each_kind(server: DrivenServer) -> None:
    client = await server.client()
    one = {"untitledSingle": "active", "titledSingle": "low", "legacyEnum": "s"}
    server.filled_in.append({**one, "untitledMulti": ["read", "write"], "titledMulti": ["bug"]})
    result = await client.call_tool("test_elicitation_sep1330_enums")
    assert "action=accept" in result.text
    (question,) = server.wire.heard("elicitation/create")
    fields = question["params"]["requestedSchema"]["properties"]
    assert {name: fields[name]["type"] for name in one} == dict.fromkeys(one, "string")
    assert "enum" in fields["untitledSingle"]
    assert fields["untitledSingle"].keys().isdisjoint({"oneOf", "enumNames"})
    assert "enum" not in fields["titledSingle"]
    assert all(titled(choice) for choice in fields["titledSingle"]["oneOf"])
    assert len(fields["legacyEnum"]["enum"]) == len(fields["legacyEnum"]["enumNames"]) == 3
    several = {name: fields[name] for name in ("untitledMulti", "titledMulti")}
    assert {field["type"] for field in several.values()} == {"array"}
    untitled, with_titles = (field["items"] for field in several.values())
    assert (untitled["type"], untitled["enum"]) == ("string", ["read", "write", "execute"])
    assert "anyOf" not in untitled
    assert "enum" not in with_titles
    assert all(titled(choice) for choice in with_titles["anyOf"])


def titled(choice: dict[str, object]) -> bool:
    return isinstance(choice["const"], str) and isinstance(choice["title"], str)
