"""Annotations that Python itself evaluates: at once up to Python 3.13, and when they are first read from 3.14 on (PEP 649).

So this file must not import `annotations` from `__future__`, as nearly all others do. The tests marked `lazily` can only run, and
fail, on Python 3.14 and later: before that, the functions in them cannot be defined.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pytest
from naming import naming
from pydantic import BaseModel, Field
from talk import offering

from trio_mcp import Client, Context, Provide, Server
from trio_mcp.cli.targets.loading import load_server

if TYPE_CHECKING:
    from decimal import Decimal as Unknown

lazily = pytest.mark.skipif(sys.version_info < (3, 14), reason="before Python 3.14 such a function cannot be defined")


# local types and forward references


async def test_a_tool_takes_and_returns_models_that_are_local_to_a_function() -> None:
    class Trip(BaseModel):
        city: str
        nights: Annotated[int, Field(ge=1)]

    @dataclass
    class Price:
        euros: int

    def price(trip: Trip) -> Price:
        return Price(80 * trip.nights)

    server = offering(price)
    (made,) = server.tools
    assert made.model.input_schema["properties"]["trip"]["properties"]["nights"]["minimum"] == 1
    assert made.model.output_schema["properties"]["euros"]["type"] == "integer"
    async with Client.connect(server) as client:
        result = await client.call_tool("price", {"trip": {"city": "Oslo", "nights": 2}})
    assert result.structured_content == {"euros": 160}


@lazily
async def test_a_tool_takes_a_class_that_is_defined_between_the_function_and_its_registration() -> None:
    server = Server("forward")

    def price(trip: Trip) -> int:  # noqa: F821
        return 80 * trip.nights

    class Trip(BaseModel):
        nights: int

    server.add_tool(price)
    async with Client.connect(server) as client:
        assert await client.call_tool("price", {"trip": {"nights": 2}}, returns=int) == 160


@lazily
def test_a_name_that_a_tool_needs_and_that_is_not_defined_is_refused_and_named() -> None:
    server = Server("unknown")

    def book(city: str, price: list[Unknown]) -> None: ...

    with pytest.raises(TypeError, match=naming("book", "'price'", "list[Unknown]", "TYPE_CHECKING")):
        server.tool(book)

    def returning(city: str) -> Unknown: ...

    with pytest.raises(TypeError, match=naming("returning", "'return'", "'Unknown'", "TYPE_CHECKING")):
        server.tool(returning)


# names that only type checkers know, where they do not matter


def with_lifespan() -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[Unknown]:
        yield None

    Server("lifespan", lifespan=lifespan)


def with_middleware() -> None:
    async def middleware(call: Unknown, handler: Unknown) -> Unknown:
        return await handler(call)

    Server("middleware").middleware(middleware)


def with_provider() -> None:
    @asynccontextmanager
    async def database() -> AsyncIterator[Unknown]:
        yield None

    def rows(db: Annotated[object, Provide(database)]) -> int:
        return 1

    Server("provider").add_tool(rows)


def with_handoff() -> None:
    async def before(city: str) -> int:
        return 1

    async def client(number: Unknown, ctx: Context) -> str:
        return ""

    async def after(number: Unknown, answer: str, ctx: Context) -> str:
        return answer

    Server("handoff").handoff_tool(client=client, after=after)(before)


@lazily
@pytest.mark.parametrize("register", [with_lifespan, with_middleware, with_provider, with_handoff])
def test_a_name_that_only_type_checkers_know_does_not_matter_where_no_value_is_validated(
    register: Callable[[], None],
) -> None:
    register()


@lazily
def test_a_factory_may_be_annotated_with_a_name_that_only_type_checkers_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "lazy_app.py"
    file.write_text("import trio_mcp\ndef make(name: Unknown = 'made') -> OtherServer: return trio_mcp.Server(name)")
    assert load_server(f"{file}:make").identity.name == "made"
    file.write_text(file.read_text() + "\n\nserver = None")
    with pytest.raises(Exception, match=naming("lazy_app.py:make")):
        load_server(str(file))
