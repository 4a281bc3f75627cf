"""What can be registered beside plain functions, and mistakes in signatures: errors name function, parameter and cure."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from naming import naming
from one_tool import failure_of, success_of, talk_with
from pydantic import AliasChoices, BaseModel, Field

from trio_mcp import Context, Elicit, Server, tool
from trio_mcp.types import ToolAnnotations


class Leg(BaseModel):
    start: str = "LIS"


class OldDict(typing.TypedDict):
    name: str


def two(first: Context, second: Context) -> None: ...


def unknown(a: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821


def unknown_result(a: int) -> Nowhere: ...  # type: ignore[name-defined] # noqa: F821


def clash(a: Annotated[int, Field(alias="b")], b: int) -> None: ...


GONE: Any = {"$ref": "#/$defs/Gone"}


class Lost(BaseModel):
    step: int = Field(1, json_schema_extra=GONE)


def unknown_reference_in_a_model(b: int, a: Lost) -> None: ...


def unknown_reference_in_the_result() -> Lost: ...


def generator() -> Any:
    yield 1


async def async_generator() -> Any:
    yield 1


class Tools:
    """A class, and what JSON cannot represent."""

    async def run(self, text: str) -> str:
        return text


def optional_context(ctx: Context | str) -> None: ...


def tools() -> Tools:
    return Tools()


def annotated(annotation: object, *default: object) -> Callable[..., Any]:
    """A function with one parameter of this annotation, and with this default."""

    def wrong(a: Any) -> None: ...

    wrong.__annotations__["a"] = annotation
    wrong.__defaults__ = default or None
    return wrong


REFERENCE = Field(json_schema_extra=GONE)
IN_A_DEFAULT: Any = Field(1, json_schema_extra=GONE)
ALIASES = Field(validation_alias=AliasChoices("b", "c"))
ONE_PARAMETER: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "text for a number": (annotated(int, "x"), ["'a'", "'x'", "integer"]),
    "text that could be a number": (annotated(int, "3"), ["'a'", "'3'", "int"]),
    "text for a path": (annotated(Path, "x"), ["'a'", "'x'", "Path"]),
    "a dict for a model": (annotated(Leg, {"start": "x"}), ["'a'", "Leg"]),
    "none for a number": (annotated(int, None), ["`a: int | None = None`"]),
    "out of range": (annotated(Annotated[int, Field(ge=1)], 0), ["'a'", "0", "greater"]),
    "in a field": (annotated(int, Field("x")), ["'a'", "'x'"]),
    "choices": (annotated(Annotated[int, ALIASES]), ["'a'", "Field(alias="]),
    "an unknown reference": (annotated(Annotated[int, REFERENCE]), ["'a'", "'#/$defs/Gone'", "in its place"]),
    "an unknown reference in a default": (annotated(int, IN_A_DEFAULT), ["'a'", "'#/$defs/Gone'"]),
    "one below": (annotated(Annotated[int, Field(json_schema_extra={"not": GONE})]), ["'a'", "'#/$defs/Gone'"]),
    "no reference": (annotated(Annotated[int, Field(json_schema_extra={"$ref": 3})]), ["'a'", "$ref 3"]),
    "a number": (annotated(5), ["'a'", "5", "a type"]),
    "a list": (annotated([int]), ["'a'", "list[str]"]),
    "a function": (annotated(any), ["'a'", "typing.Any"]),
}
"""A wrong parameter, and what the error names beside the function."""


@pytest.mark.parametrize(("function", "names"), ONE_PARAMETER.values(), ids=ONE_PARAMETER)
def test_a_mistake_in_a_parameter_is_refused_with_its_cure(function: Any, names: list[str]) -> None:
    server = Server("mistakes")
    with pytest.raises(TypeError, match=naming("wrong", *names)):
        server.tool(name="tool")(function)
    assert server.tools == ()


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (two, ["two", "'first'", "'second'", "Context"]),
        (unknown, ["unknown", "'a'", "'Nowhere'", "top level"]),
        (unknown_result, ["unknown_result", "'return'", "'Nowhere'"]),
        (clash, ["clash", "'a'", "'b'"]),
        (unknown_reference_in_a_model, ["unknown_reference_in_a_model", "'a'", "'#/$defs/Gone'"]),
        (unknown_reference_in_the_result, ["unknown_reference_in_the_result", "returns", "'#/$defs/Gone'"]),
        (Leg, ["Leg", "class"]),
        (generator, ["generator"]),
        (async_generator, ["generator"]),
        (Tools.run, ["self"]),
        (lambda *args: None, ["parameter", "'args'"]),
        (lambda **kwargs: None, ["parameter", "'kwargs'"]),
        (lambda a, /: None, ["parameter", "'a'"]),  # JSON has no names for these three
        (lambda ctx: None, ["ctx: Context"]),
        (optional_context, ["optional_context", "'ctx'", "`ctx: Context`"]),
        (tools, ["tools", "Tools"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_mistake_in_a_signature_is_refused_with_its_cure(function: Any, names: list[str]) -> None:
    server = Server("mistakes")
    with pytest.raises(TypeError, match=naming(*names)):
        server.tool(name="tool")(function)
    assert server.tools == ()


def test_a_model_that_is_local_to_a_function_is_named() -> None:
    class Local(BaseModel): ...

    def book(local: Local) -> None: ...

    with pytest.raises(TypeError, match=naming("book", "'local'", "'Local'", "local to a function")):
        Server("mistakes").add_tool(book)


def test_an_unknown_reference_of_a_model_of_arguments_or_of_a_form_is_refused() -> None:
    with pytest.raises(TypeError, match=naming("parameters(Lost)", "'#/$defs/Gone'")):
        tool("run").parameters(Lost)
    with pytest.raises(TypeError, match=naming("Lost", "'#/$defs/Gone'")):
        _ = Elicit("lost", Lost).requested_schema


@pytest.mark.parametrize("annotation", [OldDict, list[OldDict]], ids=str)
def test_a_typed_dict_that_pydantic_cannot_read_is_refused_with_the_reason(annotation: object) -> None:
    if sys.version_info < (3, 12):
        with pytest.raises(TypeError, match=naming("wrong", "'a'", "OldDict", "typing_extensions")):
            Server("mistakes").add_tool(annotated(annotation))
        returning = annotated(int)
        returning.__annotations__["return"] = annotation
        with pytest.raises(TypeError, match=naming("wrong", "OldDict", "typing_extensions")):
            Server("mistakes").add_tool(returning)
    else:
        Server("mistakes").add_tool(annotated(annotation))


@pytest.mark.parametrize(
    ("arguments", "named"), [({"name": 3}, ["name", "3"]), ({"name": "x", "version": 3}, ["version", "3"])]
)
def test_a_server_has_a_name_and_a_version_as_text(arguments: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(TypeError, match=naming(*named)):
        Server(**arguments)


# what is not a plain function


def travel(start: str, end: str, stops: int = 0) -> str:
    """Travel."""
    return f"{start} {end} {stops}"


async def travel_async(start: str, ctx: Context) -> str:
    return f"{start} {type(ctx).__name__}"


class Traveller:
    """Travels."""

    async def __call__(self, end: str) -> str:
        return f"to {end}"


async def test_a_partial_takes_the_arguments_that_it_has_not_bound() -> None:
    first = Server("partials").add_tool(partial(travel, "LIS"), name="first")
    assert (list(first.model.input_schema["properties"]), first.model.description) == (["end", "stops"], "Travel.")
    assert await success_of(partial(travel, "LIS"), {"end": "OPO", "stops": 2}) == "LIS OPO 2"
    bound = partial(travel, start="LIS")
    assert await success_of(bound, {"end": "OPO"}) == "LIS OPO 0"
    # What its author has bound is no caller's to choose.
    assert "start: Extra inputs" in await failure_of(bound, {"start": "FAO", "end": "OPO"})
    assert await success_of(partial(travel_async, "LIS")) == "LIS Context"


async def test_an_object_that_can_be_called_is_a_tool() -> None:
    async with talk_with(Traveller(), name="go") as talk:
        (tool,) = (await talk.result(talk.ask("tools/list")))["tools"]
        assert tool["description"] == "Travels."
        assert await talk.text(talk.leg("go", {"end": "OPO"})) == "to OPO"


@pytest.mark.parametrize("function", [partial(travel, "LIS"), Traveller()], ids=["partial", "object"])
def test_what_has_no_name_needs_one(function: Any) -> None:
    with pytest.raises(ValueError, match=naming("name=")):
        Server("nameless").add_tool(function)


# aliases and hints


async def test_an_alias_is_the_name_of_the_argument() -> None:
    async def go(start: Annotated[str, Field(alias="from")], stops: int = Field(2, alias="via-stops", ge=1)) -> str:
        return f"{start} {stops}"

    tool = Server("aliases").add_tool(go)
    assert list(tool.model.input_schema["properties"]) == ["from", "via-stops"]
    assert tool.model.input_schema["required"] == ["from"]
    assert await success_of(go, {"from": "LIS"}) == "LIS 2"
    assert await success_of(go, {"from": "LIS", "via-stops": 3}) == "LIS 3"
    assert "start: Extra inputs" in await failure_of(go, {"from": "LIS", "start": "x"})


@pytest.mark.parametrize("hints", [{"readOnlyHint": True}, {"read_only_hint": True}], ids=["wire", "python"])
def test_hints_may_be_a_dict(hints: Any) -> None:
    tool = Server("hints").add_tool(travel, annotations=hints)
    assert tool.model.annotations == ToolAnnotations(read_only_hint=True)


@pytest.mark.parametrize(
    ("hints", "named"),
    [
        ({"readonlyHint": True}, ["readonlyHint", "'readOnlyHint'"]),
        ({"readOnlyHint": "yes"}, ["readOnlyHint", "boolean"]),
        (["readOnlyHint"], ["annotations", "readOnlyHint"]),
    ],
)
def test_hints_that_no_client_would_read_are_refused(hints: Any, named: list[str]) -> None:
    with pytest.raises(TypeError, match=naming(*named)):
        Server("hints").add_tool(travel, annotations=hints)
