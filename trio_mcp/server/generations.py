"""The versions of a server whose code is replaced while it is served, each with its lifespan and the calls that began with it."""

# One task holds the lifespan of one version. It shields itself once the lifespan has started, as `open_lifespan` does.
#
#   step                       the task of the version                     its calls
#   start                      enters the lifespans; a cancel reaches it   none
#   in service                 waits for `retired`                         begin and end
#   replaced: `retired`        waits until `usage` is zero                 those that run or are parked go on
#   the last one has ended     closes the lifespans, bounded               none
#
# At the end of the service all versions are retired. Their calls have ended by then, since the service was closed first.

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from ..groups import UnwrappedErrors
from ..logs import peer_logger
from ..session import MessageChannel, Service, ServiceOptions
from ..session.calls.services import Usage
from .composing import open_mounts
from .server import Server

logger = peer_logger("trio_mcp.server")


@dataclass(slots=True, eq=False)
class Generation:
    """One version of a server, whose lifespans are open.

    Attributes:
        state, states: of its lifespan, and of those of the servers that are mounted in it.
        usage: counts the calls that began with it.
        retired: set when no call begins with it any more.
        was_replaced: whether another version has taken its place.
        on_ended: called when its lifespans have been closed.
    """

    server: Server
    state: object
    states: Mapping[object, object]
    usage: Usage = field(default_factory=Usage)
    retired: trio.Event = field(default_factory=trio.Event)
    was_replaced: bool = False
    on_ended: Callable[[], None] = lambda: None

    def open_service(
        self, options: ServiceOptions, channel: MessageChannel | None
    ) -> AbstractAsyncContextManager[Service]:
        """Open a service that begins with this version; see `Server.open_service`."""
        return self.server._open_with(self.state, self.states, options, channel, self.usage)  # noqa: SLF001

    def take_over(self, service: Service, earlier: Generation) -> None:
        """Offer this version in a service in place of another one, in one step; the other one ends with its last call.

        Raises:
            ValueError: what it offers cannot be served. Nothing has changed.
        """
        server = self.server
        server.registry.remember_offered(earlier.server.registry)
        offers = server._offers(service.options, self.state, self.states)  # noqa: SLF001
        server._take_over(service, earlier.server, offers, self.usage)  # noqa: SLF001
        earlier.replace(partial(earlier.server._forget, service))  # noqa: SLF001

    def leave(self, service: Service) -> None:
        """Have nothing more to do with a service that ends."""
        self.server._leave(service)  # noqa: SLF001

    def replace(self, on_ended: Callable[[], None]) -> None:
        """Close the lifespans when the last call has ended."""
        self.was_replaced, self.on_ended = True, on_ended
        self.retired.set()


class Generations:
    """The versions whose lifespans are open."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._open: dict[Generation, None] = {}
        self._starting: dict[trio.CancelScope, None] = {}

    async def open(self, server: Server) -> Generation:
        """Enter the lifespans of a server. A cancel closes what was entered.

        Raises:
            RuntimeError: the service ends meanwhile.
            Exception: what the lifespans raise.
        """
        scope = trio.CancelScope()
        self._starting[scope] = None
        try:
            with scope:
                generation: Generation = await self._nursery.start(
                    self._hold, server, name=f"a version of {server.identity.name}"
                )
                return generation
        finally:
            del self._starting[scope]
        raise RuntimeError("the service has ended")

    async def _hold(self, server: Server, *, task_status: trio.TaskStatus[Generation]) -> None:
        generation: Generation | None = None
        try:
            with trio.CancelScope() as scope:
                async with server.open_mounted() as state, open_mounts(server.registry) as states:
                    # See `open_lifespan`.
                    await trio.lowlevel.checkpoint_if_cancelled()
                    scope.shield = True
                    generation = Generation(server, state, states)
                    self._open[generation] = None
                    task_status.started(generation)
                    await generation.retired.wait()
                    await generation.usage.wait_unused()
        except Exception:
            if generation is None or not generation.was_replaced:
                raise
            # The server goes on with other code, which has nothing to do with it.
            logger.exception("the lifespan of the replaced code of %s failed", server.identity.name)
        finally:
            if generation is not None:
                del self._open[generation]
                generation.on_ended()

    def retire_all(self) -> None:
        """Let all of them close, and give up those that start: nothing is served any more."""
        for scope in self._starting:
            scope.cancel("the service has ended")
        for generation in self._open:
            generation.retired.set()

    def __len__(self) -> int:
        return len(self._open)


@asynccontextmanager
async def open_generations() -> AsyncIterator[Generations]:
    """Own the lifespans that are opened in the block; leaving it closes them all, at the same time.

    Raises:
        Exception: what the lifespan of the version in service raised, unchanged; the block is cancelled then.
    """
    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            generations = Generations(nursery)
            try:
                yield generations
            finally:
                generations.retire_all()
