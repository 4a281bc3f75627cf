"""Tools, calls and results for OpenAI's Responses API, there and back; checked against the types of its client library."""

from __future__ import annotations

from typing import Any, cast

import pytest
from naming import naming
from openai.types.responses import FunctionToolParam, Response, ResponseInputItemParam
from pydantic import TypeAdapter

from trio_mcp import Client, Server, list_model_tools
from trio_mcp.model_formats import (
    calls_from_openai_responses,
    results_to_openai_responses,
    tools_from_openai_responses,
    tools_to_openai_responses,
)
from trio_mcp.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolResultContent,
    ToolUseContent,
)

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}


def response(*output: dict[str, Any]) -> Response:
    given = {"id": "r", "created_at": 0, "model": "x", "object": "response", "output": [*output]}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return Response.model_validate({**given, **more})


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}


def test_tools_are_written_as_the_api_takes_them_and_read_back() -> None:
    tools = [Tool(name="forecast", description="Weather.", input_schema=SCHEMA), Tool(name="now", input_schema=SCHEMA)]
    written = tools_to_openai_responses(tools)
    assert written == [
        {"type": "function", "name": "forecast", "description": "Weather.", "parameters": SCHEMA, "strict": False},
        {"type": "function", "name": "now", "parameters": SCHEMA, "strict": False},
    ]
    TypeAdapter(list[FunctionToolParam]).validate_python(written)
    assert tools_from_openai_responses(cast("Any", written)) == tools


@pytest.mark.parametrize(
    ("tool", "names"),
    [
        ({"type": "web_search"}, ["tools[0]", "web_search"]),
        ({"type": "function", "name": 7}, ["tools[0]", "name"]),
        ({"type": "function", "name": "a", "other": 1}, ["tools[0]", "other"]),
    ],
)
def test_a_tool_without_a_counterpart_is_an_error_that_names_its_place(tool: Any, names: list[str]) -> None:
    with pytest.raises(ValueError, match=naming(*names)):
        tools_from_openai_responses([tool])


def test_the_calls_of_a_response_are_read() -> None:
    reasoning = {"type": "reasoning", "id": "rs", "summary": []}
    answer = response(reasoning, call("1", "forecast", '{"city": "Lisbon"}'), call("2", "now", ""))
    expected = [
        ToolUseContent(id="1", name="forecast", input={"city": "Lisbon"}),
        ToolUseContent(id="2", name="now", input={}),
    ]
    assert calls_from_openai_responses(answer) == calls_from_openai_responses(answer.to_dict()) == expected


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ({"output": [call("1", "a", "no")]}, ["output[0]"]),
        ({"output": [call("1", "a", "[1]")]}, ["output[0]"]),
        ({"output": [{"type": "function_call", "name": "a", "arguments": "{}"}]}, ["output[0]", "call_id"]),
        ({"choices": []}, ["response", "output"]),
        (7, ["response"]),
    ],
)
def test_a_call_that_cannot_be_read_is_an_error_that_names_its_place(answer: Any, names: list[str]) -> None:
    with pytest.raises(ValueError, match=naming(*names)):
        calls_from_openai_responses(answer)


def test_results_are_items_of_text_images_and_files() -> None:
    pdf = BlobResourceContents(uri="a://b.pdf", mime_type="application/pdf", blob="AAAA")
    blocks: list[Any] = [
        TextContent(text="see"),
        ImageContent(data="AAAA", mime_type="image/png"),
        EmbeddedResource(resource=pdf),
        EmbeddedResource(resource=TextResourceContents(uri="a://b", text="whole")),
        ResourceLink(uri="a://c", name="c"),
    ]
    results = [
        ToolResultContent(tool_use_id="1", content=[TextContent(text="rain")]),
        ToolResultContent(tool_use_id="2", content=[TextContent(text="late")], is_error=True),
        ToolResultContent(tool_use_id="3", content=[], structured_content={"a": 1}),
        ToolResultContent(tool_use_id="4", content=blocks),
        ToolResultContent(tool_use_id="5", content=[]),
        ToolResultContent(tool_use_id="6", content=[], is_error=True),
    ]
    written = cast("list[Any]", results_to_openai_responses(results))
    assert [item["call_id"] for item in written] == ["1", "2", "3", "4", "5", "6"]
    assert [item["output"] for item in written if item["call_id"] != "4"] == [
        "rain",
        "Error: late",
        '{"a":1}',
        "",
        "Error",
    ]
    kinds = [part["type"] for part in written[3]["output"]]
    assert kinds == ["input_text", "input_image", "input_file", "input_text", "input_text"]
    assert written[3]["output"][1]["image_url"] == "data:image/png;base64,AAAA"
    TypeAdapter(list[ResponseInputItemParam]).validate_python(written)


def test_audio_has_no_counterpart_and_no_results_are_no_items() -> None:
    audio = ToolResultContent(tool_use_id="1", content=[AudioContent(data="AAAA", mime_type="audio/wav")])
    with pytest.raises(ValueError, match=naming("results[0].content[0]", "audio")):
        results_to_openai_responses([audio])
    with pytest.raises(ValueError, match="results"):
        results_to_openai_responses([])


async def test_the_calls_of_a_response_run_on_their_server() -> None:
    server = Server("weather")

    @server.tool
    async def forecast(city: str) -> str:
        return f"rain in {city}"

    async with Client.connect(server) as client:
        tools = await list_model_tools(client)
        (written,) = tools.to_openai_responses()
        assert written["name"] == "forecast"
        asked = call("1", "forecast", '{"city": "Lisbon"}')
        further = cast("list[Any]", await tools.run_openai_responses(response(asked)))
        assert [item["type"] for item in further] == ["function_call", "function_call_output"]
        assert further[1]["output"] == "rain in Lisbon"
        assert await tools.run_openai_responses(response()) == []
