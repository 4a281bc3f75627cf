"""`echo` on FastMCP, for `uvicorn --factory bench.servers.fast:application`; BENCH_SESSIONS=0 serves without sessions."""

from __future__ import annotations

import os

os.environ.setdefault("FASTMCP_CHECK_FOR_UPDATES", "off")

from fastmcp import FastMCP
from starlette.types import ASGIApp

server = FastMCP("bench")


@server.tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


def application() -> ASGIApp:
    return server.http_app(stateless_http=os.environ.get("BENCH_SESSIONS") == "0")
