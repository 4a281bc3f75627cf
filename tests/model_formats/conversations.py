"""Conversations of any form that MCP allows, for tests of the formats of models' APIs."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from hypothesis import strategies as st

from trio_mcp.types import AudioContent, ImageContent, SamplingMessage, TextContent, ToolResultContent, ToolUseContent

NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=12)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
DATA = st.binary(max_size=9).map(lambda raw: b64encode(raw).decode())
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)


def made(model: type[Any], **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a model. `st.builds` would pass the wire names of its members too."""
    return st.fixed_dictionaries(members).map(lambda given: model(**given))


TEXT = made(TextContent, text=TEXTS)
IMAGE = made(ImageContent, data=DATA, mime_type=st.sampled_from(["image/png", "image/jpeg", "image/webp"]))
AUDIO = made(AudioContent, data=DATA, mime_type=st.sampled_from(["audio/wav", "audio/mpeg"]))
USE = made(ToolUseContent, id=NAMES, name=NAMES, input=OBJECTS)


def results(blocks: st.SearchStrategy[Any], errors: st.SearchStrategy[bool | None]) -> st.SearchStrategy[Any]:
    """Tool results with these blocks, without structured content."""
    return made(ToolResultContent, tool_use_id=NAMES, content=st.lists(blocks, max_size=3), is_error=errors)


def user(blocks: st.SearchStrategy[Any], *, at_least: int = 0) -> st.SearchStrategy[SamplingMessage]:
    """Messages of the user with these blocks."""
    return made(SamplingMessage, role=st.just("user"), content=st.lists(blocks, min_size=at_least, max_size=3))


@st.composite
def assistant(draw: st.DrawFn) -> SamplingMessage:
    """Messages of the assistant, with the texts before the tool calls."""
    texts = draw(st.lists(TEXT, max_size=3))
    return SamplingMessage(role="assistant", content=[*texts, *draw(st.lists(USE, max_size=3))])


def spaced(messages: list[SamplingMessage]) -> list[SamplingMessage]:
    """Put a message of the assistant between any two others, as the rules for tool results ask."""
    between = SamplingMessage(role="assistant", content=[TextContent(text="go on")])
    return [each for message in messages for each in (message, between)]
