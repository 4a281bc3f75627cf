"""A request over HTTP leaves nothing behind that only the garbage collector would find."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
import trio
from asgi_peer import AsgiPeer, legacy_call, modern_call, served
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.testing.interruptions.census import only_new_objects
from trio_mcp_transports.http import asgi_app

TIMES = 5

Ask = Callable[[AsgiPeer, dict[str, str], str, int], Awaitable[None]]

server = Server("tidy")


@server.tool
async def plain() -> str:
    """Return at once."""
    return "done"


@server.tool
async def raising() -> str:
    """Fail."""
    raise RuntimeError("as it does")


@server.tool
async def reporting(ctx: Context) -> str:
    """Report."""
    await ctx.progress(1)
    return "reported"


@server.tool
async def waiting() -> str:
    """Wait until cancelled."""
    await trio.sleep_forever()
    return "never"


async def legacy(peer: AsgiPeer, session: dict[str, str], tool: str, number: int) -> None:
    meta = {"progressToken": number}
    await peer.post(legacy_call(tool, id=number, _meta=meta), session)


async def modern(peer: AsgiPeer, _session: dict[str, str], tool: str, number: int) -> None:
    body, headers = modern_call(tool, id=number, meta={"progressToken": number})
    await peer.post(body, headers)


async def modern_hung_up(peer: AsgiPeer, _session: dict[str, str], _tool: str, number: int) -> None:
    body, headers = modern_call("waiting", id=number)
    reply = peer.start(body, headers)
    await wait_all_tasks_blocked()
    reply.gone.set()


async def malformed(peer: AsgiPeer, _session: dict[str, str], _tool: str, _number: int) -> None:
    await peer.post(b"{")


def alive() -> Counter[str]:
    """Our objects, by type."""
    kinds = (type(each) for each in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("trio_mcp"))


@pytest.mark.parametrize("tool", ["plain", "raising", "reporting", "no_such_tool"])
@pytest.mark.parametrize("ask", [legacy, modern, modern_hung_up, malformed])
async def test_a_request_leaves_nothing_to_the_collector(ask: Ask, tool: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "trio_mcp")  # a record of an error keeps its frames
    async with served(asgi_app(server)) as peer:
        session = await peer.open_session()
        await ask(peer, session, tool, 2)  # what is built once is built now
        await wait_all_tasks_blocked()
        with only_new_objects():
            for number in range(3, 3 + TIMES):
                await ask(peer, session, tool, number)
                await wait_all_tasks_blocked()
            left = alive()
            gc.collect()
            assert left - alive() == Counter()
