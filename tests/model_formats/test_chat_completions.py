"""Messages of OpenAI's chat completions, there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conversations import AUDIO, IMAGE, TEXT, assistant, results, spaced, user
from hypothesis import given, strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ChatCompletionMessageParam
from pydantic import TypeAdapter

from trio_mcp.model_formats import from_openai, openai_request, openai_result, to_openai
from trio_mcp.types import (
    AudioContent,
    BlobResourceContents,
    CreateMessageRequestParams,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)

ACCEPTED: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionMessageParam])
"""What the client library takes as messages."""

RESULTS = results(TEXT, st.none())


def one(*blocks: Any, role: Any = "user") -> SamplingMessage:
    return SamplingMessage(role=role, content=list(blocks))


def result(*blocks: Any, **members: Any) -> SamplingMessage:
    return one(ToolResultContent(tool_use_id="t1", content=list(blocks), **members))


# there and back


@given(st.lists(user(TEXT | IMAGE | AUDIO) | user(RESULTS, at_least=1) | assistant(), max_size=4).map(spaced))
def test_what_both_sides_know_survives_the_way_there_and_back(messages: list[SamplingMessage]) -> None:
    written = to_openai(messages)
    assert from_openai(written) == messages
    ACCEPTED.validate_python(written)


# shapes of the client library


def test_the_documented_function_call_is_read() -> None:
    """The example of the page "Function calling" of OpenAI's documentation: two calls of get_weather, and their results."""
    call = {"name": "get_weather", "arguments": '{"location":"Paris, France"}'}
    other = {"name": "get_weather", "arguments": '{"location":"Bogotá, Colombia"}'}
    written: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "What is the weather like in Paris and Bogotá today?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_12345xyz", "type": "function", "function": call},  # type: ignore[typeddict-item]
                {"id": "call_67890abc", "type": "function", "function": other},  # type: ignore[typeddict-item]
            ],
        },
        {"role": "tool", "tool_call_id": "call_12345xyz", "content": "14"},
        {"role": "tool", "tool_call_id": "call_67890abc", "content": "18"},
    ]
    question, calls, answers = from_openai(written)
    assert question == one(TextContent(text="What is the weather like in Paris and Bogotá today?"))
    assert calls == one(
        ToolUseContent(id="call_12345xyz", name="get_weather", input={"location": "Paris, France"}),
        ToolUseContent(id="call_67890abc", name="get_weather", input={"location": "Bogotá, Colombia"}),
        role="assistant",
    )
    assert answers == one(
        ToolResultContent(tool_use_id="call_12345xyz", content=[TextContent(text="14")]),
        ToolResultContent(tool_use_id="call_67890abc", content=[TextContent(text="18")]),
    )
    assert to_openai([question, calls, answers]) == written


def test_the_documented_image_and_audio_are_read() -> None:
    """The examples of the pages "Images and vision" and "Audio" of OpenAI's documentation."""
    parts = [
        {"type": "text", "text": "What is in this recording?"},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,aGk=", "detail": "high"}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    ]
    assert from_openai([{"role": "user", "content": parts}]) == [
        one(
            TextContent(text="What is in this recording?"),
            ImageContent(data="aGk=", mime_type="image/jpeg"),
            AudioContent(data="aGk=", mime_type="audio/wav"),
        )
    ]


def test_a_message_of_an_answer_of_the_client_library_is_read() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    message = ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": "Looking.", "refusal": None, "annotations": [], "tool_calls": [call]}
    )
    assert from_openai([message]) == [
        one(TextContent(text="Looking."), ToolUseContent(id="c1", name="look", input={}), role="assistant")
    ]


# what differs


def test_a_single_text_is_no_list() -> None:
    assert to_openai([SamplingMessage(role="user", content=TextContent(text="x"))]) == [
        {"role": "user", "content": "x"}
    ]


def test_the_texts_of_the_assistant_precede_its_calls() -> None:
    message = one(ToolUseContent(id="c", name="n", input={}), TextContent(text="after"), role="assistant")
    [written] = to_openai([message])
    assert (written["content"], len(written["tool_calls"])) == ("after", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "content"),
    [
        (result(TextContent(text="gone"), is_error=True), "Error: gone"),
        (result(is_error=True), "Error"),
        (result(TextContent(text="fine"), is_error=False), "fine"),
        (result(structured_content={"a": 1}), '{"a":1}'),
        (result(TextContent(text='{"a": 1}'), structured_content={"a": 1}), '{"a": 1}'),
        (result(EmbeddedResource(resource=TextResourceContents(uri="a:b", text="inside"))), "inside"),
    ],
)
def test_a_tool_result_is_text(message: SamplingMessage, content: str) -> None:
    assert to_openai([message]) == [{"role": "tool", "tool_call_id": "t1", "content": content}]


def test_a_link_is_its_json() -> None:
    link = ResourceLink(uri="https://example.com/a", name="a")
    [written] = to_openai([result(link)])
    assert json.loads(str(written["content"])) == link.wire()


