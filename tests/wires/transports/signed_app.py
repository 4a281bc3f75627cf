"""A file whose server asks for authentication, and has probes, a route and an access log; it is never served open."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from trio_mcp import HttpOptions, HttpRequest, HttpResponse, Server, configure_logging
from trio_mcp.http import Tls
from trio_mcp_transports.http import asgi_app


async def by_token(headers: Mapping[str, str]) -> str | None:
    return "ann" if headers.get("authorization") == "Bearer a" else None


PEM = os.environ.get("TEST_CERTIFICATE")
server = Server(
    "shop", http=HttpOptions(authenticate=by_token, path="/shop", tls=Tls(PEM) if PEM else None, access_log=True)
)


@server.tool
async def greet() -> str:
    return "hello"


@server.route("/hook", methods=["POST"])
async def hook(request: HttpRequest) -> HttpResponse:
    return HttpResponse.json({"principal": request.principal, "bytes": len(request.body)})


app = asgi_app(server)

if __name__ == "__main__":
    configure_logging("info", "json")
    if sys.argv[1] == "stdio":
        server.run()
    else:
        server.run("http", port=int(sys.argv[2]))
