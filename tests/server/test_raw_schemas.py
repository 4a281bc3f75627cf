"""Tools whose schemas are written by hand: arguments and results by JSON Schema 2020-12, and what a tool says beside that."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Annotated

import pytest
from naming import naming, unnamed
from one_tool import failure_of, result_of, success_of, talk_with
from talk import DECLINE, Json, Talk, accept

from trio_mcp import Context, Elicit, Mirrored, Server, ToolResult
from trio_mcp.protocol.schema.json_schema import Schema
from trio_mcp.types import (
    Annotations,
    AudioContent,
    EmbeddedResource,
    Icon,
    ImageContent,
    JsonObject,
    JsonValue,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

ADDRESS: Json = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"zip": {"$anchor": "zip", "type": "string", "pattern": "^[0-9]{5}$"}},
    "properties": {"country": {"enum": ["DE", "FR"]}, "zip": {"$ref": "#zip"}},
    "required": ["country"],
    "allOf": [{"anyOf": [{"required": ["zip"]}, {"required": ["city"]}]}],
    "if": {"properties": {"country": {"const": "DE"}}},
    "then": {"required": ["zip"]},
    "unevaluatedProperties": {"type": "string"},
}


async def only(talk: Talk) -> Json:
    (tool,) = (await talk.result(talk.ask("tools/list")))["tools"]
    return tool


async def test_a_schema_by_hand_is_listed_as_it_was_written() -> None:
    schemas = {"input_schema": ADDRESS, "output_schema": {"oneOf": [{"type": "integer"}]}}
    async with talk_with(lambda arguments: "", name="send", **schemas) as talk:
        tool = await only(talk)
    assert (tool["inputSchema"], tool["outputSchema"]) == (ADDRESS, schemas["output_schema"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "country"),
        ({"country": "DE", "zip": "1"}, "zip"),
        ({"country": "DE", "city": "Bonn"}, "zip"),
        ({"country": "FR", "city": 3}, "city"),
    ],
)
async def test_invalid_arguments_are_reported_to_the_model(arguments: Json, named: str) -> None:
    async def send(arguments: JsonObject) -> None:
        raise AssertionError(arguments)

    assert unnamed(await failure_of(send, arguments, name="send", input_schema=ADDRESS), "send", named) == []


async def test_the_function_takes_all_arguments_in_one_parameter_and_a_context_beside_it() -> None:
    async def send(arguments: JsonObject, ctx: Context) -> str:
        return f"{sorted(arguments)} {ctx.request.method}"

    address = {"country": "FR", "city": "Lyon"}
    assert await success_of(send, address, input_schema=ADDRESS) == "['city', 'country'] tools/call"


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "array"}, "object"),
        ({"type": "object", "properties": {"a": {"type": "no such type"}}}, "no such type"),
        ({"type": "object", "$schema": "https://example.com/mine"}, "https://example.com/mine"),
        ({"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}}, "https://example.com"),
    ],
)
def test_an_invalid_input_schema_is_rejected_when_the_tool_is_offered(schema: Json, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Server("wrong").add_tool(lambda arguments: "", name="x", input_schema=schema)


def test_a_function_with_several_parameters_cannot_take_them_in_one() -> None:
    with pytest.raises(TypeError, match=naming("input_schema", "parameter")):
        Server("wrong").add_tool(lambda a, b: "", name="x", input_schema={"type": "object"})


@pytest.mark.parametrize("value", [3, "three", [1, 2], None, {"a": 1}])
async def test_a_result_may_be_any_json_that_fits(value: object) -> None:
    types = ["integer", "string", "array", "null", "object"]
    result = await result_of(lambda: value, output_schema={"type": types})
    assert result["structuredContent"] == value
    assert len(result["content"]) == 1  # a copy as text, for clients that know no structure (L-TOOL-5s)


async def test_older_revisions_get_the_text_of_a_result_that_is_not_an_object() -> None:
    result = await result_of(lambda: [1, 2], output_schema={"type": "array"}, legacy=True)
    assert "structuredContent" not in result
    assert result["content"] == [{"type": "text", "text": "[1,2]"}]


@pytest.mark.parametrize(
    "value", ["three", ToolResult(content=[], structured_content="three"), ToolResult(content=[]), float("nan")]
)
async def test_a_result_that_does_not_fit_is_an_error_of_the_tool(value: object) -> None:
    result = await result_of(lambda: value, output_schema={"type": "integer"})
    assert result["isError"]
    assert "structuredContent" not in result


async def test_an_error_result_need_not_fit() -> None:
    made = ToolResult(content=[TextContent(text="no")], is_error=True)
    assert await failure_of(lambda: made, output_schema={"type": "integer"}) == "no"


# what a check costs


@pytest.fixture
def checkers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads in which checks without the limit of a quick one were made."""
    threads: list[int] = []
    check = Schema.check

    def checking(
        self: Schema, value: JsonValue, root: str = "", pause: Callable[[], object] | None = None
    ) -> str | None:
        threads.append(threading.get_ident())
        return check(self, value, root, pause)

    monkeypatch.setattr(Schema, "check", checking)
    return threads


ROWS: Json = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "integer"}}}}


