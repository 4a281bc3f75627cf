"""An offer with something in it that JSON cannot hold: it is described without it, or refused by name, and hides no other."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import pytest
from naming import naming
from pydantic import BaseModel, Field
from talk import offering

from trio_mcp import Client, Context, Server, accept
from trio_mcp.types import Icon

HALF = "Cut \ud83d"


class Range(BaseModel):
    highest: float = math.inf


@dataclass
class Nested:
    inner: Range
    lowest: float = -math.inf


class Limit(Enum):
    NONE = math.inf
    ONE = 1.0


def by_default(value: float = math.inf) -> str:
    return f"{value}"


def by_list(value: list[float] = [math.nan]) -> str:  # noqa: B006
    return f"{value[0]}"


def by_text(value: str = HALF) -> str:
    return f"{value == HALF}"


def by_model(value: Nested | None = None) -> str:
    return f"{value}"


def by_enum(value: Limit = Limit.ONE) -> str:
    return f"{value.value}"


def by_return() -> Range:
    return Range(highest=1)


LEFT_OUT: list[tuple[Callable[..., object], str]] = [
    (by_default, "inf"),
    (by_list, "nan"),
    (by_text, "True"),
    (by_model, "None"),
]


@pytest.mark.parametrize(("function", "text"), LEFT_OUT, ids=lambda each: getattr(each, "__name__", ""))
async def test_a_default_that_json_cannot_hold_is_left_out_of_the_schema_and_used(
    function: Callable[..., object], text: str
) -> None:
    server = Server("defaults")
    server.tool(lambda: "fine", name="fine")
    server.tool(function)
    async with Client.connect(server) as client:
        _, tool = await client.list_tools()
        assert "default" not in tool.input_schema["properties"]["value"] or function is by_model
        assert (await client.call_tool(tool.name)).text == text


async def test_such_a_default_in_a_returned_model_is_left_out_of_its_schema() -> None:
    server = Server("defaults")
    server.tool(by_return)
    async with Client.connect(server) as client:
        (tool,) = await client.list_tools()
        assert "default" not in tool.output_schema["properties"]["highest"]
        assert (await client.call_tool("by_return")).data == {"highest": 1}


async def test_such_a_default_in_a_form_is_left_out_of_it() -> None:
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("?", Range)
        return f"{answer.action} {'default' in str(answer)}"

    async with Client.connect(offering(ask), on_elicit=lambda _: accept(highest=1.0)) as client:
        assert (await client.call_tool("ask")).text.startswith("accept")


def extra(value: Annotated[int, Field(json_schema_extra={"x": math.nan})] = 1) -> str:
    return f"{value}"


def described(value: Annotated[int, Field(description=HALF)] = 1) -> str:
    return f"{value}"


def plain() -> str:
    return "plain"


REFUSED: list[tuple[Callable[[Server], object], tuple[str, ...]]] = [
    (lambda server: server.tool(extra), ("tool", "extra", "value", "nan")),
    (lambda server: server.tool(described), ("tool", "described", "value", "surrogate")),
    (lambda server: server.tool(by_enum), ("by_enum", "enum[0]", "inf")),
    (lambda server: server.tool(plain, title=HALF), ("tool", "plain", "title", "surrogate")),
    (lambda server: server.tool(plain, meta={"a": {"b": math.inf}}), ("tool", "plain", "a.b", "inf")),
    (lambda server: server.tool(plain, icons=[Icon(src=HALF)]), ("tool", "plain", "icons[0].src")),
    (lambda server: server.prompt(plain, description=HALF), ("prompt", "plain", "description")),
    (lambda server: server.resource("a:b", meta={"a": math.nan})(plain), ("resource", "a:b", "nan")),
    (lambda server: server.resource("a:{b}", title=HALF)(lambda b: b), ("template", "a:{b}", "title")),
]


@pytest.mark.parametrize(("register", "names"), REFUSED)
def test_an_offer_that_cannot_be_listed_is_refused_with_its_name_and_the_member(
    register: Callable[[Server], object], names: tuple[str, ...]
) -> None:
    server = Server("refusing")
    with pytest.raises(ValueError, match=naming(*names)):
        register(server)


@pytest.mark.parametrize("options", [{"instructions": HALF}, {"title": HALF}, {"icons": [Icon(src=HALF)]}])
def test_a_server_that_no_client_could_open_is_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        Server("server", **options)


async def test_an_offer_that_was_changed_since_hides_no_other(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    notes: list[float] = []
    server = Server("changing", page_size=2)
    for number in range(5):
        server.tool(lambda: "fine", name=f"fine{number}")
    server.tool(lambda: "never", name="changed", meta={"notes": notes})
    notes.append(math.nan)
    async with Client.connect(server, mode=mode) as client:
        assert [tool.name for tool in await client.list_tools()] == [f"fine{number}" for number in range(5)]
    assert "changed" in caplog.text
