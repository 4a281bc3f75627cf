"""`server.mount(prefix, other)`: a server whose tools, prompts, resources and completions are those of others, too."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, cast

import trio

from .. import server
from ..base.checks import check_str, mistake
from ..base.named_tuples import NamedTuple
from ..runtime import ThreadLimiter
from ..session import MessageMiddleware
from ..session.calls.services import CallOffers
from ..session.options import ServiceOptions
from ..session.subscriptions import Follower
from ..session.transport import ServerFacts, authenticates, facts_of, required_scopes
from ..types import Implementation
from .registry import Registry
from .routing import Routing, routes_below

if TYPE_CHECKING:
    from ..http import HttpRoute
    from .mounts import Mounts


P = ParamSpec("P")

MOUNT_ADVICE: Final = (
    'Server.mount() takes a prefix, then a server or a proxy of one: `server.mount("weather", weather)`; in FastMCP '
    "the server is first, and the prefix is called namespace"
)


class Mountable(Protocol):
    """What can be mounted in a server: another `Server`, or a proxy of one."""

    @property
    def identity(self) -> Implementation:
        """Its name, for errors."""
        ...

    def _facts(self) -> MountedServer:
        """Return how the servers use it in which it is mounted."""
        ...


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class MountedServer(ServerFacts):
    """A server as those use it in which it is mounted.

    Attributes:
        registry: what it offers, now and later.
        layers: its middleware, the outermost first.
        message_middleware: with any, it cannot be mounted.
        threads: where its plain functions run; None without any.
        add_outer: notes a server in which it is mounted, which its changes are to be announced to.
        open: enters its lifespan for one service; the value is its state there.
        wait_ready: waits, for a bounded time, until it knows what it offers; None if it always does. It takes the state.
        offers_within: returns what it offers to its own calls: all of the outer one's, apart from what it has for itself. It
            takes what the outer one offers, the options of the service, and the state.
        follower: returns what subscribes to its resources when clients do; None if it announces all changes anyway. It takes the
            state.
    """

    registry: Registry
    layers: Sequence[server.CallMiddleware] = ()
    message_middleware: Sequence[MessageMiddleware] = ()
    threads: ThreadLimiter | None = None
    add_outer: Callable[[server.mounts.MountPoint, Composition], None]
    open: Callable[[], AbstractAsyncContextManager[object]]
    wait_ready: Callable[[object], Awaitable[None]] | None = None
    offers_within: Callable[[CallOffers, ServiceOptions, object], CallOffers]
    follower: Callable[[object], Follower] | None = None


def as_mounted(server: Mountable) -> MountedServer:
    """Return how the servers use one in which it is mounted."""
    return server._facts()  # noqa: SLF001  a protocol has no other word for what users should not call


def is_mountable(value: object) -> bool:
    """Return whether this is a server, or a proxy of one."""
    return isinstance(facts_of(value), MountedServer)


def with_mount_advice(mount: Callable[P, None]) -> Callable[P, None]:
    """Return `mount` with a clear error for arguments that it cannot take, such as the server first."""
    signature = inspect.signature(mount)

    @wraps(mount)
    def checked(*args: P.args, **options: P.kwargs) -> None:
        try:
            given = signature.bind(*args, **options).arguments
        except TypeError as error:
            raise TypeError(f"{MOUNT_ADVICE} ({error})") from None
        if is_mountable(given["prefix"]):
            raise TypeError(MOUNT_ADVICE)
        mount(*args, **options)

    return checked


class Composition(Routing):
    """The methods of a server that mount other servers in it."""

    identity: Implementation

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # A list, which the copies of a server share.
        self._outer: list[tuple[server.mounts.MountPoint, Composition]] = []
        """The servers in which this one is mounted."""

    @with_mount_advice
    def mount(self, prefix: str, other: Mountable) -> None:
        """Offer everything that another server offers, now and later: its tools, prompts, resources and completions.

            server.mount("weather", weather)        # a Server
            server.mount("search", proxy("https://search.example.com/mcp"))

        The tool or prompt `name` of the other server is `prefix_name` here, and its resource `scheme://rest` is
        `scheme://prefix/rest`. Calls run as they do there: inside of its middleware, with its lifespan's state, its model and its
        limits. Its lifespan is entered after that of this server. See
        https://github.com/trio-mcp/trio-mcp/blob/main/docs/composition.md.

        Args:
            prefix: 1 to 64 letters, digits, '_', '-' and '.'; the first is a letter or a digit.

        Raises:
            ValueError: something that it offers has a name or a path that is taken here, or in a server in which this one is
                mounted; the prefix is taken or invalid; the other server has this one in it; it authenticates its callers,
                requires scopes, or has a tool search, and this one does not; or it has message middleware, which sees
                connections and not calls.
            TypeError: it is not a server.
            RuntimeError: this server is being served.
        """
        server.mounts.check_prefix(check_str("prefix", prefix))
        mounted = facts_of(other)
        if not isinstance(mounted, MountedServer):
            raise TypeError(mistake("mount()", "a Server, or a proxy of one", other))
        self._check_not_served("what is mounted")
        if mounted.message_middleware:
            raise ValueError(f"{mounted.registry.owner} has message middleware: register that at the outer server")
        if authenticates(other) and not authenticates(self):
            raise ValueError(
                f"the server {other.identity.name!r} authenticates its callers, and {self.identity.name!r} does not: mounted "
                "there, it would be open to everybody. Give the outer server authenticate=, too"
            )
        missing = required_scopes(other) - required_scopes(self)
        if missing:
            raise ValueError(
                f"every request to the server {other.identity.name!r} needs the scopes {', '.join(sorted(missing))}, and one to "
                f"{self.identity.name!r} does not: mounted there, they would not be checked. Add them to required= of the outer "
                "server; or take them out of required= of the mounted one, and write scopes= for the items that need them"
            )
        self._check_search(other)
        self._check_routes(routes_below(prefix, other))
        point = server.mounts.MountPoint(
            prefix,
            other,
            other.identity.name,
            mounted.layers,
            mounted.registry.offers,
            lambda uri: mounted.registry.reader_of_kept(uri) is not None,
            self._fulfilled,
        )
        self._registry.mount(point, mounted.registry)
        mounted.add_outer(point, self)
        self._declare()

    def _add_outer(self, mount: server.mounts.MountPoint, outer: Composition) -> None:
        self._outer.append((mount, outer))

    def _check_search(self, other: Mountable) -> None:
        """Raise `ValueError` if the list of tools would become what the other server avoids; `Server` overrides it."""

    def _check_routes(self, routes: Sequence[HttpRoute]) -> None:
        super()._check_routes(routes)
        for mount, outer in self._outer:
            outer._check_routes([route.below(mount.prefix) for route in routes])  # noqa: SLF001  it is of this class

    def _check_not_mounted(self, what: str) -> None:
        if self._outer:
            mount, outer = self._outer[0]
            raise RuntimeError(
                f"{what} of the server {mount.name!r}, which is mounted: register it at the server {outer.identity.name!r}"
            )

    def _outer_resource_updated(self, uri: str) -> None:
        for mount, outer in tuple(self._outer):
            outer.resource_updated(mount.outer_uri(uri))

    # what a server does, for those that are mounted in it

    def resource_updated(self, uri: str) -> None:
        """Notify the clients that subscribe to a resource; `Server` overrides it."""

    def complete_elicitation(self, elicitation_id: str) -> bool:  # noqa: ARG002
        """Report that a user has finished at a page; `Server` overrides it."""
        return False

    def _is_served(self) -> bool:
        """Return whether it runs, alone or mounted in another one; `Server` overrides it."""
        return False


@asynccontextmanager
async def open_mounts(registry: Registry) -> AsyncIterator[dict[object, object]]:
    """Enter the lifespans of all servers that are mounted, however deep, each once; the value has their states."""
    states: dict[object, object] = {}
    servers = all_servers(registry)
    async with AsyncExitStack() as stack:
        for server, mounted in servers.items():
            states[server] = await stack.enter_async_context(mounted.open())
        # Together: each of them may be a server that is slow to start.
        async with trio.open_nursery() as nursery:
            for server, mounted in servers.items():
                if mounted.wait_ready is not None:
                    nursery.start_soon(mounted.wait_ready, states[server])
        yield states


def all_mounts(registry: Registry, outer: Mounts = ()) -> list[tuple[Mounts, Registry]]:
    """Return the way to each server that is mounted, however deep, and what it offers; those outside first."""
    found: list[tuple[Mounts, Registry]] = []
    for mount, inner in registry.mounts.items():
        path = (*outer, mount)
        found += [(path, inner), *all_mounts(inner, path)]
    return found


def mounted_offers(
    registry: Registry, outer: CallOffers, options: ServiceOptions, states: Mapping[object, object]
) -> dict[object, CallOffers]:
    """Return what each mounted server offers to its own calls, by server and by prefix."""
    found: dict[object, CallOffers] = {}
    for mount, inner in registry.mounts.items():
        own = mounted_at(mount).offers_within(outer, options, states[mount.server])
        own = own._replace(mounted=mounted_offers(inner, own, options, states))
        found[mount.server] = found[mount.prefix] = own
    return found


class MountedFollower(NamedTuple):
    """The follower of a mounted server, which knows the resources by their own URIs.

    Attributes:
        path: the mounts that lead to the server, from the outside.
        inner: its follower.
    """

    path: Sequence[server.mounts.MountPoint]
    inner: Follower

    def watch(self, uri: str, caller: Hashable | None, /) -> None:
        """Count one more subscription of a caller, if the resource may be one of the server."""
        found = self._inner(uri)
        if found is not None:
            self.inner.watch(found, caller)

    def unwatch(self, uri: str, caller: Hashable | None, /) -> None:
        """Count one less."""
        found = self._inner(uri)
        if found is not None:
            self.inner.unwatch(found, caller)

    def _inner(self, uri: str) -> str | None:
        found: str | None = uri
        for mount in self.path:
            found = None if found is None else mount.own_uri(found)
        return found


def followers_of(registry: Registry, states: Mapping[object, object]) -> Sequence[Follower]:
    """Return what lets mounted servers know of the resources that clients subscribe to; empty if none wants it."""
    return [
        MountedFollower(path, follower(states[path[-1].server]))
        for path, _ in all_mounts(registry)
        if (follower := mounted_at(path[-1]).follower) is not None
    ]


def mounted_at(mount: server.mounts.MountPoint) -> MountedServer:
    """Return how the server is used that is mounted here."""
    # Not the type of the attribute: items know their mounts, and a registry, which a server has, knows its items.
    return as_mounted(cast("Mountable", mount.server))


def all_servers(registry: Registry) -> dict[object, MountedServer]:
    """Return all servers that are mounted, however deep, each once, and how they are used."""
    return {path[-1].server: mounted_at(path[-1]) for path, _ in all_mounts(registry)}


def seconds_of(registry: Registry) -> float:
    """Return how long the ends of all mounted servers may take."""
    # Each counts those that are mounted in it.
    return sum(facts_of(server).lifespan_seconds for server in {mount.server for mount in registry.mounts})


def threads_of(registry: Registry) -> list[ThreadLimiter]:
    """Return where the plain functions of all mounted servers run."""
    return [mounted.threads for mounted in all_servers(registry).values() if mounted.threads is not None]
