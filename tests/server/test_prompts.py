"""From a function to a prompt: its arguments, its messages, and asking in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from naming import unnamed
from pydantic import Field
from talk import Json, talk_to

from trio_mcp import Context, Elicit, Server, ToolError
from trio_mcp.types import (
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    TextContent,
    TextResourceContents,
)


@pytest.fixture
def server() -> Server:
    server = Server("writer")

    @server.prompt(title="Review")
    def review(
        code: Annotated[str, Field(description="What to look at")], style: Literal["kind", "strict"] = "kind"
    ) -> str:
        """Look at some code."""
        return f"Be {style}: {code}"

    return server


def offering(function: Callable[..., object], **options: Any) -> Server:
    """A server with this one prompt."""
    server = Server("tester")
    server.add_prompt(function, name="say", **options)
    return server


async def get(server: Server, name: str = "say", **arguments: str) -> Json:
    async with talk_to(server) as talk:
        return await talk.result(talk.ask("prompts/get", name=name, arguments=arguments))


async def refusal(server: Server, name: str = "say", **arguments: object) -> Json:
    async with talk_to(server) as talk:
        return await talk.error(talk.ask("prompts/get", name=name, arguments=arguments))


async def test_the_signature_is_what_is_listed(server: Server) -> None:
    async with talk_to(server) as talk:
        listed = await talk.result(talk.ask("prompts/list"))
    assert listed["prompts"] == [
        {
            "name": "review",
            "title": "Review",
            "description": "Look at some code.",
            "arguments": [
                {"name": "code", "description": "What to look at", "required": True},
                {"name": "style", "required": False},
            ],
        }
    ]


async def test_text_is_one_message_of_the_user(server: Server) -> None:
    result = await get(server, "review", code="x = 1", style="strict")
    assert result["messages"] == [{"role": "user", "content": {"type": "text", "text": "Be strict: x = 1"}}]
    assert result["description"] == "Look at some code."


async def test_a_whole_result_goes_out_as_it_is() -> None:
    result = await get(offering(lambda: GetPromptResult(description="mine", messages=[])))
    assert (result["description"], result["messages"]) == ("mine", [])


async def test_an_unknown_prompt_is_refused_by_its_name(server: Server) -> None:
    error = await refusal(server, "revue")
    assert error["code"] == -32602
    assert error["message"].startswith("Unknown prompt: revue")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({}, "code"), ({"code": "x", "style": "rude"}, "style"), ({"code": "x", "colour": "red"}, "colour")],
)
async def test_an_argument_that_is_missing_wrong_or_unknown_is_named(
    server: Server, arguments: dict[str, str], named: str
) -> None:
    error = await refusal(server, "review", **arguments)
    assert error["code"] == -32602
    assert named in error["message"]


async def test_the_value_of_an_argument_is_a_string(server: Server) -> None:
    assert (await refusal(server, "review", code=1))["code"] == -32602


async def test_a_prompt_publishes_the_questions_that_it_asks_by_key() -> None:
    whom = Elicit("whom", str)

    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Whom?", whom)
        return answer.content if answer.action == "accept" else ""

    async with talk_to(offering(greet, elicits=[whom], meta={"x/y": 1})) as talk:
        (listed,) = (await talk.result(talk.ask("prompts/list")))["prompts"]
        asked = await talk.round(talk.ask("prompts/get", name="say"))
    assert listed["_meta"]["x/y"] == 1
    assert listed["_meta"]["trio-mcp/elicits"]["whom"]["properties"]["value"]["type"] == "string"
    assert asked.key == "whom"


async def test_a_tool_error_in_a_prompt_keeps_its_message() -> None:
    def fail() -> str:
        raise ToolError("There is nothing to write about.")

    error = await refusal(offering(fail))
    assert (error["code"], error["message"]) == (-32603, "There is nothing to write about.")


def text(role: str, text: str) -> Json:
    """A message of a text, as it is sent."""
    return {"role": role, "content": {"type": "text", "text": text}}


PIXEL = ImageContent(data="aWs=", mime_type="image/png")
PAGE = EmbeddedResource(resource=TextResourceContents(uri="a://b", text="t"))


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        (["Look:", PIXEL], [text("user", "Look:"), {"role": "user", "content": PIXEL.wire()}]),
        (PAGE, [{"role": "user", "content": PAGE.wire()}]),
        ([PromptMessage(role="assistant", content=TextContent(text="I see."))], [text("assistant", "I see.")]),
        (
            [{"role": "assistant", "content": "hi"}, {"role": "user", "content": "bye"}],
            [text("assistant", "hi"), text("user", "bye")],
        ),
        ([{"role": "assistant", "content": {"type": "text", "text": "hi"}}], [text("assistant", "hi")]),
        ([{"role": "assistant", "content": TextContent(text="hi")}], [text("assistant", "hi")]),
        ({"role": "admin"}, [text("user", '{"role":"admin"}')]),
        ({"a": 1}, [text("user", '{"a":1}')]),
    ],
    ids=["blocks", "a block", "messages", "dicts", "a dict with a dict", "a dict with a block", "a role", "data"],
)
async def test_what_a_function_returns_becomes_messages_in_order(value: object, messages: list[Json]) -> None:
    assert (await get(offering(lambda: value)))["messages"] == messages


@pytest.mark.parametrize(
    "message",
    [{"role": "system", "content": "hi"}, {"role": "user", "content": 3}, {"role": "user", "content": {"text": "hi"}}],
    ids=["role", "content", "block"],
)
async def test_a_dict_with_a_role_that_is_not_a_message_is_an_error_that_names_the_type(message: object) -> None:
    assert unnamed((await refusal(offering(lambda: [message])))["message"], "PromptMessage") == []


async def test_a_bare_string_in_an_annotation_describes_an_argument() -> None:
    def say(code: Annotated[str, "What to look at"]) -> str:
        return code

    async with talk_to(offering(say)) as talk:
        (prompt,) = (await talk.result(talk.ask("prompts/list")))["prompts"]
    assert prompt["arguments"] == [{"name": "code", "description": "What to look at", "required": True}]
