"""The server that the benchmark drives: `bench_server.py stdio`, `bench_server.py http PORT`, or `bench_server.py ws PORT`.

BENCH_TOOLS=n adds n more tools, so that the list of tools is long. With BENCH_KEYS, a JWK set, callers need a token.
"""

from __future__ import annotations

import json
import os
import sys

from pydantic import BaseModel

from trio_mcp import Context, HttpOptions, Server, ServiceOptions
from trio_mcp.auth import jwt

keys = os.environ.get("BENCH_KEYS")
verifier = None if keys is None else jwt("https://issuer.bench", keys=json.loads(keys), audience="bench")
# `fan` sends all its questions in one round, as the servers that it is compared with do.
server = Server(
    "bench",
    version="1.0",
    options=ServiceOptions(parallel_prompts=True),
    http=HttpOptions(authenticate=verifier),
)


class Answer(BaseModel):
    value: int


@server.tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool
async def progress(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for done in range(n):
        await ctx.progress(done + 1, n, "step")
    return "done"


async def ask_value(ctx: Context) -> int:
    answer = await ctx.elicit("Which value?", Answer)
    return answer.content.value if answer.action == "accept" else 0


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user for a value."""
    return f"got {await ask_value(ctx)}"


@server.tool
async def fan(n: int, ctx: Context) -> str:
    """Ask n questions at once, each in a separate branch."""
    values = await ctx.branch_all(*[ask_value] * n)
    return f"got {sum(values)}"


def add_extra(number: int) -> None:
    @server.tool(name=f"extra_{number}", description=f"Extra tool number {number}, here to make tools/list long.")
    async def extra(text: str, count: int = 1, flag: bool = False) -> str:  # noqa: ARG001  for its schema
        return text


for extra_number in range(int(os.environ.get("BENCH_TOOLS", "0"))):
    add_extra(extra_number)

if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    elif sys.argv[1:2] == ["ws"]:
        server.run("websocket", port=int(sys.argv[2]))
    else:
        server.run(*sys.argv[1:2])
