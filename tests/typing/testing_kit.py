"""Tests of a user that type checkers must accept; nothing runs them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import assert_type

from pydantic import BaseModel

from trio_mcp import Client, Context, Elicit, ElicitRouter, PeerError, Server, accept, decline
from trio_mcp.testing import Delay, Disconnect, MockClient, Never, Question, SecondWorker, make_context
from trio_mcp.types import (
    CallToolResult,
    ClientCapabilities,
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    Model,
)

server = Server("types")


class Seat(BaseModel):
    flight: str


SEAT = Elicit("seat", Seat)


@server.tool
async def book(destination: str, ctx: Context) -> str:
    return destination


@server.tool
def add(a: int, b: int) -> int:
    return a + b


async def test_calls() -> None:
    client = MockClient(
        elicits=[{"flight": "TP1"}, Seat(flight="TP1"), "x", True, 3, ["a"], accept(flight="TP1"), decline(), Never()],
        urls=[accept()],
        samples=["a", Delay(5, "b"), PeerError(-1, "no"), Disconnect(), SecondWorker("c"), lambda asked: "d"],
        roots=[Path()],
        era="legacy",
        capabilities=ClientCapabilities(),
        principal="ann",
    )
    assert_type(await client.call(book, destination="Lisbon"), CallToolResult)
    assert_type(await client.call(add, a=1, b=2), CallToolResult)
    await client.call((server, "book"), destination="Lisbon")
    await client.call(server.tools[0], destination="Lisbon")
    assert_type(client.questions, list[Question])
    assert_type(client.questions[0].params, Model)
    assert_type(client.result, CallToolResult | None)
    with MockClient(elicits=[True]) as other:
        assert_type(other, MockClient)


async def answer_form(asked: ElicitRequestFormParams) -> dict[str, str]:
    return dict.fromkeys(asked.requested_schema.properties, "x")


def answer_page(asked: ElicitRequestURLParams) -> ElicitResult:
    return accept() if asked.url else decline()


def answer_sample(asked: CreateMessageRequestParams) -> str:
    return str(asked.max_tokens)


async def test_functions() -> None:
    MockClient(elicits=answer_form, urls=answer_page, samples=answer_sample)
    MockClient(elicits=lambda asked: asked.message, samples=lambda asked: str(asked.max_tokens))
    MockClient(elicits=[answer_form, lambda asked: True])
    router = ElicitRouter(default=lambda asked: accept(value=asked.message))
    MockClient(elicits=router)

    @router.on("book", "seat")
    def choose(asked: ElicitRequestFormParams) -> ElicitResult:
        return accept(flight=asked.message)

    router.on(server.tools[0], SEAT)(choose)
    async with Client.connect(server, on_elicit=router) as client:
        router.on((await client.list_tools())[0], SEAT)(choose)
        router.check(await client.list_tools())
        router.check([*await client.list_tools(), *await client.list_prompts()])
        assert_type(router.missing(await client.list_resources()), list[tuple[str, str]])


async def test_contexts() -> None:
    manager = make_context(elicits=[True], samples=["x"], declares=[SEAT])
    assert_type(manager, AbstractAsyncContextManager[Context])
    async with manager as ctx:
        assert_type(ctx, Context)
    async with MockClient(era="modern").context(declares=[SEAT]) as ctx:
        choice = await ctx.elicit("Which?", SEAT)
        if choice.action == "accept":
            assert_type(choice.content, Seat)


class Database:
    name: str = ""


async def needs_database(ctx: Context[Database]) -> str:
    return ctx.state.name


async def test_contexts_with_a_state() -> None:
    async with make_context(state=Database(), elicits=[True]) as ctx:
        assert_type(ctx.state, Database)
        await needs_database(ctx)
    async with make_context(state=Database(), server=server) as ctx:
        await needs_database(ctx)
    async with make_context(server=server) as plain:
        assert_type(plain.state, object)
    async with MockClient().context(state=Database()) as ctx:
        await needs_database(ctx)
