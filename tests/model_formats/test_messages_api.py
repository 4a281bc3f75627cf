"""Messages of Anthropic's messages API, there and back."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import Message, MessageParam, TextBlock, ThinkingBlock, ToolUseBlock, Usage
from conversations import IMAGE, NAMES, TEXT, TEXTS, assistant, made, results, user
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from trio_mcp.model_formats import anthropic_request, anthropic_result, from_anthropic, to_anthropic
from trio_mcp.types import (
    Annotations,
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

ACCEPTED: TypeAdapter[Any] = TypeAdapter(list[MessageParam])
"""What the client library takes as messages."""

TEXT_FILE = made(TextResourceContents, uri=NAMES.map("file:///{}".format), mime_type=st.just("text/plain"), text=TEXTS)
PDF_FILE = made(
    BlobResourceContents,
    uri=NAMES.map("file:///{}".format),
    mime_type=st.just("application/pdf"),
    blob=st.just("JVBERg=="),
)
PDF_LINK = made(
    ResourceLink, uri=NAMES.map("https://example.com/{}".format), name=NAMES, mime_type=st.just("application/pdf")
)
RESULT_BLOCKS = TEXT | IMAGE | made(EmbeddedResource, resource=TEXT_FILE | PDF_FILE) | PDF_LINK
RESULTS = results(RESULT_BLOCKS, st.sampled_from([None, True, False]))


def one(*blocks: Any, role: Any = "user") -> SamplingMessage:
    return SamplingMessage(role=role, content=list(blocks))


def result(*blocks: Any, **members: Any) -> SamplingMessage:
    return one(ToolResultContent(tool_use_id="t1", content=list(blocks), **members))


def shown(*blocks: Any, **members: Any) -> Any:
    """The content of a tool result as the model sees it."""
    [message] = to_anthropic([result(*blocks, **members)])
    return message["content"][0]["content"]  # type: ignore[index,call-overload]


# there and back


@given(st.lists(user(TEXT | IMAGE) | user(RESULTS) | assistant(), max_size=4))
def test_what_both_sides_know_survives_the_way_there_and_back(messages: list[SamplingMessage]) -> None:
    written = to_anthropic(messages)
    assert from_anthropic(written) == messages
    ACCEPTED.validate_python(written)


@given(st.text(max_size=30))
def test_the_title_of_a_document_survives_the_way_there_and_back(title: str) -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "x"}
    document = {"type": "document", "source": source, **({"title": title} if title else {})}
    messages = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [document]}]}]
    read = from_anthropic(messages)
    assert to_anthropic(read) == messages


# shapes of the client library


def test_the_documented_tool_use_is_read() -> None:
    """The example of the page "Tool use" of Anthropic's documentation: a call of get_weather, and its result."""
    written: list[MessageParam] = [
        {"role": "user", "content": "What is the weather like in San Francisco?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I'll check the current weather in San Francisco for you."},
                {
                    "type": "tool_use",
                    "id": "toolu_01A09q90qw90lq917835lq9",
                    "name": "get_weather",
                    "input": {"location": "San Francisco, CA", "unit": "celsius"},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_01A09q90qw90lq917835lq9", "content": "15 degrees"}
            ],
        },
    ]
    question, call, answer = from_anthropic(written)
    assert question == one(TextContent(text="What is the weather like in San Francisco?"))
    assert call == one(
        TextContent(text="I'll check the current weather in San Francisco for you."),
        ToolUseContent(
            id="toolu_01A09q90qw90lq917835lq9",
            name="get_weather",
            input={"location": "San Francisco, CA", "unit": "celsius"},
        ),
        role="assistant",
    )
    assert answer == one(
        ToolResultContent(tool_use_id="toolu_01A09q90qw90lq917835lq9", content=[TextContent(text="15 degrees")])
    )


