"""One server for each library of asyncio: its pool is opened by the lifespan, and every kind of function awaits it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import aiohttp
import asyncpg
from aiohttp import web
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from trio_mcp import Context, Provide, Server, ToolError

PRICES = {"lamp": 3, "table": 5}


class Library(Protocol):
    """What a server does with a library."""

    def open(self, server: Server) -> AbstractAsyncContextManager[Any]:
        """Open a pool with one connection, in which the prices are; the lifespan."""

    def session(self, ctx: Context[Any]) -> AbstractAsyncContextManager[Any]:
        """Take the connection, in a transaction; for `Provide`."""

    async def price(self, session: Any, item: str) -> int:
        """Read a price."""

    async def raise_prices(self, session: Any) -> None:
        """Write."""

    async def wait(self, session: Any) -> None:
        """Wait for an answer that does not come."""


class Asyncpg:
    """asyncpg, with a server of PostgreSQL."""

    def __init__(self, url: str) -> None:
        self._url = url

    @asynccontextmanager
    async def open(self, server: Server) -> AsyncIterator[asyncpg.Pool]:
        async with asyncpg.create_pool(self._url, min_size=1, max_size=1) as pool:
            await pool.execute("drop table if exists items; create table items (name text primary key, price int)")
            await pool.executemany("insert into items values ($1, $2)", list(PRICES.items()))
            yield pool

    @asynccontextmanager
    async def session(self, ctx: Context[asyncpg.Pool]) -> AsyncIterator[asyncpg.Connection]:
        async with ctx.state.acquire() as connection, connection.transaction():
            yield connection

    async def price(self, session: asyncpg.Connection, item: str) -> int:
        return await session.fetchval("select price from items where name = $1", item)

    async def raise_prices(self, session: asyncpg.Connection) -> None:
        await session.execute("update items set price = price + 1")

    async def wait(self, session: asyncpg.Connection) -> None:
        await session.execute("select pg_sleep(60)")


class SqlAlchemy:
    """SQLAlchemy's async engine on aiosqlite, with a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def open(self, server: Server) -> AsyncIterator[AsyncEngine]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{self._folder / 'shop.db'}", pool_size=1, max_overflow=0)
        async with engine.begin() as connection:
            await connection.execute(text("create table items (name text primary key, price int)"))
            rows = [{"name": name, "price": price} for name, price in PRICES.items()]
            await connection.execute(text("insert into items values (:name, :price)"), rows)
        yield engine
        await engine.dispose()

    @asynccontextmanager
    async def session(self, ctx: Context[AsyncEngine]) -> AsyncIterator[AsyncSession]:
        async with AsyncSession(ctx.state) as session, session.begin():
            yield session

    async def price(self, session: AsyncSession, item: str) -> int:
        return (await session.execute(text("select price from items where name = :name"), {"name": item})).scalar_one()

    async def raise_prices(self, session: AsyncSession) -> None:
        await session.execute(text("update items set price = price + 1"))

    async def wait(self, session: AsyncSession) -> None:
        await asyncio.sleep(60)


class Aiohttp:
    """aiohttp's client, with a server of aiohttp in the same loop. It has no transactions: nothing is ever written."""

    def __init__(self, folder: Path) -> None:
        pass

    @asynccontextmanager
    async def open(self, server: Server) -> AsyncIterator[aiohttp.ClientSession]:
        app = web.Application()
        app.router.add_get("/{item}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        one = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(f"http://{host}:{port}", connector=one) as session:
            yield session
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        item = request.match_info["item"]
        if item == "wait":
            await asyncio.sleep(60)
        return web.json_response({"price": PRICES[item]})

    @asynccontextmanager
    async def session(self, ctx: Context[aiohttp.ClientSession]) -> AsyncIterator[aiohttp.ClientSession]:
        await asyncio.sleep(0)
        yield ctx.state

    async def price(self, session: aiohttp.ClientSession, item: str) -> int:
        async with session.get(f"/{item}") as response:
            return int((await response.json())["price"])

    async def raise_prices(self, session: aiohttp.ClientSession) -> None:
        await self.price(session, "table")

    async def wait(self, session: aiohttp.ClientSession) -> None:
        await self.price(session, "wait")


def shop(library: Library, note: Callable[[str], None]) -> Server:
    """Return a server all of whose functions await a library.

    Args:
        note: called with what a tool has done.
    """
    server = Server("shop", asyncio=True, lifespan=library.open)
    Session = Annotated[Any, Provide(library.session)]  # noqa: N806  an alias of a type

    async def read(ctx: Context[Any], item: str) -> int:
        async with library.session(ctx) as session:
            return await library.price(session, item)

    @server.tool
    async def price(item: str, ctx: Context[Any]) -> int:
        return await read(ctx, item)

    @server.tool
    async def provided(item: str, session: Session) -> int:
        return await library.price(session, item)

    @server.tool
    async def prices(items: list[str], ctx: Context[Any]) -> list[int]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            tasks = [group.create_task(read(ctx, item)) for item in items]
        return [task.result() for task in tasks]

    @server.tool
    async def buy(item: str, ctx: Context[Any]) -> int:
        """Ask, with a step in front, which is not run again in the round that has the answer."""
        price = await ctx.step("price", read, ctx, item)
        note("step")
        return price * await ctx.elicit.strict("How many?", int)

    @server.tool
    async def fail(session: Session) -> None:
        await library.raise_prices(session)
        raise ToolError("rolled back")

    @server.tool
    async def wait(session: Session) -> None:
        await library.raise_prices(session)
        note("waiting")
        await library.wait(session)

    @server.resource("price://{item}")
    async def price_of(item: str, ctx: Context[Any]) -> str:
        return str(await read(ctx, item))

    @server.prompt
    async def offer(item: str, ctx: Context[Any]) -> str:
        return f"The {item} costs {await read(ctx, item)}."

    @server.complete(prompt="offer", argument="item")
    async def items(value: str, ctx: Context[Any]) -> list[str]:
        return [item for item in PRICES if item.startswith(value) and await read(ctx, item)]

    return server
