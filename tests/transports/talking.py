"""The requests of one legacy session, what they bring, and a store that a test may hold up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio
import trio.testing
from asgi_peer import LEGACY, AsgiPeer, Reply, legacy_call, served
from stage import Stage, Talk

from trio_mcp import Server
from trio_mcp.stores import EventStore, LogKey, MemoryEventStore
from trio_mcp_transports.http import HttpLimits, asgi_app

__all__ = ["GRACE", "Session", "Stage", "Talk", "WatchedStore", "said", "talking"]

GRACE = 30.0


@dataclass
class Session:
    """The requests of one session."""

    peer: AsgiPeer
    headers: Mapping[str, str]

    async def call(self, name: str = "a", id: object = 2) -> Reply:
        """Start `talk`; returns when nothing more happens by itself."""
        call = legacy_call("talk", {"name": name}, id=id, _meta={"progressToken": f"token {name}"})
        return await self._settled(self.peer.start(call, self.headers))

    async def get(self, last: str | None = None, **headers: str) -> Reply:
        """A GET, to resume after the event `last` if there is one."""
        resumed = {} if last is None else {"last-event-id": last}
        named = {**self.headers, "accept": "text/event-stream", **headers, **resumed}
        return await self._settled(self.peer.start(b"", named, method="GET"))

    async def delete(self) -> Reply:
        return await self.peer.post(b"", self.headers, method="DELETE")

    async def drop(self, reply: Reply) -> None:
        """The connection breaks."""
        reply.gone.set()
        await trio.testing.wait_all_tasks_blocked()

    async def _settled(self, reply: Reply) -> Reply:
        await trio.testing.wait_all_tasks_blocked()
        return reply


@asynccontextmanager
async def talking(
    stage: Stage | Server, *, store: EventStore | None = None, grace: float = GRACE, version: str = LEGACY
) -> AsyncIterator[Session]:
    """A served stage and a session of it."""
    server = stage.server if isinstance(stage, Stage) else stage
    app = asgi_app(server, limits=HttpLimits(disconnect_grace=grace), event_store=store)
    async with served(app) as peer:
        yield Session(peer, await peer.open_session(version=version))


def said(reply: Reply) -> list[Any]:
    """What a reply brought: progress as numbers, an answer as its text, those of a batch as a list."""
    return [
        [content_of(each) for each in event] if isinstance(event, list) else content_of(event) for event in reply.events
    ]


def content_of(message: Any) -> Any:
    return message["params"]["progress"] if "method" in message else message["result"]["content"][0]["text"]


class WatchedStore(MemoryEventStore):
    """A store that a test may hold up or break, and that counts what is written."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self.go_on = trio.Event()
        self.go_on.set()
        self.broken = False
        self.writes = 0

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        self.writes += 1
        if self.broken:
            raise RuntimeError("the disk is full")
        await self.go_on.wait()
        await super().append(key, first, events)

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        events = await super().read(key, after, limit)
        await self.go_on.wait()
        return events

    def hold(self) -> None:
        self.go_on = trio.Event()
