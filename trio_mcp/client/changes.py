"""`Changes`: the changes that one subscriber receives; and `Listeners`, which subscribes to them at the server."""

# A subscriber reads at its own pace, and the reader of the connection must not wait for it. So changes are queued, but never the
# same change twice: a change says "read it again", and a second one adds nothing to that. The queue is therefore limited by the
# number of different changes, and above `MAX_PENDING` those of single resources are replaced by one for each URI of the filter.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self, TypeAlias

import trio

from ..base.checks import check_sequence
from ..errors import CapabilityError, Disconnected, without_traceback
from ..protocol.uri.uris import is_part_of, normal_uri
from ..session import ClientSession
from ..session.event_loop import works_on_asyncio
from ..session.subscriptions import LISTS, Change, changes_matching, filter_of, lists_in
from ..types import SubscriptionFilter
from .requester import Requester

MAX_PENDING = 1024
"""Changes that wait to be read. Above it, those of single resources are replaced by one for each resource of the filter."""


OnChange: TypeAlias = Callable[[Change], None]
"""A plain function, called with each change that the server reports."""


def intersection(wanted: SubscriptionFilter, honoured: SubscriptionFilter) -> SubscriptionFilter:
    """Return the part of `wanted` that the server honours; anything else that it names is ignored (M-SUB-2s)."""
    requested, lists = {normal_uri(uri) for uri in wanted.resource_subscriptions or ()}, lists_in(honoured)
    # A server may repeat a URI; a subscriber that sees it twice would release it twice.
    uris = [uri for uri in dict.fromkeys(honoured.resource_subscriptions or ()) if normal_uri(uri) in requested]
    return filter_of([kind for kind in lists_in(wanted) if kind in lists], uris)


def subscription_filter(tools: bool, prompts: bool, resources: bool, uris: Sequence[str]) -> SubscriptionFilter:
    """Return the filter for the arguments of `Client.listen`; raise if they name nothing or have the wrong type."""
    check_sequence("uris", uris, str, 'a list of URIs, such as ["config://app"]', "a URI, as a string")
    if not (tools or prompts or resources or uris):
        raise ValueError("listen to something: tools, prompts, resources, or the uris of some")
    flags = zip(LISTS, (tools, prompts, resources), strict=True)
    return filter_of([kind for kind, flag in flags if flag], uris)


class Listeners(ABC):
    """All subscribers of one client.

    Args:
        on_change: called with each change, before any subscriber gets it.

    What a session brings, `dispatch_change` and `restore`, does nothing here: a modern server has none.
    """

    def __init__(self, link: Requester, on_change: OnChange) -> None:
        self._link = link
        self._on_change = on_change

    @abstractmethod
    async def begin(self, changes: Changes, /) -> None:
        """Subscribe to changes; returns when the server has agreed, or raises."""

    @abstractmethod
    async def finish(self, changes: Changes, /) -> None:
        """Unsubscribe again. Shielded and bounded."""

    async def subscribe(self, uri: str) -> None:  # noqa: ARG002
        """Subscribe to one resource, for `on_change` alone.

        Raises:
            CapabilityError: the server's revision has no such request.
        """
        raise CapabilityError("subscribe is for legacy servers; a modern one has Client.listen for it", {})

    async def unsubscribe(self, uri: str) -> None:  # noqa: ARG002
        """Take one `subscribe` back. Raises the same errors."""
        raise CapabilityError("unsubscribe is for legacy servers; a modern one has Client.listen for it", {})

    @abstractmethod
    def end(self, why: Disconnected) -> None:
        """End every subscription: the connection is closed, or nothing is announced on it any more."""

    @property
    def needs_session(self) -> bool:
        """Whether a subscriber waits for what only an open session brings. A lost session is then reopened immediately."""
        return False

    def dispatch_change(self, change: Change) -> None:  # noqa: B027
        """Pass a change that came on the session to the subscribers that want it."""

    def begin_session(self) -> None:  # noqa: B027
        """Note that another session is being opened, in which changes may be announced again."""

    async def restore(self, session: ClientSession) -> None:  # noqa: B027
        """Subscribe again in a session that was reopened, and report what may have changed meanwhile."""


