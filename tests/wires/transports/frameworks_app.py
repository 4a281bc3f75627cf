"""A server mounted below a prefix in the application of another framework: `hypercorn -k trio frameworks_app:NAME`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from fastapi import FastAPI
from hypercorn.middleware.dispatcher import TrioDispatcherMiddleware
from quart_trio import QuartTrio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from trio_mcp import Context, HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp_transports.http import asgi_app

PREFIX = "/tools"


async def by_name(headers: Mapping[str, str]) -> str | None:
    return headers.get("x-user", "anybody")


@asynccontextmanager
async def lifespan(_: Server) -> AsyncIterator[str]:
    await trio.lowlevel.checkpoint()
    yield "opened"


server = Server("shop", lifespan=lifespan, http=HttpOptions(authenticate=by_name, sse_path="/sse"))


@server.tool
async def whoami(ctx: Context[str]) -> str:
    return f"{ctx.request.principal}, {ctx.state}"


@server.route("/where")
async def where(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.root_path} {request.path}")


async def home(_: Request) -> PlainTextResponse:
    return PlainTextResponse("home")


mcp = asgi_app(server)

in_starlette = Starlette(routes=[Route("/", home), Mount(PREFIX, mcp)], lifespan=mcp.lifespan)

late = asgi_app(server)
in_starlette_without_lifespan = Starlette(routes=[Route("/", home), Mount(PREFIX, late)])

for_fastapi = asgi_app(server)
in_fastapi = FastAPI(lifespan=for_fastapi.lifespan)


@in_fastapi.get("/")
async def fastapi_home() -> str:
    await trio.lowlevel.checkpoint()
    return "home"


in_fastapi.mount(PREFIX, for_fastapi)

quart = QuartTrio(__name__)


@quart.route("/")
async def quart_home() -> str:
    await trio.lowlevel.checkpoint()
    return "home"


in_quart: Any = TrioDispatcherMiddleware({PREFIX: asgi_app(server), "": quart})
