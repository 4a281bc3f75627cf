"""A protected server that pages of `PAGE_ORIGIN` may call, at `PAGE_RESOURCE`: `page_app:server`, or `page_app:app` for ASGI."""

from __future__ import annotations

import os

from trio_mcp import Context, HttpOptions, HttpRequest, HttpResponse, Server
from trio_mcp.auth import ProtectedResource, static
from trio_mcp_transports.http import asgi_app

hook = ProtectedResource(
    os.environ["PAGE_RESOURCE"], static({os.environ["PAGE_TOKEN"]: "ann"}), issuers=["https://login.example.com"]
)
options = HttpOptions(
    authenticate=hook,
    # So that pages of loopback are nothing special.
    allowed_hosts=["127.0.0.1"],
    allowed_origins=[os.environ["PAGE_ORIGIN"]],
)
server = Server("protected", http=options)


@server.tool
async def order(ctx: Context) -> str:
    """Ask how many."""
    await ctx.progress(1)
    return f"ordered {await ctx.elicit.strict('How many?', int)}"


@server.route("/price", public=True)
async def price(_request: HttpRequest) -> HttpResponse:
    return HttpResponse("7")


app = asgi_app(server)