class Changes:
    """The changes that one subscriber receives; made by `Client.listen`.

        async with client.listen(tools=True, uris=["config://app"]) as changes:
            async for change in changes:
                ...

    The iteration ends when the server ends the stream. If no more changes can arrive, it raises `Disconnected` (the connection
    or the stream of a legacy session ended), or the server's error (it rejects the subscription). A change that happens again
    before it is read is reported once. After an interruption, a change is reported for everything that you subscribed to,
    because some may have been missed.
    """

    def __init__(self, find_source: Callable[[], Listeners], wanted: SubscriptionFilter) -> None:
        self.honoured_filter = SubscriptionFilter()
        """What the server honours, as far as it is known; `honoured` is for the subscriber."""
        self.wanted = wanted
        self._find_source = find_source
        self._source: Listeners | None = None
        self._pending: dict[Change, None] = {}
        self._exited = False
        self._over = False
        self.failure: Exception | None = None
        """Why the iteration failed; None while it is open, and after a regular end."""
        self._readers = trio.lowlevel.ParkingLot()

    @works_on_asyncio
    async def __aenter__(self) -> Self:
        """Subscribe; returns when the server has agreed.

        Raises:
            PeerError, RequestTimeout, Disconnected: the server did not agree.
            RuntimeError: it was entered before; call `listen` again for another one.
        """
        if self._source is not None:
            raise RuntimeError("this was opened before; call client.listen(...) again")
        # Found here and not in `listen`, which may be called before the client is open.
        self._source = self._find_source()
        await self._source.begin(self)
        return self

    @works_on_asyncio
    async def __aexit__(self, *_error: object) -> None:
        """Unsubscribe; bounded, also when cancelled."""
        self._exited = True
        self.end()
        assert self._source is not None
        await self._source.finish(self)  # noqa: ASYNC102  it is shielded and bounded itself

    def __aiter__(self) -> Self:
        # Only for a new iteration: it is a mistake of the program. One that runs already ends.
        if self._exited:
            raise RuntimeError("the `async with` of this listener has ended: iterate inside of it")
        return self

    @works_on_asyncio
    async def __anext__(self) -> Change:
        """Wait for the next change and return it. A cancel loses none."""
        self._check_begun()
        while not self._pending:
            if self.failure is not None:
                raise without_traceback(self.failure)
            if self._over:
                raise StopAsyncIteration
            await self._readers.park()
        # Before the change is taken, so that a cancel here loses none.
        await trio.lowlevel.checkpoint()
        change = next(iter(self._pending), None)
        # Another task took it during the checkpoint.
        if change is None:
            return await self.__anext__()
        del self._pending[change]
        return change

    def __repr__(self) -> str:
        state = "over" if self._over else "open" if self._source else "unopened"
        return f"<Changes {state} pending={len(self._pending)}>"

    @property
    def honoured(self) -> SubscriptionFilter:
        """The changes that the server will report, which may be fewer than requested.

        Raises:
            RuntimeError: the subscription has not begun.
        """
        self._check_begun()
        return self.honoured_filter

    # for the change source

    def offer(self, change: Change) -> None:
        """Queue a change if the subscriber wants it; after the end nothing more is queued."""
        if self._over or not self._wants(change):
            return
        if len(self._pending) >= MAX_PENDING and change not in self._pending:
            self._pending = {noted: None for noted in self._pending if noted.kind != "updated"}
            self.add_all()
        self._pending[change] = None
        self._readers.unpark_all()

    def add_all(self) -> None:
        """Queue one change of each kind that the server honours."""
        for change in changes_matching(self.honoured_filter):
            self._pending[change] = None
        self._readers.unpark_all()

    def report_missed(self, on_change: OnChange) -> None:
        """Report everything that the server honours as changed, because it may have changed during an interruption."""
        if self._over:
            return
        for change in changes_matching(self.honoured_filter):
            on_change(change)
        self.add_all()

    def end(self, failure: Exception | None = None) -> None:
        """End the iteration once the queued changes are read. The first reason stays."""
        if not self._over:
            self._over = True
            self.failure = None if failure is None else without_traceback(failure)
        self._readers.unpark_all()

    def _check_begun(self) -> None:
        if self._source is None:
            raise RuntimeError("open it with `async with`: async with client.listen(...) as changes")

    def _wants(self, change: Change) -> bool:
        if change.uri is None:
            return change in changes_matching(self.wanted)
        return any(is_part_of(change.uri, whole) for whole in self.wanted.resource_subscriptions or ())