async def test_a_usual_check_is_made_at_once(checkers: list[int]) -> None:
    async def total(arguments: Json) -> int:
        return sum(arguments["rows"])

    result = await result_of(total, {"rows": [1, 2]}, input_schema=ROWS, output_schema={"type": "integer"})
    assert result["structuredContent"] == 3
    assert checkers == []


async def test_an_expensive_check_of_arguments_runs_in_a_thread(checkers: list[int]) -> None:
    async def count(arguments: Json) -> str:
        return str(len(arguments["rows"]))

    assert await success_of(count, {"rows": [1] * 10_000}, input_schema=ROWS) == "10000"
    problem = await failure_of(count, {"rows": [1] * 9_999 + ["x"]}, name="count", input_schema=ROWS)
    assert unnamed(problem, "count", "rows[9999]") == []
    assert unnamed(await failure_of(count, {"rows": [1] * 90_000}, input_schema=ROWS), "100000") == []
    assert len(checkers) == 3
    assert threading.get_ident() not in checkers


async def test_an_expensive_check_of_a_result_runs_in_a_thread(checkers: list[int]) -> None:
    schema: Json = {"items": {"type": "integer"}}
    result = await result_of(lambda: list(range(10_000)), output_schema=schema)
    assert len(result["structuredContent"]) == 10_000
    assert "isError" not in result
    assert (await result_of(lambda: [*range(9_999), "x"], output_schema=schema))["isError"]
    assert len(checkers) == 2
    assert threading.get_ident() not in checkers


async def test_every_kind_of_content_arrives_with_its_annotations() -> None:
    hints = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")

    async def everything() -> list[TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource]:
        return [
            TextContent(text="t", annotations=hints),
            ImageContent(data="aQ==", mime_type="image/png", annotations=hints),
            AudioContent(data="YQ==", mime_type="audio/wav", annotations=hints),
            ResourceLink(uri="a://b", name="b", annotations=hints),
            EmbeddedResource(resource=TextResourceContents(uri="a://c", text="c"), annotations=hints),
        ]

    content = (await result_of(everything))["content"]
    assert [block["type"] for block in content] == ["text", "image", "audio", "resource_link", "resource"]
    assert all(block["annotations"] == hints.wire() for block in content)


# what a tool declares


async def test_the_icons_of_a_tool_are_listed() -> None:
    icon = Icon(src="https://example.com/i.png", mime_type="image/png", sizes=["48x48"], theme="dark")
    async with talk_with(lambda: "", name="drawn", icons=[icon]) as talk:
        assert (await only(talk))["icons"] == [icon.wire()]


async def test_the_questions_of_a_tool_are_published_and_asked_by_key() -> None:
    seat = Elicit("seat", str)

    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("Which seat?", seat)
        return answer.content if answer.action == "accept" else "none"

    async with talk_with(book, elicits=[seat]) as talk:
        published = (await only(talk))["_meta"]["trio-mcp/elicits"]
        asked = await talk.round(talk.leg("book"))
        accepted = {"seat": accept(value="12A")}
        assert await talk.text(talk.leg("book", state=asked.state, answers=accepted)) == "12A"
    assert published["seat"]["properties"]["value"]["type"] == "string"


async def test_a_declared_question_that_is_asked_again_or_in_branches_has_a_new_key_each_time() -> None:
    seat = Elicit("seat", str)

    async def book(ctx: Context) -> str:
        await ctx.elicit("Which seat?", seat)
        await ctx.branch_all(lambda a: a.elicit("And you?", seat), lambda b: b.elicit("And you?", seat))
        await ctx.elicit("And back?", seat)
        return "booked"

    async with talk_with(book, elicits=[seat]) as talk:
        rounds = [await talk.round(talk.leg("book"))]
        for _ in range(2):
            answers = dict.fromkeys(rounds[-1].keys, DECLINE)
            rounds.append(await talk.round(talk.leg("book", state=rounds[-1].state, answers=answers)))
    assert [asked.keys for asked in rounds] == [["seat"], ["seat/1-1", "seat/2-1"], ["seat-2"]]


@pytest.mark.parametrize("key", ["", "seat-1", "seat/1", "1st", "a seat"])
def test_a_key_must_be_an_identifier(key: str) -> None:
    with pytest.raises(ValueError, match="identifier"):
        Elicit(key, str)


def test_two_questions_of_a_tool_have_two_keys() -> None:
    with pytest.raises(ValueError, match=naming("seat, seat")):
        Server("wrong").add_tool(lambda: "", name="x", elicits=[Elicit("seat", str), Elicit("seat", int)])


async def test_an_argument_can_be_marked_for_a_header() -> None:
    async def query(region: Annotated[str, Mirrored("Region")], limit: Annotated[int, Mirrored("Limit")] = 3) -> str:
        return f"{region}{limit}"

    async with talk_with(query) as talk:
        properties = (await only(talk))["inputSchema"]["properties"]
        assert await talk.text(talk.leg("query", {"region": "eu"})) == "eu3"  # no headers on a pipe, so none is missing
    assert (properties["region"]["x-mcp-header"], properties["limit"]["x-mcp-header"]) == ("Region", "Limit")


def test_an_argument_that_no_header_can_carry_cannot_be_marked() -> None:
    def query(price: Annotated[float, Mirrored("Price")]) -> str:
        return str(price)

    with pytest.raises(ValueError, match="price"):
        Server("wrong").add_tool(query)
