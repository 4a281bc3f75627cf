"""Three processes that share a store, behind a balancer that knows nothing of MCP. Every wait is bounded."""

from __future__ import annotations

import base64
import itertools
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import trio
from serving import HttpProcess, http_process

SERVER = Path(__file__).with_name("workers_server.py")
READ_BYTES = 64 * 1024


class Balancer:
    """Passes each connection on to one of some ports: to the next each time, or to one as long as it accepts connections."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._turns = itertools.count()

    async def listen(self, nursery: trio.Nursery, *, is_affine: bool) -> str:
        """Return the URL of a new listener for one client."""
        first = next(self._turns)

        async def carry(client: trio.SocketStream) -> None:
            nonlocal first
            async with client:
                for _ in self._ports:
                    number = first
                    with suppress(OSError):
                        server = await trio.open_tcp_stream("127.0.0.1", self._ports[number % len(self._ports)])
                        first += 0 if is_affine else 1
                        async with server, trio.open_nursery() as both:
                            both.start_soon(copy, client, server)
                            await copy(server, client)
                            both.cancel_scope.cancel()
                        return
                    # As a proxy does with one that refuses a connection; another connection may have found that out before.
                    first += first == number

        listeners = await nursery.start(partial(trio.serve_tcp, carry, 0, host="127.0.0.1"))
        return f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"


async def copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    """Copy what comes to its end, however that comes."""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for data in source:
            await target.send_all(data)
        await target.send_eof()


class Balanced:
    """The processes, and the balancer in front of them."""

    def __init__(self, processes: list[HttpProcess], nursery: trio.Nursery) -> None:
        self.processes = processes
        self._nursery = nursery
        self._balancer = Balancer([each.port for each in processes])

    async def url(self, *, is_affine: bool) -> str:
        return await self._balancer.listen(self._nursery, is_affine=is_affine)

    async def kill(self, number: int) -> None:
        """Kill a process, and start it again."""
        await self.processes[number].restart()

    async def freeze(self, number: int, seconds: float) -> None:
        """Stop a process for some seconds."""
        with self.processes[number].stopped():
            await trio.sleep(seconds)


@asynccontextmanager
async def balanced(store: str, **environment: str) -> AsyncIterator[Balanced]:
    """Start three processes with one store."""
    keys = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
        processes = [
            await stack.enter_async_context(
                http_process(SERVER, TRIO_MCP_STORE=store, TRIO_MCP_KEYS=keys, **environment)
            )
            for _ in range(3)
        ]
        yield Balanced(processes, nursery)
        nursery.cancel_scope.cancel()
