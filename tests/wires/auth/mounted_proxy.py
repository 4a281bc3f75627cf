"""A server behind an OAuth proxy at /tools in FastAPI, under uvicorn: `mounted_proxy.py ISSUER PORT`. It writes its URL."""

from __future__ import annotations

import asyncio
import sys

import uvicorn
from fastapi import FastAPI

from trio_mcp import Context, HttpOptions, Server
from trio_mcp.auth import OAuthProvider, OAuthProxy, ProtectedResource
from trio_mcp.types import JsonObject
from trio_mcp_transports.http import asgi_app

issuer, port = sys.argv[1], int(sys.argv[2])
url = f"http://127.0.0.1:{port}/tools/mcp"

PROVIDER = OAuthProvider(
    "Example",
    authorize_url=f"{issuer}/auth",
    token_url=f"{issuer}/token",
    user_url=f"{issuer}/me",
    scopes=["openid", "offline_access"],
    parameters={"prompt": "consent"},
)


async def identity(user: JsonObject, token: str) -> JsonObject | None:
    """Return claims, after something that only asyncio can do."""
    await asyncio.sleep(0)
    return {"name": user["sub"]}


proxy = OAuthProxy(PROVIDER, client_id="proxy", client_secret="the-secret-of-the-proxy", identity=identity)
resource = ProtectedResource(url, proxy, required=["notes:read"])
server = Server("notes", asyncio=True, http=HttpOptions(authenticate=resource))


@server.tool
async def read(ctx: Context) -> str:
    """Read a note."""
    await asyncio.sleep(0)
    assert ctx.caller is not None
    return f"a note of {ctx.caller.claims['name']}"


app = FastAPI()
app.mount("/tools", asgi_app(server))


class Announced(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        print(url, flush=True)


Announced(uvicorn.Config(app, port=port, log_level="warning")).run()
