"""Changes in the other processes that share a store: each announces its own, and tells its subscribers of those of the others.

A notice comes at most once, and only says "look again". Where some may have been lost, everything counts as changed. A process
also asks another one by a notice to hand over a legacy session, and asks again as long as a request waits for it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, cast

import trio

from ..base.backoff import RECONNECT_BACKOFF
from ..base.logs import RepeatedRecords
from ..protocol.strict_json import dumps
from ..storage import Missed, Notice, SharedStore, StoreError
from .recovery.processes import Processes
from .subscriptions import METHODS, Change, ChangeKind, Subscriptions

TOPIC: Final = "change"

SESSION_TOPIC: Final = "session"
"""That of notices by which one process asks another for a session."""

MAIL: Final = "task-mail"
"""In the place of the kind of a change: answers for tasks have been stored."""

ALL: Final = "all"
"""In its place: more has changed than is named."""

STARTED: Final = "started"
"""In its place: this process listens from now on."""

LISTEN_SECONDS: Final = 2.0
"""How long a server waits at its start until it listens."""

MOST_UNSENT: Final = 1000
"""Changes that wait to be announced; if there are more, everything has changed."""


@dataclass(slots=True, eq=False)
class SharedChanges:
    """What one process announces to the others, and what it is notified of.

    A process that is alone announces no news of tasks.

    Args:
        node: returns the name of this process.
        processes: know whether there are others.
        on_mail: called when another process has stored answers for tasks.
        on_wanted: called with the key of a session that another process asks this one for.
        records: counts how often the store failed.
    """

    _store: SharedStore
    _node: Callable[[], str]
    _processes: Processes
    _subscriptions: Subscriptions
    _on_mail: Callable[[], None]
    _on_wanted: Callable[[str], None]
    _records: RepeatedRecords
    _unsent: dict[Change | str, None] = field(default_factory=dict[Change | str, None], init=False)
    """Each once, in the order in which they came."""
    _has_unsent: trio.Event = field(default_factory=trio.Event, init=False)
    _has_tried: trio.Event = field(default_factory=trio.Event, init=False)

    def tell(self, change: Change | str) -> None:
        """Announce a change of this process soon; in Trio's thread only."""
        # Tasks change often. What a process misses of them in the moment of its start, its clients see in their next poll.
        is_rare = isinstance(change, Change) and change.kind != "task"
        if not is_rare and not self._processes.are_others:
            return
        if len(self._unsent) >= MOST_UNSENT:
            self._unsent = {ALL: None}
        self._unsent[change] = None
        self._has_unsent.set()

    async def send(self) -> None:
        """Announce what has changed here. Runs until cancelled; what a store does not take is lost, and logged."""
        while True:
            await self._has_unsent.wait()
            self._has_unsent, unsent, self._unsent = trio.Event(), self._unsent, {}
            for change in unsent:
                try:
                    await self._announce(change)
                except StoreError as error:
                    self._records.log("a change is not known in the other processes: %s", error)

    async def _announce(self, change: Change | str) -> None:
        kind, uri = (change, None) if isinstance(change, str) else change
        try:
            await self._store.announce(TOPIC, dumps([self._node(), kind, uri]))
        except ValueError:
            # The URI is too long for a notice.
            await self._store.announce(TOPIC, dumps([self._node(), ALL, None]))

    async def wait_listening(self) -> None:
        """Wait until this process listens, or that has failed: a client that subscribes later misses nothing.

        Returns after `LISTEN_SECONDS` in any case.
        """
        with trio.move_on_after(LISTEN_SECONDS):
            await self._has_tried.wait()

    async def receive(self) -> None:
        """Deliver what has changed in other processes. Runs until cancelled; what cannot be read now is missed."""
        failures = 0
        while True:
            try:
                async with self._store.listen() as notices:
                    self._has_tried.set()
                    await self._announce(STARTED)
                    if failures:
                        self._deliver_all()
                    await self._deliver(notices)
            except (StoreError, OSError) as error:
                self._records.log("changes in the other processes are not known here: %s", error)
            self._has_tried.set()
            await trio.sleep(RECONNECT_BACKOFF.delay(failures))
            failures += 1

    async def _deliver(self, notices: AsyncIterator[Notice | Missed]) -> None:
        async for notice in notices:
            if isinstance(notice, Missed):
                self._deliver_all()
            elif notice.topic == TOPIC:
                self._deliver_one(notice.content)
            elif notice.topic == SESSION_TOPIC:
                self._deliver_wanted(notice.content)

    def _deliver_one(self, content: bytes) -> None:
        said = decoded(content)
        if said is None:
            # Of another version of this package.
            self._deliver_all()
            return
        node, kind, uri = said
        if node == self._node():
            return
        self._processes.heard()
        if kind == MAIL:
            self._on_mail()
        elif kind in METHODS:
            self._subscriptions.deliver(Change(cast("ChangeKind", kind), uri))
        elif kind != STARTED:
            self._deliver_all()

    def _deliver_wanted(self, content: bytes) -> None:
        match decoded(content):
            case (node, _, str(key)) if node == self._node():
                self._on_wanted(key)

    def _deliver_all(self) -> None:
        self._on_mail()
        self._subscriptions.deliver_all()


def wanted(node: str, key: str) -> bytes:
    """Return the content of the notice by which a process is asked for a session."""
    return dumps([node, SESSION_TOPIC, key])


def decoded(content: bytes) -> tuple[str, str, str | None] | None:
    """Return the process, the kind and the URI that a notice names; None if it is not one of this version."""
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        return None
    match said:
        case [str(node), str(kind), str() | None as uri]:
            return node, kind, uri
        case _:
            return None
