"""The versions of a server whose code is replaced while it is served, each with its lifespan and the calls that began with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Final

import trio

from ..base.groups import UnwrappedErrors
from ..base.logs import peer_logger
from ..http import HttpOptions
from ..protocol.sealing.request_state import KeyRing
from ..runtime import MemoryBudget
from ..session import MessageChannel, Service, ServiceOptions
from ..session.calls.services import Usage
from ..session.subscriptions import PROMPTS, RESOURCES, TOOLS, Change
from ..types import Model, ServerCapabilities
from .access import Restricted
from .composing import open_mounts
from .pages import Offer
from .registry import Registry
from .server import Server

# One task holds the lifespan of one version. It shields itself once the lifespan has started, as `open_lifespan` does.
#
#   step                       the task of the version                     its calls
#   start                      enters the lifespans; a cancel reaches it   none
#   in service                 waits for `retired`                         begin and end
#   replaced: `retired`        waits until `usage` is zero                 those that run or are parked go on
#   the last one has ended     closes the lifespans, bounded               none
#
# At the end of the service all versions are retired. Their calls have ended by then, since the service was closed first.


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
        offers = server._offers(service.options, self.state, self.states, self.usage)  # noqa: SLF001
        server._take_over(service, earlier.server, offers)  # noqa: SLF001
        earlier.replace(partial(earlier.server._forget, service))  # noqa: SLF001

    def leave(self, service: Service) -> None:
        """Forget a service that ends."""
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


# What differs between two versions of a server: the lists that clients see, and the settings that only a restart applies.

IDENTITY: Final = ("name", "version", "title", "description", "website_url", "icons")


def changed_lists(old: Server, new: Server) -> list[Change]:
    """Return the lists that differ for some client."""
    tools = old._listed_tools() != new._listed_tools()  # noqa: SLF001
    before, now = old.registry, new.registry
    resources = models(before.resources) != models(now.resources) or models(before.templates) != models(now.templates)
    prompts = models(before.prompts) != models(now.prompts)
    # Which callers see an item is decided by a function, and what another function decides is not known.
    hides = {change for each in (before, now) for change in hiding_lists(each)}
    differs = {TOOLS: tools, PROMPTS: prompts, RESOURCES: resources}
    return [change for change, changed in differs.items() if changed or change in hides]


def hiding_lists(registry: Registry) -> Iterator[Change]:
    """Yield the lists that have items which some callers do not see."""
    if Restricted(registry.tools).hideable():
        yield TOOLS
    if Restricted(registry.prompts).hideable():
        yield PROMPTS
    if Restricted(registry.resources).hideable() or Restricted(registry.templates).hideable():
        yield RESOURCES


def models(items: Iterable[Offer]) -> list[Model]:
    return [item.model for item in items]


def changed_settings(old: Server, new: Server) -> list[str]:
    """Return the settings that a running service keeps, by name: who the server is, and its limits and times."""
    identity = [name for name in IDENTITY if not is_same(getattr(old.identity, name), getattr(new.identity, name))]
    return identity + [f"options.{name}" for name in changed_fields(old.options, new.options)]


def changed_http(old: HttpOptions | None, new: HttpOptions | None) -> list[str]:
    """Return the settings of serving over HTTP that differ, by name. Code of a function that is in both is not a difference."""
    before, now = old or HttpOptions(), new or HttpOptions()
    names = [name for name in changed_fields(before, now) if name not in ("authenticate", "routes")]
    if (before.authenticate is None) != (now.authenticate is None):
        names.insert(0, "authenticate")
    known = [served_route(route) for route in before.routes]
    added = [route for route in now.routes if served_route(route) not in known]
    names += [f"the route {route.whole_path}" for route in added]
    here = [served_route(route) for route in now.routes]
    names += [f"the route {route.whole_path}" for route in before.routes if served_route(route) not in here]
    return [name if name.startswith("the ") else f"http.{name}" for name in dict.fromkeys(names)]


def served_route(route: object) -> tuple[object, ...]:
    """Return all of a route but its function."""
    return tuple(getattr(route, name) for name in ("whole_path", "methods", "public", "max_body", "timeout"))


def new_capabilities(before: ServerCapabilities, now: ServerCapabilities) -> list[str]:
    """Return the capabilities that are declared now and were not before, by name."""
    known, declared = before.wire(), now.wire()
    return [f"capabilities.{name}" for name in declared if name not in known]


def changed_fields(old: object, new: object) -> list[str]:
    return [each.name for each in fields(old) if not is_same(getattr(old, each.name), getattr(new, each.name))]  # type: ignore[arg-type]


def is_same(old: object, new: object, within: frozenset[tuple[int, int]] = frozenset()) -> bool:
    """Return whether two values of a setting do the same, as far as that can be seen.

    Each version of a file makes new objects and new functions. Functions are compared by their code and the values that they
    hold, key rings by their keys, budgets by their sizes, dataclasses by their fields, and an object that does not say what
    equals it by its class alone: its fields are not compared, for they change while it is used, and some are new at each load.

    Args:
        within: the values that these two are part of, by their identities: a function may hold itself.
    """
    if old is new or (id(old), id(new)) in within or old == new:
        return True
    within |= {(id(old), id(new))}
    if isinstance(old, FunctionType) and isinstance(new, FunctionType):
        return same_code(old.__code__, new.__code__) and is_same(held_by(old), held_by(new), within)
    if isinstance(old, CodeType) and isinstance(new, CodeType):
        return same_code(old, new)
    if isinstance(old, type) and isinstance(new, type):
        return same_class(old, new)
    if isinstance(old, KeyRing) and isinstance(new, KeyRing):
        return old.is_random and new.is_random
    if isinstance(old, MemoryBudget) and isinstance(new, MemoryBudget):
        return old.total == new.total
    if isinstance(old, MethodType) and isinstance(new, MethodType):
        return is_same((old.__func__, old.__self__), (new.__func__, new.__self__), within)
    if isinstance(old, partial) and isinstance(new, partial):
        return is_same((old.func, old.args, old.keywords), (new.func, new.args, new.keywords), within)
    if not same_class(type(old), type(new)) or isinstance(old, str | bytes | int | float | Model):
        return False
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return list(old) == list(new) and is_same([*old.values()], [*new.values()], within)
    if isinstance(old, Sequence) and isinstance(new, Sequence):
        return len(old) == len(new) and all(is_same(*pair, within) for pair in zip(old, new, strict=True))
    if is_dataclass(old):
        return all(is_same(getattr(old, each.name), getattr(new, each.name), within) for each in fields(old))
    # `object` compares identities.
    return type(old).__eq__ is object.__eq__


def same_code(old: CodeType, new: CodeType) -> bool:
    """Return whether two functions have the same code, wherever that is in its file."""
    parts = ((each.co_qualname, each.co_code, each.co_names, each.co_freevars) for each in (old, new))
    return next(parts) == next(parts) and is_same(old.co_consts, new.co_consts)


def held_by(function: FunctionType) -> list[object]:
    """Return the values that a function holds: of its defaults, and of the variables around it that it uses."""
    keywords = sorted((function.__kwdefaults__ or {}).items())
    return [*(function.__defaults__ or ()), *keywords, *map(content, function.__closure__ or ())]


def content(cell: CellType) -> object:
    """Return what a variable of an enclosing function has; None before it is assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def same_class(old: type, new: type) -> bool:
    """Return whether a class is another one, or the same one of another version of its module."""
    return (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__)
