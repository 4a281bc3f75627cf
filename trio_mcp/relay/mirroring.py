"""What a mounted proxy offers: the lists of its server, and their changes, in a registry."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar

import trio

from ..base.backoff import Backoff
from ..base.groups import single_exception
from ..base.logs import peer_logger
from ..client import Client, ClientOptions
from ..client.link import Link
from ..client.lists import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS, ListKind, Lists
from ..compose.connection import Connection, ServerState
from ..errors import McpError, PeerError
from ..protocol.jsonrpc import METHOD_NOT_FOUND
from ..server.catalog import CHANGING, Catalog
from ..server.data.prompts import Prompt
from ..server.data.resources import Resource, Template
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
from ..server.tools.tool import Tool
from ..session.dropped_items import LeftOut, by_key
from ..session.subscriptions import LISTS, Change, ChangeKind
from ..types import (
    Implementation,
    Model,
    Prompt as PromptModel,
    Resource as ResourceModel,
    ResourceTemplate,
    ServerCapabilities,
    Tool as ToolModel,
)
from .bindings import Bindings
from .host_links import Connect, HostLinks
from .server_client import STEP, ServerClient

logger = peer_logger("trio_mcp.relay")

OPEN_SECONDS: Final = 60.0
"""Seconds that one attempt to connect to a server for its lists may take."""

PAUSES: Final = Backoff(first=1.0, longest=30.0, jitter=0.0)
"""How long to wait before a list is read again that has changed after each of the readings before."""
READ_AT_ONCE: Final = 5
"""Readings in a row without a pause."""
QUIET_SECONDS: Final = 10.0
"""Seconds without a change after which a list counts as quiet."""

I = TypeVar("I", bound=MountableItem)  # noqa: E741
M = TypeVar("M", bound=Model)


class ListSource(Protocol):
    """A client from which the lists of a server are read."""

    @property
    def lists(self) -> Lists: ...
    @property
    def link(self) -> Link: ...


class Lister(Client):
    """The client that reads the lists of a server whether or not a host is there."""

    @property
    def lists(self) -> Lists:
        """Reads them."""
        return self._lists

    @property
    def link(self) -> Link:
        """The connection."""
        return self._link


class MirroredList(Generic[I, M]):
    """One list of a server, in a catalog of its proxy, whose `PeerList` it is.

    Args:
        kind: what an item is called.
        key_of: returns the name or the URI of an item.
        make: returns an item for the catalog; raises `ValueError` if it can be in none.
        left_out: logs what is not offered.
    """

    def __init__(
        self, kind: str, catalog: Catalog[I], key_of: Callable[[M], str], make: Callable[[M], I], left_out: LeftOut
    ) -> None:
        self._kind = kind
        self._catalog = catalog
        self._key_of = key_of
        self._make = make
        self._left_out = left_out
        self._listed: list[M] = []
        self._reasons: dict[str, str] = {}
        """Why items of the list are not in the catalog."""
        catalog.peer_list = self

    async def update(self, listed: list[M]) -> None:
        """Make the catalog hold the items that the server lists now. Other tasks run while they are made; all change at once."""
        reasons: dict[str, str] = {}
        items: dict[str, I] = {}
        for number, (key, model) in enumerate(by_key(listed, self._key_of, reasons).items(), 1):
            try:
                items[key] = self._make(model)
            except ValueError as error:
                reasons[key] = str(error)
            if not number % STEP:
                await trio.lowlevel.checkpoint()
        # `offer_again` may run in another thread.
        with CHANGING:
            self._listed, self._reasons = listed, reasons
            for key in [key for key in self._catalog.by_key if key not in items]:
                self._catalog.remove(key)
            for key, item in items.items():
                self._offer(key, item)
        self._left_out.note(self._kind, self._reasons)

    def _offer(self, key: str, item: I) -> None:
        catalog, known = self._catalog, self._catalog.by_key.get(key)
        try:
            if known is None:
                catalog.add(key, item)
            elif getattr(known, "model", None) != getattr(item, "model", None):
                catalog.replace(key, item)
        # Only an item whose name is taken or invalid in an outer server is left out.
        except ValueError as error:
            self._reasons[key] = str(error)
            if known is not None:
                catalog.remove(key)

    def leave_out(self, key: str, why: str, /) -> None:
        """Note that an item had to give way to one of the program."""
        self._reasons[key] = why
        self._left_out.note(self._kind, self._reasons)

    def offer_again(self) -> None:
        """Offer what had to give way, if there is room for it now."""
        with CHANGING:
            models = by_key(self._listed, self._key_of, {}) if self._reasons else {}
            for key in [key for key in self._reasons if key in models and key not in self._catalog.by_key]:
                del self._reasons[key]
                try:
                    self._offer(key, self._make(models[key]))
                except ValueError as error:
                    self._reasons[key] = str(error)
        self._left_out.note(self._kind, self._reasons)


class Mirror:
    """The registry of a proxy.

    Args:
        forward: runs the calls of what it lists.

    Attributes:
        name: of the server, for errors.
        registry: what the server offers.
        left_out: logs what is not offered, and names the server in the log.
    """

    def __init__(self, name: str, forward: Forward) -> None:
        self.name = name
        self._forward = forward
        self.registry = Registry(lambda _change: None, f"the server {name!r}")
        made, left_out = self.registry, LeftOut(logger, f"the server {name!r}")
        self.left_out = left_out
        made.kept = forwarding_reader(forward)
        self._tools: MirroredList[Tool, ToolModel] = MirroredList(
            "tool", made.tools, attrgetter("name"), lambda model: forwarded_tool(model, forward), left_out
        )
        self._prompts: MirroredList[Prompt, PromptModel] = MirroredList(
            "prompt", made.prompts, attrgetter("name"), lambda model: forwarded_prompt(model, forward), left_out
        )
        self._resources: MirroredList[Resource, ResourceModel] = MirroredList(
            "resource", made.resources, attrgetter("uri"), lambda model: forwarded_resource(model, forward), left_out
        )
        self._templates: MirroredList[Template, ResourceTemplate] = MirroredList(
            "resource template",
            made.templates,
            attrgetter("uri_template"),
            lambda model: forwarded_template(model, forward),
            left_out,
        )
        self._completions = made.completions = ForwardedCompletions(made.prompts, made.resources, made.templates)

    def declare(self, capabilities: ServerCapabilities) -> None:
        """Note whether the server has completions."""
        if capabilities.completions is not None:
            self._completions.forward = self._forward

    async def read(self, kind: ChangeKind, client: ListSource, links: HostLinks) -> None:
        """Read a list of the server, and offer what it has now.

        Args:
            kind: "tools", "prompts" or "resources", which are two lists.

        Raises:
            McpError: the list cannot be read.
        """
        if kind == "tools":
            tools = await listed(client, TOOLS)
            await links.learn(tools)
            await self._tools.update(tools)
        elif kind == "prompts":
            await self._prompts.update(await listed(client, PROMPTS))
        else:
            await self._resources.update(await listed(client, RESOURCES))
            await self._templates.update(await listed(client, RESOURCE_TEMPLATES))


async def listed(client: ListSource, kind: ListKind[M]) -> list[M]:
    """Return all items of a list; none if the server has no such list."""
    try:
        return await client.lists.read_all(kind)
    except PeerError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        return []


class Pace:
    """When a list may be read again: at once if it changes now and then, and ever later if a change follows each reading."""

    def __init__(self) -> None:
        self.due = -math.inf
        self._read_at = -math.inf
        # The first reading follows no change.
        self._readings = -1

    def note_change(self) -> None:
        """Note that the list has changed; one that was quiet before may be read at once."""
        if trio.current_time() - self._read_at >= QUIET_SECONDS:
            self._readings, self.due = 0, -math.inf

    def note_reading(self) -> None:
        """Note that the list was read now."""
        self._read_at = trio.current_time()
        self._readings += 1
        if self._readings >= READ_AT_ONCE:
            self.due = self._read_at + PAUSES.delay(self._readings - READ_AT_ONCE)


class Following:
    """Keeps the registry of a proxy in step with the lists of its server, while an outer server is served.

    Args:
        on_updated: called with the URI of a resource that has changed.
        bindings: for hosts with a principal.

    Attributes:
        links: the connections of the hosts; one more is kept for the lists.
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
        self._connect = connect
        self._nursery = nursery
        self._on_updated = on_updated
        self._stale: dict[ChangeKind, ListSource] = {}
        """From which client the lists that have changed are read, by kind."""
        self._unread = {*LISTS}
        self._paces: dict[ChangeKind, Pace] = {kind: Pace() for kind in LISTS}
        self._news = trio.Event()
        self.links = HostLinks(connect, mirror.name, nursery, limit, self._on_host_change, bindings)
        self.listed = trio.Event()
        self._connection: Connection[Lister] = Connection(
            mirror.name,
            mirror.left_out.whose,
            self._make_lister,
            OPEN_SECONDS,
            self._on_state,
            self._on_change,
            lambda: self.links.followed,
        )

    @property
    def has_failed(self) -> bool:
        """Whether the log says why the server is not connected."""
        return self._connection.state.error is not None

    async def run(self) -> None:
        """Stay connected to the server, and read its lists when they may have changed; runs until cancelled."""
        self._nursery.start_soon(self._read_stale)
        await self._connection.keep()

    def _make_lister(self, on_lost: Callable[[str], None]) -> Lister:
        info = Implementation(name="unnamed", version="0")
        return Lister(self._connect(), ClientOptions(info=info, on_disconnect=on_lost))

    def _on_state(self, _state: ServerState) -> None:
        """Read all lists of a server that was connected to."""
        client = self._connection.connected
        if client is None:
            return
        self._mirror.declare(client.server_capabilities)
        self.links.version = client.protocol_version
        for kind in LISTS:
            self._add_stale(client, kind)

    def _on_change(self, change: Change) -> None:
        client = self._connection.connected
        if change.uri is not None:
            self._on_updated(change.uri)
        elif client is not None:
            self._note_stale(client, change.kind)

    def _on_host_change(self, client: ServerClient | None, change: Change) -> None:
        # From the client that was notified: a command runs a process for each, and only this one may have a new list.
        source = client or self._connection.connected
        if change.uri is not None:
            self._on_updated(change.uri)
        elif source is not None:
            self._note_stale(source, change.kind)

    def _note_stale(self, client: ListSource, kind: ChangeKind) -> None:
        self._paces[kind].note_change()
        self._add_stale(client, kind)

    def _add_stale(self, client: ListSource, kind: ChangeKind) -> None:
        self._stale[kind] = client
        self._news.set()

    async def _read(self, client: ListSource, kind: ChangeKind) -> None:
        try:
            await self._mirror.read(kind, client, self.links)
        except McpError as error:
            if not client.link.is_connected:
                raise
            # The other lists may still be readable.
            logger.warning("the %s of %s cannot be listed: %s", kind, self._mirror.left_out.whose, error)
        self._unread.discard(kind)
        if not self._unread:
            self.listed.set()

    async def _read_stale(self) -> None:
        """Read the lists that have changed, each when its pace allows it; until cancelled."""
        while True:
            await trio.lowlevel.checkpoint()
            kind = min(self._stale, key=lambda each: self._paces[each].due, default=None)
            wait = math.inf if kind is None else self._paces[kind].due - trio.current_time()
            if kind is None or wait > 0:
                self._news = trio.Event()
                with trio.move_on_after(wait):
                    await self._news.wait()
                continue
            client = self._stale.pop(kind)
            try:
                await self._read(client, kind)
            except Exception as error:  # noqa: BLE001  whatever a server in this process raises; the next change may be read
                why = single_exception(error)
                logger.info("the %s of %s were not listed again: %s", kind, self._mirror.left_out.whose, why)
                # The connection of a host may end before its list is read. The lister reads all lists when it connects again.
                lister = self._connection.connected
                if lister is not None and lister is not client and not client.link.is_connected:
                    self._note_stale(lister, kind)
                    continue
            self._paces[kind].note_reading()
