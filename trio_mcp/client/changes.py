"""The changes that one listener hears of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

import trio

from ..errors import without_traceback
from ..protocol.uri.parts import is_part_of
from ..types import Model, ResourceUpdatedNotificationParams, SubscriptionFilter

ChangeKind: TypeAlias = Literal["tools", "prompts", "resources", "updated"]

MAX_PENDING = 1024
"""Changes that wait to be read; beyond them those of single resources become one for each resource listened for."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something at the server changed.

    Attributes:
        kind: "tools", "prompts" or "resources": that list is another; "updated": so is what a resource holds.
        uri: the resource that was updated, which may be a part of the one that was listened for; else None.
    """

    kind: ChangeKind
    uri: str | None = None


OnChange: TypeAlias = Callable[[Change], None]

LISTS: Mapping[str, ChangeKind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


def change_of(method: str, params: Model) -> Change | None:
    """What a notification says has changed; None when it is about something else."""
    if isinstance(params, ResourceUpdatedNotificationParams):
        return Change("updated", params.uri)
    kind = LISTS.get(method)
    return None if kind is None else Change(kind)


def asked_for(wanted: SubscriptionFilter) -> list[Change]:
    """A change of each kind that a filter lets through."""
    lists: list[tuple[bool | None, ChangeKind]] = [
        (wanted.tools_list_changed, "tools"),
        (wanted.prompts_list_changed, "prompts"),
        (wanted.resources_list_changed, "resources"),
    ]
    changes = [Change(kind) for on, kind in lists if on]
    return changes + [Change("updated", uri) for uri in wanted.resource_subscriptions or ()]


def common(wanted: SubscriptionFilter, honoured: SubscriptionFilter) -> SubscriptionFilter:
    """What a server honours of what was asked for; what it adds on its own means nothing (M-SUB-2s)."""
    asked = set(wanted.resource_subscriptions or ())
    return SubscriptionFilter(
        tools_list_changed=(wanted.tools_list_changed and honoured.tools_list_changed) or None,
        prompts_list_changed=(wanted.prompts_list_changed and honoured.prompts_list_changed) or None,
        resources_list_changed=(wanted.resources_list_changed and honoured.resources_list_changed) or None,
        resource_subscriptions=[uri for uri in dict.fromkeys(honoured.resource_subscriptions or ()) if uri in asked]
        or None,
    )


class Source(Protocol):
    """Where changes come from."""

    async def begin(self, changes: Changes, /) -> None:
        """Start to tell of changes; returns when the server has agreed, or raises."""
        ...

    async def finish(self, changes: Changes, /) -> None:
        """Tell no more. Shielded and bounded."""
        ...


class Changes:
    """The changes that one listener hears of; made by `Client.listen`.

        async with client.listen(tools=True, uris=["config://app"]) as changes:
            async for change in changes:
                ...

    The iteration ends when the server ends the stream, and raises `Disconnected` when the connection ended. A change that is not
    read yet is there once, however often it happens. After an interruption everything that was listened for is reported,
    because it may have changed meanwhile.
    """

    def __init__(self, source: Source, wanted: SubscriptionFilter) -> None:
        self.agreed = SubscriptionFilter()
        """What the server honours, as far as it is known; `honoured` for whoever listens."""
        self.wanted = wanted
        self._source = source
        self._pending: dict[Change, None] = {}
        self._begun = False
        self._left = False
        self._over = False
        self._failure: Exception | None = None
        self._stir = trio.Event()

    async def __aenter__(self) -> Self:
        """Start to listen; returns when the server has agreed.

        Raises:
            PeerError, RequestTimeout, Disconnected: it did not.
            RuntimeError: it was opened before; each `listen` is for once.
        """
        if self._begun:
            raise RuntimeError("this was opened before; call client.listen(...) again")
        self._begun = True
        await self._source.begin(self)
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Tell the server that nobody listens any more; bounded, also when cancelled."""
        self._left = True
        self.end()
        await self._source.finish(self)  # noqa: ASYNC102  it is shielded and bounded itself

    def __aiter__(self) -> Self:
        if self._left:  # who iterates already sees the end instead
            raise RuntimeError("the `async with` of this listener has ended, and with it what could be heard")
        return self

    async def __anext__(self) -> Change:
        """The next change. A cancel loses none."""
        self._check_begun()
        while not self._pending:
            if self._failure is not None:
                raise without_traceback(self._failure)
            if self._over:
                raise StopAsyncIteration
            if self._stir.is_set():  # else another task waits for it already
                self._stir = trio.Event()
            await self._stir.wait()
        await trio.lowlevel.checkpoint()
        change = next(iter(self._pending), None)
        if change is None:  # another task took it during the checkpoint
            return await self.__anext__()
        del self._pending[change]
        return change

    def __repr__(self) -> str:
        state = "over" if self._over else "open" if self._begun else "unopened"
        return f"<Changes {state} pending={len(self._pending)}>"

    @property
    def honoured(self) -> SubscriptionFilter:
        """What the server agreed to tell of: less than was asked for, perhaps.

        Raises:
            RuntimeError: it was not asked yet.
        """
        self._check_begun()
        return self.agreed

    # for the room

    def offer(self, change: Change) -> None:
        """Note a change if it was asked for."""
        if not self._wants(change):
            return
        if len(self._pending) >= MAX_PENDING and change not in self._pending:
            self._pending = {noted: None for noted in self._pending if noted.kind != "updated"}
            self.missed()
        self._pending[change] = None
        self._stir.set()

    def missed(self) -> None:
        """Everything that the server tells of may have changed unheard."""
        for change in asked_for(self.agreed):
            self._pending[change] = None
        self._stir.set()

    def end(self, failure: Exception | None = None) -> None:
        """No more changes; the first reason stays."""
        if not self._over:
            self._over = True
            self._failure = None if failure is None else without_traceback(failure)
        self._stir.set()

    @property
    def failure(self) -> Exception | None:
        """Why there are no more changes; None as long as there may be, and after a good end."""
        return self._failure

    def _check_begun(self) -> None:
        if not self._begun:
            raise RuntimeError("open it with `async with`: async with client.listen(...) as changes")

    def _wants(self, change: Change) -> bool:
        if change.uri is None:
            return change in asked_for(self.wanted)
        return any(is_part_of(change.uri, whole) for whole in self.wanted.resource_subscriptions or ())
