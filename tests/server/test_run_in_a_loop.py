"""`server.run()` starts an event loop; where one runs already, it raises an error that shows what to write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

from trio_mcp import Client, Server, proxy


async def run(server: Any) -> None:
    server.run("http")


@pytest.mark.parametrize("loop", [trio.run, lambda main, *args: asyncio.run(main(*args))], ids=["trio", "asyncio"])
@pytest.mark.parametrize("server", [Server("shop"), proxy(Client.connect(Server("shop")))], ids=["server", "proxy"])
def test_run_in_a_loop_raises_and_names_what_to_write(loop: Any, server: Any) -> None:
    with pytest.raises(RuntimeError, match=r"await server\.serve\("):
        loop(run, server)
