"""`tool(...)`: what its steps do, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from naming import naming, unnamed
from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator
from talk import Json, Legacy, accept, play, talk_to
from typing_extensions import TypedDict

from trio_mcp import Context, Elicit, Server, tool
from trio_mcp.server import ToolBuilder
from trio_mcp.types import Icon, ToolAnnotations

SEAT = Elicit("seat", str)
HINTS = ToolAnnotations(destructive_hint=True)
ICON = Icon(src="https://example.com/icon.png")


class Person(BaseModel):
    """Someone to greet."""

    name: str
    age: Annotated[int, Field(ge=0, description="In years.")] = 1
    from_city: str | None = None


@dataclass
class PersonData:
    """Someone to greet."""

    name: str
    age: Annotated[int, Field(ge=0, description="In years.")] = 1
    from_city: str | None = None


class PersonDict(TypedDict):
    name: str


class Nothing(BaseModel):
    """A tool without arguments."""


class Node(BaseModel):
    nodes: list[Node] = []


class Range(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self) -> Range:
        if self.low > self.high:
            raise ValueError("low must not be over high")
        return self


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Greeting(BaseModel):
    text: str


async def greet(person: Person, ctx: Context) -> Greeting:
    """Greet someone."""
    return Greeting(text=f"Hello {person.name}, {person.age}")


async def decorated(
    name: str, ctx: Context, age: Annotated[int, Field(ge=0, description="In years.")] = 1, from_city: str | None = None
) -> Greeting:
    """Greet someone."""
    return Greeting(text=name)


def serving(*tools: Any) -> Server:
    server = Server("tester")
    for each in tools:
        server.add_tool(each)
    return server


async def listing(server: Server) -> list[bytes]:
    """Return each tool as bytes, as `tools/list` shows it."""
    async with talk_to(server) as talk:
        tools = (await talk.result(talk.ask("tools/list")))["tools"]
    return [json.dumps(each).encode() for each in tools]


async def text_of_call(built: Any, arguments: Json, *, failure: bool = False) -> str:
    async with talk_to(serving(built)) as talk:
        call = talk.leg(built.name, arguments)
        return await (talk.failure(call) if failure else talk.text(call))


# the same as by decorator


@pytest.mark.parametrize("model", [Person, PersonData])
async def test_a_built_tool_is_listed_like_a_decorated_one(model: Any) -> None:
    server = Server("tester")
    server.tool(
        name="hello",
        title="Hello",
        annotations=HINTS,
        requires={"sampling", "elicitation"},
        elicits=[SEAT],
        meta={"x/y": 1},
        icons=[ICON],
        timeout=3,
    )(decorated)
    start = tool("hello").title("Hello").annotations(HINTS).requires("elicitation", "sampling").elicits(SEAT)
    built = start.limits(timeout=3).options(meta={"x/y": 1}, icons=[ICON]).parameters(model).execute(greet)
    assert await listing(serving(built)) == await listing(server)


async def test_a_built_handoff_is_listed_like_a_decorated_one() -> None:
    async def before(person: Person, ctx: Context) -> int:
        """Greet someone."""
        return person.age

    async def decorated_before(
        name: str, age: Annotated[int, Field(ge=0, description="In years.")] = 1, from_city: str | None = None
    ) -> int:
        """Greet someone."""
        return age

    async def client(age: int, ctx: Context) -> str:
        return "Ann"

    async def after(age: int, name: str, ctx: Context) -> Greeting:
        return Greeting(text=name)

    server = Server("tester")
    server.handoff_tool(name="hello", elicits=[SEAT], client=client, after=after)(decorated_before)
    built = tool("hello").elicits(SEAT).parameters(Person).handoff(before=before, client=client, after=after)
    assert await listing(serving(built)) == await listing(server)


# arguments


@pytest.mark.parametrize("model", [Person, PersonData, PersonDict])
async def test_the_function_gets_an_instance_of_the_model(model: type[Any], era: type[Legacy]) -> None:
    got: list[object] = []

    async def run(params: Any, ctx: Context) -> str:
        got.append(params)
        return (await ctx.elicit("Sure?", bool)).action

    async with play(serving(tool("greet").parameters(model).execute(run)), era) as player:
        await player.call("greet", {"name": "Ann"})
        await player.question()
        await player.answer(accept(value=True))
        assert await player.text() == "accept"
    assert got == [model(name="Ann")]


@pytest.mark.parametrize("model", [Person, PersonData, PersonDict])
@pytest.mark.parametrize(
    ("arguments", "named"), [({}, "name"), ({"name": 1}, "name"), ({"name": "Ann", "nmae": "Ann"}, "nmae")]
)
async def test_wrong_arguments_are_an_error_result_that_names_them(
    model: type[Any], arguments: Json, named: str
) -> None:
    built = tool("greet").parameters(model).execute(greet)
    assert unnamed(await text_of_call(built, arguments, failure=True), "greet", named) == []


async def test_a_check_of_the_whole_model_is_made() -> None:
    async def run(params: Range, _ctx: Context) -> int:
        return params.high - params.low

    built = tool("span").parameters(Range).execute(run)
    assert unnamed(await text_of_call(built, {"low": 2, "high": 1}, failure=True), "low", "high") == []


async def test_a_model_may_hold_itself() -> None:
    async def run(params: Node, _ctx: Context) -> str:
        return f"{len(params.nodes[0].nodes)} below"

    built = tool("count").parameters(Node).execute(run)
    assert built.model.input_schema["type"] == "object"
    assert set(built.model.input_schema["properties"]) == {"nodes"}  # type: ignore[arg-type]
    assert await text_of_call(built, {"nodes": [{"nodes": [{}, {}]}]}) == "2 below"
    assert unnamed(await text_of_call(built, {"nodes": [{"nodes": 1}]}, failure=True), "nodes.0.nodes") == []


async def test_a_model_may_say_that_it_takes_unknown_arguments() -> None:
    async def run(params: Open, _ctx: Context) -> str:
        return str(params.model_extra)

    built = tool("open").parameters(Open).execute(run)
    assert await text_of_call(built, {"more": 1}) == "{'more': 1}"
    assert built.model.input_schema["additionalProperties"] is True


# steps


def test_every_step_returns_a_new_builder() -> None:
    start = tool("greet").description("Greets.")
    formal, plain = start.title("Formal").parameters(Person), start.parameters(Person)
    assert formal.execute(greet).model.title == "Formal"
    assert plain.execute(greet).model.title is None
    assert plain.title("Plain").execute(greet).model.title == "Plain"
    assert plain.execute(greet).model.description == "Greets."


STEPS: dict[str, Callable[[ToolBuilder[Any]], Any]] = {
    "title": lambda builder: builder.title("x"),
    "description": lambda builder: builder.description("x"),
    "parameters": lambda builder: builder.parameters(Person),
    "requires": lambda builder: builder.requires("sampling"),
    "timeout": lambda builder: builder.limits(timeout=3),
    "elicits": lambda builder: builder.elicits(SEAT),
    "annotations": lambda builder: builder.annotations(HINTS),
    "meta": lambda builder: builder.options(meta={}),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_is_taken_twice_is_refused_at_once(step: str) -> None:
    once = STEPS[step](tool("greet"))
    with pytest.raises(TypeError, match=naming("greet", step)):
        STEPS[step](once)


@pytest.mark.parametrize(
    ("finish", "named"),
    [
        (lambda builder: builder.execute(greet), [".parameters", "execute"]),
        (lambda builder: builder.handoff(before=greet, client=greet, after=greet), [".parameters", "handoff"]),
        (lambda builder: serving(builder.parameters(Person)), [".execute", ".handoff"]),
    ],
    ids=["execute", "handoff", "add_tool"],
)
def test_a_missing_step_is_refused_at_once_with_the_cure(
    finish: Callable[[ToolBuilder[Any]], object], named: list[str]
) -> None:
    with pytest.raises(TypeError, match=naming("greet", *named)):
        finish(tool("greet"))


class Wire:
    pass


@dataclass
class Wired:
    wire: Wire


@pytest.mark.parametrize(
    ("step", "kind", "named"),
    [
        (lambda: tool("no name"), ValueError, ["no name"]),
        (lambda: tool(greet), TypeError, ["tool('greet')"]),  # type: ignore[arg-type]
        (lambda: tool("x").title(3), TypeError, ["title"]),  # type: ignore[arg-type]
        (lambda: tool("x").description(None), TypeError, ["description"]),  # type: ignore[arg-type]
        (lambda: tool("x").elicits("seat"), TypeError, ["elicits"]),  # type: ignore[arg-type]
        (lambda: tool("x").limits(timeout=0), ValueError, ["timeout"]),
        (lambda: tool("x").limits(meta={}), TypeError, ["limits", "meta"]),  # type: ignore[call-arg]
        (lambda: tool("x").options(nmae="x"), TypeError, ["nmae"]),  # type: ignore[call-arg]
        (lambda: tool("x").options(name="y"), TypeError, ["name"]),
        (lambda: tool("x").options(input_schema={}), TypeError, ["parameters", "input_schema"]),
        (lambda: tool("x").parameters(Person(name="Ann")), TypeError, ["parameters", "pydantic", "dataclass"]),  # type: ignore[arg-type]
        (lambda: tool("x").parameters(str), TypeError, ["parameters", "str"]),
        (lambda: tool("x").parameters(RootModel[int]), TypeError, ["parameters", "object", "integer"]),
        (lambda: tool("x").parameters(Wired), TypeError, ["parameters", "Wired", "Wire"]),
        (lambda: tool("x").parameters(Nothing).execute(Wire), TypeError, ["Wire"]),  # type: ignore[arg-type]
        (lambda: tool("x").parameters(Nothing).execute(str.upper), TypeError, ["upper", "params", "ctx"]),  # type: ignore[arg-type]
        (lambda: tool("x").parameters(Nothing).handoff(before=greet, client=len, after=greet), TypeError, ["client"]),  # type: ignore[arg-type]
        (lambda: tool("x").requires("smapling").parameters(Nothing).execute(greet), ValueError, ["smapling"]),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_step_is_refused_with_the_name_of_what_is_wrong(
    step: Callable[[], object], kind: type[Exception], named: list[str]
) -> None:
    with pytest.raises(kind, match=naming(*named)):
        step()


# tools as values


async def test_a_registered_tool_can_be_added_to_another_server() -> None:
    first = Server("first")

    @first.tool(title="Hello")
    def hello(name: str) -> str:
        return f"Hello {name}"

    second = Server("second")
    added = second.add_tool(first.tools[0])
    assert second.tools == (added,)
    assert await listing(second) == await listing(first)
    first.remove_tool("hello")
    async with talk_to(second) as talk:
        assert await talk.text(talk.leg("hello", {"name": "Ann"})) == "Hello Ann"


def test_the_threads_of_a_tool_are_those_of_its_server() -> None:
    first, second = Server("first"), Server("second")
    shared = tool("where").parameters(Nothing).execute(lambda params, ctx: None)
    limiters = [server.add_tool(shared)._handler.threads for server in (first, second)]  # noqa: SLF001
    assert limiters == [first._threads, second._threads]  # noqa: SLF001


def test_a_tool_is_added_once_and_as_it_is() -> None:
    built = tool("greet").parameters(Person).execute(greet)
    server = serving(built)
    with pytest.raises(ValueError, match=naming("greet")):
        server.add_tool(built)
    with pytest.raises(TypeError, match=naming("greet", "title")):
        Server("other").add_tool(built, title="Greet")
