"""The resources that a proxy subscribes to at its server, each once, for as long as a host subscribes to it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from ..runtime.quota import Quota, add_to
from ..shared_limits import FOLLOWED_RESOURCES
from .server_client import ServerClient


class Followed:
    """The `Follower` of one server behind a proxy.

    A resource counts once, for the caller that has subscribed to it first; when that one leaves, for the next.

    Args:
        clients: returns the connections that are open. All of them subscribe, since a process reports only its own changes.
    """

    def __init__(self, clients: Callable[[], Iterable[ServerClient]]) -> None:
        self._clients = clients
        self._quota = Quota(FOLLOWED_RESOURCES)
        self._callers: dict[str, dict[Hashable | None, int]] = {}
        """How many subscriptions each caller has, by URI; the first caller counts."""

    def watch(self, uri: str, caller: Hashable | None, /) -> None:
        """Count one more subscription of a caller; the first of all subscribes at the server.

        Raises:
            LimitExceeded: there are as many resources as there may be, or the caller has its share of them.
        """
        callers = self._callers.get(uri)
        if callers is None:
            self._quota.take(caller)
            callers = self._callers[uri] = {}
            for client in self._clients():
                client.watch(uri)
        add_to(callers, caller, 1)

    def unwatch(self, uri: str, caller: Hashable | None, /) -> None:
        """Count one less; the last of all ends the subscription at the server."""
        callers = self._callers.get(uri, {})
        if caller not in callers:
            return
        counted = next(iter(callers))
        add_to(callers, caller, -1)
        if not callers:
            del self._callers[uri]
            self._quota.give_back(counted)
            for client in self._clients():
                client.unwatch(uri)
        elif counted not in callers:
            self._quota.give_back(counted)
            self._quota.add(next(iter(callers)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._callers)

    def __repr__(self) -> str:
        return f"<Followed {len(self._callers)} resources>"
