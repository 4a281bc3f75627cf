"""The contract through a mounted server, and through a proxy: what is composed keeps the rules of what it is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from lending import lent_server
from makers import MemoryEndpoint, MemoryMaker
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Server, proxy
from trio_mcp.server.composing import as_mounted
from trio_mcp.server.mounts import MountPoint
from trio_mcp.session import AnyChannel, Service, serve_channel
from trio_mcp.testing.contract import Case, Stage, cases_of
from trio_mcp.testing.contract.subject import gauges_of
from trio_mcp.testing.contract.subjects.offers import PAGE


class SameNames(MountPoint):
    """A mount without a prefix, because the rules know the names of the contract's server."""

    __slots__ = ()

    def outer_name(self, name: str) -> str:
        return name

    def inner_name(self, name: str) -> str:
        return name

    def outer_uri(self, uri: str) -> str:
        return uri

    def inner_uri(self, uri: str) -> str:
        return uri


class MountedMaker(MemoryMaker):
    name = "mounted"
    revisions = (NEWEST_LEGACY, MODERN)

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[MemoryEndpoint]:
        with lent_server(stage) as inner:
            outer = Server(
                "contract", version="1.0", instructions=inner.instructions, page_size=PAGE, options=inner.options
            )
            mounted = as_mounted(inner)
            point = SameNames(
                "x", inner, "contract", mounted.layers, mounted.registry.offers, lambda _uri: False, frozenset()
            )
            as_mounted(outer).registry.mount(point, mounted.registry)
            mounted.add_outer(point, outer)
            stage.measured_by(partial(gauges_of, outer))
            try:
                async with outer.open_service() as service, trio.open_nursery() as nursery:
                    yield self.endpoint(service, nursery)
                    nursery.cancel_scope.cancel()
            finally:
                forget_outer(inner)


def forget_outer(inner: Server) -> None:
    """Let the next case mount a server that is lent to one after the other."""
    registry = as_mounted(inner).registry
    for catalog in (registry.tools, registry.prompts, registry.resources, registry.templates):
        catalog._followers.clear()  # noqa: SLF001
    inner._outer.clear()  # noqa: SLF001


class Shared:
    """A server whose connections share one service, as those of a URL do."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def serve_channel(self, channel: AnyChannel) -> None:
        await serve_channel(self._service, channel)


class ProxyEndpoint(MemoryEndpoint):
    def __init__(self, service: Service, nursery: trio.Nursery, far: Service) -> None:
        super().__init__(service, nursery)
        self._far = far

    async def stop(self, seconds: float) -> None:
        # What runs behind a proxy is for the server there to end.
        await self._far.drain(seconds)


class ProxyMaker(MemoryMaker):
    name = "proxy"
    revisions = (NEWEST_LEGACY, MODERN)

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[MemoryEndpoint]:
        with lent_server(stage) as inner:
            async with (
                inner.open_service() as far,
                proxy(Shared(far)).open_service() as service,
                trio.open_nursery() as nursery,
            ):
                yield ProxyEndpoint(service, nursery, far)
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("case", [*cases_of(MountedMaker()), *cases_of(ProxyMaker())], ids=str)
def test_contract(case: Case) -> None:
    case.run()
