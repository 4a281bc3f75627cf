"""What `ctx.sample` sends a model: prompts of text and media, options, and mistakes in them."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import trio
from scripted_model import message, requests_of

from trio_mcp import Audio, File, Image
from trio_mcp.testing import MockClient
from trio_mcp.types import (
    AudioContent,
    CreateMessageRequestParams,
    EmbeddedResource,
    ImageContent,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)

PNG = b"\x89PNG\r\n\x1a\n"
PIXEL = ImageContent(data=b64encode(PNG).decode(), mime_type="image/png")
CLICK = AudioContent(data=b64encode(b"RIFF").decode(), mime_type="audio/wav")
FILE = EmbeddedResource(resource=TextResourceContents(uri="file:///a", text="a"))


async def sent(prompt: Any, era: Any = "modern", **options: Any) -> CreateMessageRequestParams:
    """The params of a sample, as the client receives them."""
    client = MockClient(samples=["fine"], era=era)
    async with client.context() as ctx:
        await ctx.sample(prompt, **options)
    (request,) = requests_of(client)
    return request


@pytest.mark.parametrize(
    ("prompt", "content"),
    [
        ("Hello", TextContent(text="Hello")),
        ("", TextContent(text="")),
        (TextContent(text="Hello"), TextContent(text="Hello")),
        (PIXEL, PIXEL),
        (CLICK, CLICK),
        (Image(data=PNG), PIXEL),
        (Audio(data=b"RIFF", mime_type="audio/wav"), CLICK),
        (["Hello"], TextContent(text="Hello")),
        (("What is this?", Image(data=PNG), CLICK), [TextContent(text="What is this?"), PIXEL, CLICK]),
    ],
)
async def test_a_prompt_is_a_text_a_block_or_a_list_of_them(prompt: Any, content: object) -> None:
    assert (await sent(prompt)).messages == [SamplingMessage(role="user", content=content)]  # type: ignore[arg-type]


async def test_a_file_is_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    in_loop: list[bool] = []
    read = Image.read

    def watched(self: Image) -> bytes:
        in_loop.append(trio.lowlevel.in_trio_run())
        return read(self)

    monkeypatch.setattr(Image, "read", watched)
    params = await sent(["What is this?", Image(tmp_path / "a.png")])
    assert params.messages[0].content == [TextContent(text="What is this?"), PIXEL]
    assert in_loop == [False]


async def test_a_prompt_of_several_blocks_is_several_messages_before_2025_11_25() -> None:
    params = await sent(["What is this?", PIXEL], "2025-06-18")
    assert [message.content for message in params.messages] == [TextContent(text="What is this?"), PIXEL]


async def test_options_that_were_not_given_are_not_sent() -> None:
    assert (await sent("Hello")).wire().keys() - {"_meta"} == {"messages", "maxTokens"}


async def test_all_options_are_sent() -> None:
    preferences = ModelPreferences(hints=[ModelHint(name="small")], cost_priority=0.5)
    params = await sent(
        "Hello",
        max_tokens=7,
        system_prompt="Be short.",
        temperature=0.5,
        stop_sequences=("END",),
        model_preferences=preferences,
        include_context="none",
        metadata={"a": 1},
    )
    assert (params.max_tokens, params.system_prompt, params.temperature) == (7, "Be short.", 0.5)
    assert (params.stop_sequences, params.model_preferences) == (["END"], preferences)
    assert (params.include_context, params.metadata) == ("none", {"a": 1})


@pytest.mark.parametrize(
    ("prompt", "options", "error", "named"),
    [
        (5, {}, TypeError, "prompt"),
        ([], {}, ValueError, "prompt"),
        ([None], {}, TypeError, "prompt"),
        (FILE, {}, TypeError, "prompt"),
        (File(data=b"a", name="a"), {}, TypeError, "prompt"),
        (None, {}, TypeError, "prompt"),
        ("a", {"messages": [message("user", "a")]}, TypeError, "prompt"),
        (None, {"messages": []}, ValueError, "messages"),
        (None, {"messages": ["a"]}, TypeError, "messages"),
        ("a", {"max_tokens": 0}, ValueError, "max_tokens"),
        ("a", {"max_tokens": "7"}, TypeError, "max_tokens"),
        ("a", {"stop_sequences": "END"}, TypeError, "stop_sequences"),
        ("a", {"include_context": "all"}, ValueError, "include_context"),
        ("a", {"model_preferences": {"costPriority": 1}}, TypeError, "model_preferences"),
        ("a", {"system_prompt": 3}, TypeError, "system_prompt"),
        ("a", {"sytem_prompt": "x"}, TypeError, "system_prompt"),
    ],
)
async def test_a_mistake_is_an_error_before_anything_is_awaited(
    prompt: Any, options: Any, error: type[Exception], named: str
) -> None:
    client = MockClient()
    async with client.context() as ctx:
        with pytest.raises(error, match=named):
            ctx.sample(prompt, **options)
    assert client.questions == []


async def test_messages_are_those_of_the_call_whatever_their_list_holds_later() -> None:
    client = MockClient(samples=["one", "two"])
    async with client.context() as ctx:
        given = [message("user", "a")]
        asking, looping = ctx.sample(messages=given), ctx.run_tool_loop(given, [])
        given.clear()
        assert (await asking).text == "one"
        assert (await looping).text == "two"
