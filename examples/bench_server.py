"""The server that the benchmark drives: `bench_server.py stdio`, `bench_server.py http PORT`, or `bench_server.py ws PORT`.

BENCH_TOOLS=n adds n more tools, so that the list of tools is long. With BENCH_KEYS, a JWK set, callers need a token.
BENCH_HTTP=authenticate, access_log or trusted_proxies sets an option of HTTP, and BENCH_TLS=FILE serves with the certificate and
the key in it. BENCH_HOST=uvicorn serves on uvicorn, and BENCH_ASYNCIO=1 runs its functions on asyncio.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping

from pydantic import BaseModel

# What only some of the servers need is loaded when it is named: the start is measured too.
import trio_mcp
from trio_mcp import Context, Server, ServiceOptions, auth

# `fan` sends all its questions in one round, as the servers that it is compared with do.
server = Server(
    "bench",
    version="1.0",
    options=ServiceOptions(parallel_prompts=True),
    asyncio=os.environ.get("BENCH_ASYNCIO") == "1",
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


Hook = Callable[[Mapping[str, str]], Awaitable[str | None]]


async def authenticate(headers: Mapping[str, str]) -> str | None:
    return "bench" if headers.get("authorization") == "Bearer bench" else None


def serve_on_uvicorn(port: int, hook: Hook | None) -> None:
    import uvicorn  # noqa: PLC0415  only this server needs it

    from trio_mcp_transports.http import asgi_app  # noqa: PLC0415

    # As `bench.servers.official` has it.
    app = asgi_app(server) if hook is None else asgi_app(server, authenticate=hook)
    uvicorn.run(app, port=port, log_level="warning", access_log=False, loop="asyncio", http="h11", ws="none")


def serve_http(port: int) -> None:
    option, certificate, keys = (os.environ.get(f"BENCH_{name}") for name in ("HTTP", "TLS", "KEYS"))
    tls = None
    if certificate is not None:
        from trio_mcp.http import Tls  # noqa: PLC0415  only these workloads need it

        tls = Tls(certificate)
    if os.environ.get("BENCH_HOST") == "uvicorn":
        serve_on_uvicorn(port, authenticate if option == "authenticate" else None)
    elif keys is not None:
        verifier = auth.jwt("https://issuer.bench", keys=json.loads(keys), audience="bench")
        server.run("http", port=port, tls=tls, authenticate=verifier)
    elif option == "authenticate":
        server.run("http", port=port, tls=tls, authenticate=authenticate)
    elif option == "access_log":
        # Formatted as it would be for a file, and thrown away.
        trio_mcp.configure_logging("info", stream=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        server.run("http", port=port, tls=tls, access_log=True)
    elif option == "trusted_proxies":
        server.run("http", port=port, tls=tls, trusted_proxies=["127.0.0.1"])
    else:
        server.run("http", port=port, tls=tls)


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        serve_http(int(sys.argv[2]))
    elif sys.argv[1:2] == ["ws"]:
        server.run("websocket", port=int(sys.argv[2]))
    else:
        server.run(*sys.argv[1:2])
