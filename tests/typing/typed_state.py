"""User code with lifespans, state, providers and middleware, as strict type checkers must accept it. It is not run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, assert_type

from trio_mcp import (
    CallHandler,
    CallMiddleware,
    CallRequest,
    CallResult,
    Context,
    HttpRequest,
    HttpResponse,
    Provide,
    Server,
)
from trio_mcp.session import MessageFacts
from trio_mcp.types import CallToolResult, GetPromptResult, ReadResourceResult


class Database:
    name: str = ""


class SpecialDatabase(Database): ...


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[SpecialDatabase]:
    yield SpecialDatabase()


class Typed:
    """A lifespan may be a method."""

    @asynccontextmanager
    async def lifespan(self, server: Server) -> AsyncIterator[Database]:
        yield Database()


server = Server("typed", lifespan=lifespan)
Server("typed", lifespan=Typed().lifespan)


@server.tool
async def typed(ctx: Context[Database]) -> str:
    assert_type(ctx.state, Database)
    await needs_any_context(ctx)
    await ctx.branch(needs_any_context)
    await ctx.branch(needs_database)
    results = await ctx.branch_all(needs_database, needs_any_context)
    assert_type(results, tuple[str, int])
    async with ctx.branches() as group:
        handle = group.start(needs_database)
        group.start(needs_any_context)
    return handle.value


@server.tool
async def untyped(ctx: Context) -> None:
    """What was written before contexts had a state."""
    assert_type(ctx.state, object)
    assert_type(await ctx.branch(needs_any_context), int)


async def needs_any_context(ctx: Context) -> int:
    return 1


async def needs_database(ctx: Context[Database]) -> str:
    return ctx.state.name


def covariant(ctx: Context[SpecialDatabase]) -> Context[Database]:
    return ctx


async def coroutine(ctx: Context[Database]) -> int:
    return 1


@asynccontextmanager
async def manager(number: Annotated[int, Provide(coroutine)]) -> AsyncIterator[str]:
    yield str(number)


@contextmanager
def plain_manager() -> Iterator[bytes]:
    yield b""


@server.prompt
async def provided(
    subject: str, text: Annotated[str, Provide(manager)], data: Annotated[bytes, Provide(plain_manager)]
) -> str:
    assert_type(text, str)
    assert_type(data, bytes)
    return subject + text


@server.middleware
async def middleware(call: CallRequest, handler: CallHandler) -> CallResult:
    result = await handler()
    assert_type(result, CallToolResult | GetPromptResult | ReadResourceResult)
    assert_type(call.principal, str | None)
    return result


class Limit:
    async def __call__(self, call: CallRequest, handler: CallHandler) -> CallResult:
        return await handler()


layers: list[CallMiddleware] = [middleware, Limit()]
Server("layered", middleware=layers)


@server.message_middleware
def watch(message: MessageFacts) -> None:
    assert_type(message.peer.principal, str | None)


@server.tool(limit=2, queue=10)
def limited() -> None: ...


@server.route("/count")
async def count(request: HttpRequest[Database]) -> HttpResponse:
    assert_type(request.state, Database)
    return HttpResponse(request.state.name)


@server.route("/version", public=True)
async def version(request: HttpRequest) -> HttpResponse:
    assert_type(request.state, object)
    return HttpResponse("1.0")
