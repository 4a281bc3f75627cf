"""The services in which a server runs, and what is announced to their clients. Its methods work in any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from ..session import Service
from ..session.changes import Change
from .registry import Registry


class RunningServices:
    """The running services of one server, in the order in which they were opened; the copies of the server share them."""

    def __init__(self) -> None:
        self._current: dict[Service, Registry] = {}
        """What each offers: copies of the server may have other registries."""
        # A dict is an ordered set here.
        self._former: dict[Service, None] = {}
        """Those in which another server has taken the place of this one, and calls of this one may still run."""
        self._declaring = threading.Lock()

    def __iter__(self) -> Iterator[Service]:
        return iter(list(self._current))

    def __len__(self) -> int:
        return len(self._current)

    def add(self, service: Service, registry: Registry) -> None:
        """Add a service that begins with what a registry has."""
        self._current[service] = registry

    def remove(self, service: Service) -> None:
        """Remove a service that ends, unless another server has taken the place of this one in it."""
        self._current.pop(service, None)

    def take_over(self, service: Service, registry: Registry, earlier: RunningServices) -> None:
        """Add a service of another server, in which this one has taken its place, with what a registry has.

        The other server still announces changes of resources there, until `forget`: its calls may still run.
        """
        del earlier._current[service]
        earlier._former[service] = None
        self._current[service] = registry

    def forget(self, service: Service) -> None:
        """Have nothing more to do with a service in which another server has taken the place of this one."""
        self._former.pop(service, None)

    def announce(self, change: Change) -> None:
        """Announce a change of a list."""
        for service in self:
            service.subscriptions.announce(change)

    def resource_updated(self, uri: str) -> None:
        """Announce that a resource has changed, also where another server has taken the place of this one."""
        for service in [*self._current, *self._former]:
            service.subscriptions.announce(Change("updated", uri))

    def complete_elicitation(self, elicitation_id: str) -> bool:
        """Report that a user has finished at the page of a URL elicitation; return whether a service waited for that."""
        services = (*self._current, *self._former)
        return any(service.calls.url_elicitations.complete(elicitation_id) for service in services)

    def declare(self) -> None:
        """Declare in each service the capabilities of what is registered for it now."""
        # Under a lock: without it, what one thread read before another's change could be written after it.
        with self._declaring:
            for service, registry in list(self._current.items()):
                service.declare(registry.capabilities)
