"""`/health` and `/ready`: one word for a monitor of the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from asgi_peer import AsgiPeer, Reply, modern_call, served, unstarted

from trio_mcp import HttpOptions, Server
from trio_mcp_transports.http import asgi_app

FOREIGN = {"host": "10.1.2.3:8000", "origin": "https://evil.example", "sec-fetch-site": "cross-site"}


async def nobody(_: Mapping[str, str]) -> None:
    return None


async def probe(peer: AsgiPeer, path: str, method: str = "GET", root: str = "") -> Reply:
    return await peer.start(b"", FOREIGN, method=method, path=path, root=root).end()


@pytest.mark.parametrize(("path", "word"), [("/health", b"ok"), ("/ready", b"ready")])
async def test_a_probe_is_answered_for_any_host_and_without_credentials(path: str, word: bytes) -> None:
    async with served(asgi_app(Server("shop", http=HttpOptions(authenticate=nobody)))) as peer:
        reply = await probe(peer, path)
        assert (reply.status, reply.body) == (200, word)
        assert (await probe(peer, path, "HEAD")).body == b""
        assert (await probe(peer, path, "POST")).status == 405


async def test_a_probe_allocates_nothing() -> None:
    server = Server("shop")
    async with served(asgi_app(server)) as peer:
        (service,) = server.services
        before = service.statistics()
        for _ in range(5):
            await probe(peer, "/ready")
        assert service.statistics() == before


async def test_probes_are_renamed_and_switched_off() -> None:
    async with served(asgi_app(Server("shop", http=HttpOptions(health_path="/livez", ready_path=None)))) as peer:
        assert (await probe(peer, "/livez")).body == b"ok"
        assert [(await probe(peer, path)).status for path in ("/health", "/ready")] == [421, 421]


async def test_a_server_is_not_ready_from_the_start_of_a_drain() -> None:
    server = Server("shop")
    running = trio.Event()

    @server.tool
    async def wait() -> None:
        running.set()
        await trio.sleep_forever()

    app = asgi_app(server)
    async with served(app) as peer, trio.open_nursery() as nursery:
        call = peer.start(*modern_call("wait"))
        await running.wait()
        nursery.start_soon(app.drain, 10)
        await trio.testing.wait_all_tasks_blocked()
        assert not call.ended.is_set()
        ready, health = await probe(peer, "/ready"), await probe(peer, "/health")
        assert (ready.status, ready.body, health.status) == (503, b"draining", 200)


async def test_a_server_whose_lifespan_is_still_starting_is_healthy_and_not_ready() -> None:
    begun, may_start = trio.Event(), trio.Event()

    @asynccontextmanager
    async def slow(_: Server) -> AsyncIterator[None]:
        begun.set()
        await may_start.wait()
        yield

    app = asgi_app(Server("shop", lifespan=slow))
    async with unstarted(app) as peer, trio.open_nursery() as nursery:
        started = trio.Event()

        async def serve() -> None:
            async with app.lifespan():
                started.set()
                await trio.sleep_forever()

        nursery.start_soon(serve)
        await begun.wait()
        assert (await probe(peer, "/ready")).body == b"starting"
        assert (await probe(peer, "/health")).status == 200
        may_start.set()
        await started.wait()
        assert (await probe(peer, "/ready")).status == 200
        nursery.cancel_scope.cancel()
    async with unstarted(app) as peer:
        assert (await probe(peer, "/ready")).status == 503


async def test_a_probe_starts_an_application_that_is_mounted_without_a_lifespan() -> None:
    """A load balancer sends no request to a server that is not ready, and without one it would never start."""
    async with unstarted(asgi_app(Server("shop"))) as peer:
        assert (await probe(peer, "/ready")).status == 503
        await trio.testing.wait_all_tasks_blocked()
        assert (await probe(peer, "/ready")).status == 200


@pytest.mark.parametrize(("path", "root"), [("/health", ""), ("/api/health", ""), ("/api/health", "/api")])
async def test_a_probe_is_found_with_and_without_the_prefix_of_a_proxy(path: str, root: str) -> None:
    async with served(asgi_app(Server("shop"), root_path="/api")) as peer:
        assert (await probe(peer, path, root=root)).status == 200
