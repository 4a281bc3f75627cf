"""What a mounted proxy offers: the lists of its server, and their changes, in a registry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import trio

from ..backoff import Backoff
from ..client.lists import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS, ListKind
from ..errors import McpError, PeerError
from ..groups import single_exception
from ..logs import peer_logger
from ..protocol.jsonrpc import METHOD_NOT_FOUND
from ..server.catalog import Catalog
from ..server.forwarded import (
    Forward,
    ForwardedCompletions,
    forwarded_prompt,
    forwarded_resource,
    forwarded_template,
    forwarded_tool,
    forwarding_reader,
)
from ..server.registry import MountableItem, Registry
from ..session.changes import LISTS, Change
from ..types import ClientCapabilities, Model, ServerCapabilities
from .bindings import Bindings
from .host_links import Connect, HostLinks, close
from .server_client import ServerClient

logger = peer_logger("trio_mcp.relay")

BACKOFF: Final = Backoff(first=0.5, longest=30.0)
"""How long to wait before the lists of a server that could not be reached are read again."""

I = TypeVar("I", bound=MountableItem)  # noqa: E741
M = TypeVar("M", bound=Model)


class Mirror:
    """The registry of a proxy.

    Args:
        forward: runs the calls of what it lists.

    Attributes:
        name: of the server, for errors and logs.
        registry: what the server offers.
    """

    def __init__(self, name: str, forward: Forward) -> None:
        self.name = name
        self._forward = forward
        self.registry = Registry(lambda _change: None, f"the server {name!r}")
        made = self.registry
        made.kept = forwarding_reader(forward)
        self._left_out: dict[int, dict[str, str]] = {}
        """What is not offered, and why, by catalog: each is logged once."""
        self._completions = made.completions = ForwardedCompletions(made.prompts, made.resources, made.templates)

    def declare(self, capabilities: ServerCapabilities) -> None:
        """Note whether the server has completions."""
        if capabilities.completions is not None:
            self._completions.forward = self._forward

    async def read(self, kind: str, client: ServerClient, links: HostLinks) -> None:
        """Read a list of the server, and offer what it has now.

        Args:
            kind: "tools", "prompts" or "resources", which are two lists.

        Raises:
            McpError: the list cannot be read.
        """
        registry, forward = self.registry, self._forward
        if kind == "tools":
            tools = await listed(client, TOOLS)
            links.learn(tools)
            usable = client.learn(tools)
            self._update(
                registry.tools, {tool.name: tool for tool in usable}, lambda tool: forwarded_tool(tool, forward)
            )
        elif kind == "prompts":
            prompts = {prompt.name: prompt for prompt in await listed(client, PROMPTS)}
            self._update(registry.prompts, prompts, lambda prompt: forwarded_prompt(prompt, forward))
        else:
            resources = {each.uri: each for each in await listed(client, RESOURCES)}
            self._update(registry.resources, resources, lambda each: forwarded_resource(each, forward))
            templates = {each.uri_template: each for each in await listed(client, RESOURCE_TEMPLATES)}
            self._update(registry.templates, templates, lambda each: forwarded_template(each, forward))

    def _update(self, catalog: Catalog[I], models: dict[str, M], make: Callable[[M], I]) -> None:
        """Make a catalog hold the items that the server lists now."""
        for key in [key for key in tuple(catalog.by_key) if key not in models]:
            catalog.remove(key)
        left_out: dict[str, str] = {}
        for key, model in models.items():
            known = catalog.by_key.get(key)
            try:
                item = make(model)
                if known is None:
                    catalog.add(key, item)
                elif getattr(known, "model", None) != getattr(item, "model", None):
                    catalog.replace(key, item)
            # Only an item whose name is taken or invalid in an outer server is left out.
            except ValueError as error:
                left_out[key] = str(error)
        known_before = self._left_out.get(id(catalog), {})
        for key, why in left_out.items():
            if known_before.get(key) != why:
                logger.warning("%r of the server %r is left out: %s", key, self.name, why)
        self._left_out[id(catalog)] = left_out


async def listed(client: ServerClient, kind: ListKind[M]) -> list[M]:
    """Return all items of a list; none if the server has no such list."""
    try:
        return await client.lists.read_all(kind)
    except PeerError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return []


class Following:
    """Keeps the registry of a proxy in step with the lists of its server, while an outer server is served.

    Args:
        on_updated: called with the URI of a resource that has changed.
        bindings: for hosts with a principal.

    Attributes:
        links: the connections of the hosts; one more is opened for the lists.
        listed: set when the lists have been read once.
    """

    def __init__(
        self,
        mirror: Mirror,
        connect: Connect,
        nursery: trio.Nursery,
        limit: int,
        on_updated: Callable[[str], None],
        bindings: Bindings,
    ) -> None:
        self._mirror = mirror
        self._on_updated = on_updated
        self._stale: dict[str, ServerClient] = {}
        self._news = trio.Event()
        self._lister: ServerClient | None = None
        self.links = HostLinks(connect, mirror.name, nursery, limit, self._on_change, bindings)
        self.listed = trio.Event()

    async def run(self) -> None:
        """Read the lists, follow their changes, and connect again when the connection has ended; for ever."""
        failures = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_stale)
            while True:
                try:
                    await self._follow()
                    failures = 0
                except Exception as error:
                    level = logging.INFO if failures else logging.WARNING
                    why = single_exception(error)
                    # The place is of interest if the failure is neither an answer of the server nor an error of the system.
                    trace = None if isinstance(why, McpError | OSError) else why
                    text = "the lists of the server %r cannot be read: %s"
                    logger.log(level, text, self._mirror.name, why, exc_info=trace)
                    failures += 1
                await trio.sleep(BACKOFF.delay(failures))

    async def _follow(self) -> None:
        """Connect, read the lists, and follow their changes until the connection ends."""
        client = self._lister = self.links.make_client(ClientCapabilities(), None)
        await client.link.open()
        try:
            self._mirror.declare(client.link.facts.capabilities)
            self.links.watch_all(client)
            changes = client.list_changes()
            # A modern server that announces nothing has nothing to subscribe to.
            if not changes.wanted.wire() and not client.link.dialect.can_reopen:
                await self._read(client, LISTS)
                self.listed.set()
                await trio.sleep_forever()
            async with changes:
                await self._read(client, LISTS)
                self.listed.set()
                async for change in changes:
                    await self._read(client, [change.kind])
        except McpError as error:
            if client.link.is_connected:
                raise
            logger.info("the connection to the server %r has ended: %s", self._mirror.name, error)
        finally:
            await close(client)  # noqa: ASYNC102  it is shielded and bounded itself

    def _on_change(self, client: ServerClient, change: Change) -> None:
        if change.uri is not None:
            self._on_updated(change.uri)
        elif client is not self._lister:
            # From the client that was notified: a command runs a process for each, and only this one may have a new list.
            self._stale[change.kind] = client
            self._news.set()

    async def _read(self, client: ServerClient, kinds: Iterable[str]) -> None:
        for kind in kinds:
            try:
                await self._mirror.read(kind, client, self.links)
            except McpError as error:
                if not client.link.is_connected:
                    raise
                # The other lists may still be readable.
                logger.warning("the %s of the server %r cannot be listed: %s", kind, self._mirror.name, error)

    async def _read_stale(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._stale:
                kind, client = self._stale.popitem()
                try:
                    await self._read(client, [kind])
                except McpError as error:
                    logger.info("the %s of the server %r were not listed again: %s", kind, self._mirror.name, error)
