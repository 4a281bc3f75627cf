"""What a mounted server has of its application: context variables of a middleware, dependencies, and what is in `app.state`.

And a client that an application opens in its lifespan.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import httpx2
import pytest
import uvicorn
from fastapi import Depends, FastAPI, Request, Response

from trio_mcp import Client, Context, HttpOptions, Provide, Server, accept
from trio_mcp_transports.http import asgi_app

BOUND = 60.0
USER: ContextVar[str] = ContextVar("USER", default="of no request")


async def get_session() -> AsyncIterator[str]:
    """A dependency of FastAPI, as it is in an application."""
    await asyncio.sleep(0)
    yield f"session of {USER.get()}"


Session = Annotated[str, Provide(asynccontextmanager(get_session))]


async def authenticate(headers: Mapping[str, str]) -> str | None:
    await asyncio.sleep(0)
    return USER.get()


def make_app(*, authenticated: bool) -> FastAPI:
    options = HttpOptions(authenticate=authenticate) if authenticated else HttpOptions()
    server = Server("shop", asyncio=True, http=options)
    app = FastAPI()
    app.state.pool = "pool"

    @server.tool
    async def on_asyncio(ctx: Context) -> list[str | None]:
        before = USER.get()
        await ctx.elicit.strict("Go on?", bool)
        return [before, USER.get(), ctx.request.principal, app.state.pool]

    @server.tool(asyncio=False)
    async def on_trio(ctx: Context) -> list[str | None]:
        return [USER.get(), ctx.request.principal]

    @server.tool
    def in_thread() -> str:
        return USER.get()

    @server.tool
    async def provided(session: Session) -> str:
        return session

    @app.get("/")
    async def index(session: Annotated[str, Depends(get_session)]) -> str:
        return session

    @app.middleware("http")
    async def log_in(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        USER.set(request.headers["x-user"])
        return await call_next(request)

    app.mount("/tools", asgi_app(server))
    return app


@asynccontextmanager
async def uvicorn_serving(app: FastAPI) -> AsyncIterator[str]:
    """Serve in this loop, in which the clients are, too."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
        task = asyncio.create_task(host.serve([listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/tools/mcp"
        host.should_exit = True
        await task


@pytest.mark.parametrize("authenticated", [True, False])
def test_tools_see_the_context_variables_of_a_middleware_and_use_dependencies(mode: str, authenticated: bool) -> None:
    async def call(url: str, user: str) -> None:
        options: dict[str, Any] = {"headers": {"x-user": user}, "on_elicit": lambda _: accept(value=True)}
        principal = user if authenticated else None
        async with Client.connect(url, mode=mode, **options) as client:
            for _ in range(2):
                assert (await client.call_tool("on_asyncio")).data == [user, user, principal, "pool"]
                assert (await client.call_tool("on_trio")).data == [user, principal]
                assert (await client.call_tool("in_thread")).text == user
                assert (await client.call_tool("provided")).text == f"session of {user}"

    async def main() -> None:
        async with uvicorn_serving(make_app(authenticated=authenticated)) as url, asyncio.TaskGroup() as group:
            for user in ("ann", "bob"):
                group.create_task(call(url, user))

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_routes_share_a_client_that_the_lifespan_has_opened() -> None:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with uvicorn_serving(make_app(authenticated=True)) as url:
            async with Client.connect(url, headers={"x-user": "app"}) as app.state.client:
                yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/whoami")
    async def whoami() -> str:
        return str((await app.state.client.call_tool("in_thread")).text)

    async def main() -> list[str]:
        transport = httpx2.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://app") as http,
        ):
            async with asyncio.TaskGroup() as group:
                replies = [group.create_task(http.get("/whoami")) for _ in range(5)]
        return [reply.result().json() for reply in replies]

    assert asyncio.run(asyncio.wait_for(main(), BOUND)) == ["app"] * 5
