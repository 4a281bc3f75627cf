"""The benchmark's tools on the official SDK: `python -m bench.servers.official stdio`, or `http PORT`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from pydantic import BaseModel
from starlette.applications import Starlette

server = MCPServer("bench", log_level="WARNING")


class Answer(BaseModel):
    value: int


@server.tool()
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool()
async def progress(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for done in range(n):
        await ctx.report_progress(done + 1, n, "step")
    return "done"


def ask_user() -> Elicit[Answer]:
    return Elicit("Which value?", Answer)


@server.tool()
async def ask(answer: Annotated[Answer, Resolve(ask_user)]) -> str:
    """Ask the user for a value."""
    return f"got {answer.value}"


@server.tool()
async def fan(n: int, ctx: Context) -> str:
    """Ask n questions at once."""
    values: list[int] = []

    async def one() -> None:
        answer = await ctx.elicit("Which value?", Answer)
        values.append(answer.data.value if answer.action == "accept" else 0)

    async with anyio.create_task_group() as tasks:
        for _ in range(n):
            tasks.start_soon(one)
    return f"got {sum(values)}"


def add_extra(number: int) -> None:
    @server.tool(name=f"extra_{number}", description=f"Extra tool number {number}, here to make tools/list long.")
    async def extra(text: str, count: int = 1, flag: bool = False) -> str:
        return text


for extra_number in range(int(os.environ.get("BENCH_TOOLS", "0"))):
    add_extra(extra_number)


def application() -> Starlette:
    """Return the application, for workers of uvicorn too; BENCH_SESSIONS=0 serves legacy clients without sessions."""
    return server.streamable_http_app(stateless_http=os.environ.get("BENCH_SESSIONS") == "0")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        import uvicorn

        # As `pip install mcp` has it: uvicorn on asyncio, with h11.
        uvicorn.run(
            application(),
            host="127.0.0.1",
            port=int(sys.argv[2]),
            log_level="warning",
            access_log=False,
            loop="asyncio",
            http="h11",
            ws="none",
        )