def test_the_documented_image_is_read() -> None:
    """The example of the page "Vision" of Anthropic's documentation."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}}
    written = [{"role": "user", "content": [image, {"type": "text", "text": "Describe this image."}]}]
    assert from_anthropic(written) == [
        one(ImageContent(data="aGk=", mime_type="image/jpeg"), TextContent(text="Describe this image."))
    ]


def test_blocks_of_an_answer_of_the_client_library_are_read() -> None:
    blocks = [
        TextBlock(type="text", text="I'll look.", citations=None),
        ToolUseBlock.model_validate(
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}, "caller": {"type": "direct"}}
        ),
    ]
    assert from_anthropic([{"role": "assistant", "content": blocks}]) == [
        one(TextContent(text="I'll look."), ToolUseContent(id="t1", name="look", input={"at": 1}), role="assistant")
    ]


def test_cache_control_is_left_out() -> None:
    block = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
    assert from_anthropic([{"role": "user", "content": [block]}]) == [one(TextContent(text="x"))]


# what differs


def test_a_single_block_is_written_as_a_list() -> None:
    message = SamplingMessage(role="user", content=TextContent(text="x", annotations=Annotations(priority=1)))
    assert to_anthropic([message]) == [{"role": "user", "content": [{"type": "text", "text": "x"}]}]


def test_structured_content_is_shown_as_json_once() -> None:
    said = {"type": "text", "text": '{"a": 1}'}
    assert shown(TextContent(text="fine"), structured_content={"a": 1}) == [
        {"type": "text", "text": "fine"},
        {"type": "text", "text": '{"a":1}'},
    ]
    assert shown(TextContent(text='{"a": 1}'), structured_content={"a": 1}) == [said]
    assert shown(structured_content=None) == []


def test_a_text_resource_is_a_document_with_its_uri_as_the_title() -> None:
    resource = TextResourceContents(uri="file:///a.md", mime_type="text/markdown", text="# A")
    source = {"type": "text", "media_type": "text/plain", "data": "# A"}
    assert shown(EmbeddedResource(resource=resource)) == [
        {"type": "document", "source": source, "title": "file:///a.md"}
    ]


def test_an_image_resource_is_an_image() -> None:
    resource = BlobResourceContents(uri="file:///a.png", mime_type="image/png", blob="aGk=")
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert shown(EmbeddedResource(resource=resource)) == [{"type": "image", "source": source}]


@pytest.mark.parametrize(
    "link",
    [
        ResourceLink(uri="https://example.com/a.txt", name="a", mime_type="text/plain"),
        ResourceLink(uri="file:///a.pdf", name="a", mime_type="application/pdf"),
    ],
)
def test_a_link_that_the_api_cannot_follow_is_its_json(link: ResourceLink) -> None:
    [block] = shown(link)
    assert (block["type"], ResourceLink.model_validate_json(block["text"])) == ("text", link)


# what has no counterpart


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (one(TextContent(text="x"), AudioContent(data="", mime_type="audio/wav")), "messages[1].content[1]"),
        (one(ImageContent(data="", mime_type="image/bmp")), "messages[1].content[0]"),
        (one(ToolUseContent(id="t", name="n", input={})), "messages[1].content[0]"),
        (one(ToolResultContent(tool_use_id="t", content=[]), role="assistant"), "messages[1].content[0]"),
        (result(AudioContent(data="", mime_type="audio/wav")), "messages[1].content[0].content[0]"),
        (
            result(EmbeddedResource(resource=BlobResourceContents(uri="a:b", mime_type="application/zip", blob=""))),
            "messages[1].content[0].content[0]",
        ),
    ],
)
def test_a_block_that_the_api_does_not_have_is_rejected_with_its_place(message: SamplingMessage, place: str) -> None:
    with pytest.raises(ValueError) as caught:
        to_anthropic([one(TextContent(text="x")), message])
    assert str(caught.value).startswith(f"{place}: ")


DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}


@pytest.mark.parametrize(
    ("message", "place"),
    [
        (1, "messages[1]"),
        ({"role": "system", "content": "x"}, "messages[1]"),
        ({"role": "user", "content": "x", "name": "me"}, "messages[1]"),
        ({"role": "user", "content": 1}, "messages[1].content"),
        ({"role": "user", "content": ["x"]}, "messages[1].content[0]"),
        ({"role": "user", "content": [DOCUMENT]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, "messages[1].content[0]"),
        (
            {"role": "user", "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {}}]},
            "messages[1].content[0]",
        ),
        (
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]},
            "messages[1].content[0]",
        ),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "n"}]}, "messages[1].content[0]"),
        (
            {"role": "assistant", "content": [ThinkingBlock(type="thinking", thinking="hm", signature="s")]},
            "messages[1].content[0]",
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "what"}]}]},
            "messages[1].content[0].content[0]",
        ),
    ],
)
def test_a_block_that_mcp_does_not_have_is_rejected_with_its_place(message: Any, place: str) -> None:
    with pytest.raises(ValueError) as caught:
        from_anthropic([{"role": "user", "content": "x"}, message])
    assert str(caught.value).startswith(f"{place}: ")


# requests


def asked(**members: Any) -> CreateMessageRequestParams:
    return CreateMessageRequestParams(messages=[one(TextContent(text="hi"))], max_tokens=9, **members)


def test_a_request_has_the_names_of_the_api() -> None:
    tool = Tool(name="look", description="Look.", input_schema={"type": "object"})
    request = asked(
        system_prompt="Be brief.",
        temperature=0.5,
        stop_sequences=["END"],
        metadata={"user_id": "u1", "other": 1},
        include_context="thisServer",
        tools=[tool, Tool(name="go", input_schema={"type": "object"})],
        tool_choice=ToolChoice(mode="required"),
    )
    assert anthropic_request(request, "claude-x") == {
        "model": "claude-x",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "system": "Be brief.",
        "temperature": 0.5,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u1"},
        "tools": [
            {"name": "look", "description": "Look.", "input_schema": {"type": "object"}},
            {"name": "go", "input_schema": {"type": "object"}},
        ],
        "tool_choice": {"type": "any"},
    }


def test_a_request_without_options_has_only_what_the_api_demands() -> None:
    assert set(anthropic_request(asked(), "m")) == {"model", "max_tokens", "messages"}
    assert "tool_choice" not in anthropic_request(asked(tool_choice=ToolChoice(mode="none")), "m")


def test_tools_that_a_conversation_used_are_declared_also_when_none_may_be_used() -> None:
    # The API rejects a conversation with uses or results, and without tools.
    uses = [
        ToolUseContent(id=number, name=name, input={}) for number, name in (("1", "look"), ("2", "go"), ("3", "look"))
    ]
    results = [ToolResultContent(tool_use_id=use.id, content=[]) for use in uses]
    request = CreateMessageRequestParams(
        messages=[SamplingMessage(role="assistant", content=[*uses]), SamplingMessage(role="user", content=[*results])],
        max_tokens=9,
        tool_choice=ToolChoice(mode="none"),
    )
    body = anthropic_request(request, "m")
    assert body["tools"] == [{"name": name, "input_schema": {"type": "object"}} for name in ("look", "go")]
    assert body["tool_choice"] == {"type": "none"}


# answers


def answer(*blocks: Any, stop_reason: Any = "end_turn", **usage: int) -> Message:
    counts = Usage(input_tokens=12, output_tokens=3, **usage)  # type: ignore[arg-type]
    return Message(
        id="msg_1",
        type="message",
        role="assistant",
        model="claude-x",
        content=list(blocks),
        stop_reason=stop_reason,
        usage=counts,
    )


def test_an_answer_of_the_client_library_becomes_a_result() -> None:
    message = answer(
        ThinkingBlock(type="thinking", thinking="hm", signature="s"),
        TextBlock(type="text", text="Looking."),
        ToolUseBlock(type="tool_use", id="t1", name="look", input={"at": 1}),
        stop_reason="tool_use",
        cache_read_input_tokens=30,
    )
    got = anthropic_result(message)
    assert got.content == [TextContent(text="Looking."), ToolUseContent(id="t1", name="look", input={"at": 1})]
    assert (got.role, got.model, got.stop_reason) == ("assistant", "claude-x", "toolUse")
    assert got.meta == {"usage": {"inputTokens": 42, "outputTokens": 3}}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "endTurn"),
        ("max_tokens", "maxTokens"),
        ("stop_sequence", "stopSequence"),
        ("refusal", "refusal"),
        (None, None),
    ],
)
def test_a_stop_reason_is_translated_or_stays_as_it_is(theirs: Any, ours: str | None) -> None:
    assert anthropic_result(answer(stop_reason=theirs)).stop_reason == ours


@pytest.mark.parametrize(
    "broken", [{}, {"content": "x", "model": "m"}, {"content": []}, {"content": [{"type": "x"}], "model": "m"}]
)
def test_an_invalid_answer_is_rejected(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        anthropic_result(broken)
