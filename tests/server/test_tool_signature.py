"""From a function to a tool: its name, its description, the schema of its arguments, and what a call may pass."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from naming import naming
from one_tool import failure_of, success_of, talk_with
from pydantic import BaseModel, Field
from talk import Json

from trio_mcp.server import Context, Server
from trio_mcp.types import ToolAnnotations


class Cabin(Enum):
    ECONOMY = "economy"
    FIRST = "first"


class Passenger(BaseModel):
    name: str
    age: int = Field(ge=0)


@dataclass
class Point:
    x: int
    y: int = 0


@pytest.fixture
def server() -> Server:
    return Server("tester")


def schema_of(server: Server) -> Json:
    """The input schema of the only tool."""
    (tool,) = server.tools
    return tool.model.input_schema


# the decorator


def test_the_decorator_works_with_and_without_parentheses_and_leaves_the_function_alone(server: Server) -> None:
    def bare(a: int) -> int:
        """Bare."""
        return a

    def called(a: int) -> int:
        return a

    def named(a: int) -> int:
        return a

    assert server.tool(bare) is bare
    assert server.tool()(called) is called
    assert server.tool(name="other.name", title="Other", description="Else.")(named) is named
    first, second, third = server.tools
    assert (first.name, first.model.description) == ("bare", "Bare.")
    assert (second.name, second.model.description) == ("called", None)
    assert (third.name, third.model.title, third.model.description) == ("other.name", "Other", "Else.")


def test_annotations_and_meta_are_listed(server: Server) -> None:
    @server.tool(annotations=ToolAnnotations(read_only_hint=True), meta={"x/y": 1})
    def look() -> None: ...

    (tool,) = server.tools
    assert tool.model.wire()["annotations"] == {"readOnlyHint": True}
    assert tool.model.wire()["_meta"] == {"x/y": 1}


@pytest.mark.parametrize("name", ["", "two words", "a/b", "é", "a" * 129, "a\n"])
def test_an_invalid_name_is_rejected(server: Server, name: str) -> None:
    def function() -> None: ...

    function.__name__ = name
    with pytest.raises(ValueError, match=naming("tool name")):
        server.tool(function)
    with pytest.raises(ValueError, match=naming("tool name")):
        server.tool(name=name or " ")(function)


def test_tools_are_listed_in_the_order_they_were_added(server: Server) -> None:
    for name in ("c", "a", "b"):
        server.tool(name=name)(lambda: None)
    assert [tool.name for tool in server.tools] == ["c", "a", "b"]


# schemas


def test_a_tool_without_arguments_takes_an_empty_object(server: Server) -> None:
    server.tool(name="tool")(lambda: None)
    schema = schema_of(server)
    assert (schema["type"], schema["properties"]) == ("object", {})
    assert "required" not in schema
    assert schema["additionalProperties"] is False


def test_types_defaults_and_requirements_show_in_the_schema(server: Server) -> None:
    @server.tool
    def book(
        to: str,
        cabin: Cabin,
        seat: Literal["window", "aisle"] = "aisle",
        bags: int | None = None,
        *,
        price: Annotated[float, Field(description="In euros", gt=0)] = 1.5,
    ) -> None: ...

    schema = schema_of(server)
    assert schema["required"] == ["to", "cabin"]
    properties = schema["properties"]
    assert properties["to"]["type"] == "string"
    assert {"window", "aisle"} == set(properties["seat"]["enum"])
    assert properties["seat"]["default"] == "aisle"
    assert properties["bags"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert (properties["price"]["description"], properties["price"]["exclusiveMinimum"]) == ("In euros", 0)
    assert properties["cabin"]["enum"] == ["economy", "first"]


def test_a_bare_string_in_an_annotation_describes_a_parameter_unless_a_field_does(server: Server) -> None:
    @server.tool
    def book(
        city: Annotated[str, "The city"],
        nights: Annotated[int, Field(ge=1), "How long", "not this"],
        hotel: Annotated[str, "Not this", Field(description="Its name")],
        note: Annotated[str, "Not this"] = Field("", description="For the hotel"),
    ) -> None: ...

    properties = schema_of(server)["properties"]
    assert {name: shown["description"] for name, shown in properties.items()} == {
        "city": "The city",
        "nights": "How long",
        "hotel": "Its name",
        "note": "For the hotel",
    }
    assert properties["nights"]["minimum"] == 1


# calls


async def test_arguments_arrive_as_what_the_signature_says() -> None:
    async def book(
        passenger: Passenger,
        cabin: Cabin,
        seat: Literal["window", "aisle"],
        route: list[Point],
        *,
        note: str | None = None,
        back: Cabin = Cabin.FIRST,
    ) -> str:
        assert isinstance(passenger, Passenger)
        assert all(isinstance(point, Point) for point in route)
        return f"{passenger.name} {cabin.name} {seat} {len(route)} {note} {back.name}"

    sent: Json = {"passenger": {"name": "Ana", "age": 30}, "cabin": "economy", "seat": "aisle", "route": [{"x": 1}]}
    assert await success_of(book, sent) == "Ana ECONOMY aisle 1 None FIRST"
    assert await success_of(book, {**sent, "route": [], "note": "hi"}) == "Ana ECONOMY aisle 0 hi FIRST"


async def test_what_is_wrong_is_named_with_its_path() -> None:
    async def book(passenger: Passenger, cabin: Cabin, route: list[Point]) -> None: ...

    wrong = {"passenger": {"name": "Ana", "age": -1}, "cabin": "third", "route": [{"x": 1}, {"x": "far"}]}
    said = await failure_of(book, wrong)
    for path in ("passenger.age: ", "cabin: ", "route.1.x: "):
        assert path in said


async def test_defaults_are_used_and_are_not_shared_between_calls() -> None:
    async def collect(item: str = "none", into: list[str] = []) -> str:  # noqa: B006  the point
        into.append(item)
        return ",".join(into)

    async with talk_with(collect) as talk:
        for item in ("a", "b"):
            assert item == await talk.text(talk.leg("collect", {"item": item}))
        assert await talk.text(talk.ask("tools/call", name="collect")) == "none"


NAMES = ["json", "copy", "schema", "dict", "model_config", "model_fields", "validate", "_x", "__x", "model_x", "class_"]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_may_be_a_parameter(server: Server, name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"async def tool({name}: int, other: int = 2) -> str:\n    return str({name} * other)", namespace)
    tool = server.tool(namespace["tool"])
    assert {name, "other"} == set(schema_of(server)["properties"])
    assert await success_of(tool, {name: 21}) == "42"
    assert f"{name}: " in await failure_of(tool, {name: "many"})
    assert f"{name}: " in await failure_of(tool)


async def test_names_that_clash_do_not_hide_others(server: Server) -> None:
    @server.tool
    async def tool(json: str, arg_json: str, _x: str, arg__x: str) -> str:
        return json + arg_json + _x + arg__x

    assert list(schema_of(server)["properties"]) == ["json", "arg_json", "_x", "arg__x"]
    assert await success_of(tool, {"json": "a", "arg_json": "b", "_x": "c", "arg__x": "d"}) == "abcd"


@pytest.mark.parametrize("name", ["seat", "argument_0", "To", "ctx"])
async def test_an_unknown_argument_is_refused_by_name(server: Server, name: str) -> None:
    @server.tool
    async def book(ctx: Context, json: str = "", to: str = "") -> str:
        return type(ctx).__name__

    assert {"json", "to"} == set(schema_of(server)["properties"])
    assert await success_of(book) == "Context"
    assert f"{name}: Extra inputs" in await failure_of(book, {name: "x"})


def echo(a):  # type: ignore[no-untyped-def]
    return repr(a)


@pytest.mark.parametrize("value", ["x", 1, None, [True], {"b": 1.5}])
async def test_a_parameter_without_a_type_takes_any_json(server: Server, value: Any) -> None:
    server.tool(name="tool")(echo)
    assert schema_of(server)["properties"]["a"] == {}
    assert await success_of(echo, {"a": value}) == repr(value)


async def test_the_name_of_an_unknown_argument_is_cut() -> None:
    assert len(await failure_of(lambda: None, {"x" * 100_000: 1})) < 400


class Leg(BaseModel):
    stops: list[int]


async def test_wrong_arguments_are_named_by_member_and_each_container_once() -> None:
    async def tool(numbers: list[int], leg: Leg) -> None: ...

    wrong: Json = {"numbers": [{}] * 1_000, "leg": {"stops": [{}] * 1_000}}
    failure = await failure_of(tool, wrong)
    assert ("numbers" in failure, "leg.stops.0" in failure, failure.count(";")) == (True, True, 1)


async def test_a_flood_of_unknown_arguments_hides_no_argument_that_is_missing() -> None:
    async def tool(flight: str, seat: str) -> None: ...

    failure = await failure_of(tool, {**{str(number): {} for number in range(1_000)}, "flight": "TP3"})
    assert ("seat" in failure, "flight" in failure) == (True, False)