def test_media_of_tool_results_follow_in_a_message_of_the_user() -> None:
    pdf = EmbeddedResource(
        resource=BlobResourceContents(uri="file:///a.pdf", mime_type="application/pdf", blob="JVBERg==")
    )
    first = ToolResultContent(
        tool_use_id="t1", content=[TextContent(text="see"), ImageContent(data="aGk=", mime_type="image/png")]
    )
    written = to_openai([one(first, ToolResultContent(tool_use_id="t2", content=[pdf]))])
    assert [message["role"] for message in written] == ["tool", "tool", "user"]
    assert [message["content"] for message in written[:2]] == ["see", ""]
    assert written[2]["content"] == [
        {"type": "text", "text": "From the result of the tool call t1:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "text", "text": "From the result of the tool call t2:"},
        {"type": "file", "file": {"filename": "file:///a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
    ]
    ACCEPTED.validate_python(written)


# what has no counterpart


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (one(TextContent(text="x"), AudioContent(data="", mime_type="audio/ogg")), "messages[1].content[1]"),
        (one(ToolUseContent(id="t", name="n", input={})), "messages[1].content[0]"),
        (one(ImageContent(data="", mime_type="image/png"), role="assistant"), "messages[1].content[0]"),
        (one(ToolResultContent(tool_use_id="t", content=[]), role="assistant"), "messages[1].content[0]"),
        (
            result(EmbeddedResource(resource=BlobResourceContents(uri="a:b", mime_type="application/zip", blob=""))),
            "messages[1].content[0].content[0]",
        ),
    ],
)
def test_a_block_that_the_api_does_not_have_is_rejected_with_its_place(message: SamplingMessage, place: str) -> None:
    with pytest.raises(ValueError) as caught:
        to_openai([one(TextContent(text="x")), message])
    assert str(caught.value).startswith(f"{place}: ")


def call(**members: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", **members}]}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (None, "messages[1]"),
        ({"role": "system", "content": "x"}, "messages[1]"),
        ({"role": "developer", "content": "x"}, "messages[1]"),
        ({"role": "function", "content": "x"}, "messages[1]"),
        ({"role": "user", "content": "x", "name": "me"}, "messages[1]"),
        ({"role": "assistant", "refusal": "no"}, "messages[1]"),
        ({"role": "tool", "content": "x"}, "messages[1]"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": [{"type": "file", "file": {}}]}, "messages[1].content[0]"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a"}}]},
            "messages[1].content[0]",
        ),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "x"}]}, "messages[1].content[0]"),
        (call(type="custom", custom={}), "messages[1].tool_calls[0]"),
        (call(function={"name": "n", "arguments": "{"}), "messages[1].tool_calls[0]"),
        (call(function={"name": "n", "arguments": "[]"}), "messages[1].tool_calls[0]"),
        (call(function={"arguments": "{}"}), "messages[1].tool_calls[0]"),
    ],
)
def test_a_block_that_mcp_does_not_have_is_rejected_with_its_place(message: Any, place: str) -> None:
    with pytest.raises(ValueError) as caught:
        from_openai([{"role": "user", "content": "x"}, message])
    assert str(caught.value).startswith(f"{place}: ")


# requests


def asked(**members: Any) -> CreateMessageRequestParams:
    return CreateMessageRequestParams(messages=[one(TextContent(text="hi"))], max_tokens=9, **members)


def test_a_request_has_the_names_of_the_api() -> None:
    request = asked(
        system_prompt="Be brief.",
        temperature=0.5,
        stop_sequences=["END"],
        metadata={"a": 1},
        include_context="allServers",
        tools=[Tool(name="look", description="Look.", input_schema={"type": "object"})],
        tool_choice=ToolChoice(mode="required"),
    )
    function = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
    assert openai_request(request, "gpt-x") == {
        "model": "gpt-x",
        "max_completion_tokens": 9,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "stop": ["END"],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
    }


def test_a_request_without_options_has_only_what_the_api_demands() -> None:
    assert set(openai_request(asked(), "m", max_tokens_as="max_tokens")) == {"model", "max_tokens", "messages"}
    assert "tool_choice" not in openai_request(asked(tool_choice=ToolChoice(mode="none")), "m")


# answers


def answer(message: dict[str, Any], finish_reason: Any = "stop") -> dict[str, Any]:
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    members = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-x"}
    return {**members, "choices": [choice], "usage": usage}


CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}]


def test_an_answer_of_the_client_library_becomes_a_result() -> None:
    got = openai_result(
        ChatCompletion.model_validate(answer({"content": "Looking.", "tool_calls": CALLS}, "tool_calls"))
    )
    assert got.content == [TextContent(text="Looking."), ToolUseContent(id="c1", name="look", input={"at": 1})]
    assert (got.role, got.model, got.stop_reason) == ("assistant", "gpt-x", "toolUse")
    assert got.meta == {"usage": {"inputTokens": 12, "outputTokens": 3}}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("stop", "endTurn"), ("length", "maxTokens"), ("content_filter", "content_filter"), (None, None)],
)
def test_a_stop_reason_is_translated_or_stays_as_it_is(theirs: Any, ours: str | None) -> None:
    assert openai_result(answer({"content": "x"}, theirs)).stop_reason == ours


def test_an_answer_with_tool_calls_never_ends_the_turn() -> None:
    assert openai_result(answer({"content": None, "tool_calls": CALLS}, "stop")).stop_reason == "toolUse"


def test_a_refusal_is_the_text_of_the_answer() -> None:
    got = openai_result(answer({"content": None, "refusal": "I can't."}))
    assert (got.content, got.stop_reason) == ([TextContent(text="I can't.")], "refusal")


def test_an_answer_without_counts_of_tokens_has_no_usage() -> None:
    assert openai_result({**answer({"content": "x"}), "usage": None}).meta is None


@pytest.mark.parametrize(
    "broken", [{}, {"choices": [], "model": "m"}, {"choices": [{}], "model": "m"}, {"choices": [1], "model": "m"}]
)
def test_an_invalid_answer_is_rejected(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        openai_result(broken)
