"""`server.run()` starts an event loop; where one runs already, it raises an error that shows what to write."""

from __future__ import annotations

import asyncio

import pytest

from trio_mcp import Client, Server, proxy


def test_run_in_an_asyncio_program_raises_and_names_what_to_write() -> None:
    async def main() -> None:
        Server("shop").run()

    with pytest.raises(RuntimeError, match=r"await server\.serve\("):
        asyncio.run(main())


async def test_run_in_a_trio_program_raises_and_names_what_to_write() -> None:
    with pytest.raises(RuntimeError, match=r"await server\.serve\("):
        Server("shop").run("http")


async def test_a_proxy_raises_as_a_server_does() -> None:
    with pytest.raises(RuntimeError, match=r"await server\.serve\("):
        proxy(Client.connect(Server("shop"))).run()
