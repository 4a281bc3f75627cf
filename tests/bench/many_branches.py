"""What many branches of one call cost: `python tests/bench/many_branches.py [BRANCHES]` prints CPU time and memory for each way.

Each way is one call through a session in this process: its branches return at once, have every option set, are cancelled by a
sibling that fails, nest four deep, or race. The goal is 2 seconds for
10,000 branches, with nothing left afterwards. Not a test: it has no threshold.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Awaitable, Callable

import trio
from peers import arrived, request, resident

from trio_mcp import Context, Server
from trio_mcp.session import ServerSession
from trio_mcp.types import SamplingMessage, TextContent

Way = Callable[[Context, int], Awaitable[None]]

server = Server("branches")
WAYS: dict[str, Way] = {}


def way(fn: Way) -> Way:
    WAYS[fn.__name__.replace("_", " ")] = fn
    return fn


@server.tool
async def run(way: str, n: int, ctx: Context) -> None:
    """Run a number of branches one way."""
    await WAYS[way](ctx, n)


async def at_once(_child: Context) -> None:
    pass


async def endless(_child: Context) -> None:
    await trio.sleep_forever()


@way
async def return_at_once(ctx: Context, n: int) -> None:
    await ctx.branch_all(*[at_once] * n)


@way
async def with_every_option(ctx: Context, n: int) -> None:
    said = [SamplingMessage(role="user", content=TextContent(text="hi"))]
    async with ctx.branches() as group:
        for _ in range(n):
            group.start(
                at_once, messages=said, system_prompt="s", max_depth=3, token_budget=9, timeout=60, allow_elicit=False
            )


@way
async def one_fails_and_the_others_wait(ctx: Context, n: int) -> None:
    async def fails(_child: Context) -> None:
        raise LookupError

    try:
        await ctx.branch_all(*[endless] * (n - 1), fails)
    except* LookupError:
        pass


@way
async def four_deep(ctx: Context, n: int) -> None:
    each = round(n ** (1 / 4))

    async def nests(child: Context) -> None:
        if child.depth < 4:
            await child.branch_all(*[nests] * each)

    await nests(ctx)


@way
async def race(ctx: Context, n: int) -> None:
    await ctx.branch_race(*[endless] * (n - 1), at_once)


async def main(n: int) -> None:
    async with server.open_service() as service:
        session = ServerSession(service, shared_channel=False)
        outbox = service.open_outbox()
        for number, way in enumerate(WAYS):
            gc.collect()
            objects, started = len(gc.get_objects()), time.process_time()
            session.receive(arrived(request("run", {"way": way, "n": n}, number)), outbox)
            await outbox.take()
            seconds = time.process_time() - started
            peak = resident() / 1024
            gc.collect()
            left = len(gc.get_objects()) - objects
            actors = len(service.supervisor.actors)
            print(f"{way:32} {seconds:6.2f} s  {peak:6.0f} MB resident  {left:+5} objects  {actors} actors left")


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if sys.argv[1:] else 10_000)
