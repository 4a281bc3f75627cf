"""A server whose tool says what a test tells it to, and the requests of one legacy session."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing
from asgi_peer import LEGACY, AsgiPeer, Reply, legacy_call, served

from trio_mcp import CancelReason, Context, Server
from trio_mcp.storage import EventStore, LogKey
from trio_mcp.stores import MemoryEventStore
from trio_mcp_transports.http import HttpLimits, asgi_app

GRACE = 30.0


@dataclass
class Talk:
    """One run of the tool `talk`: it does what it is told, one thing after the other."""

    orders: trio.MemorySendChannel[object]
    heard: trio.MemoryReceiveChannel[object]
    done: int = 0
    reason: CancelReason | None = None
    over: trio.Event = field(default_factory=trio.Event)

    async def say(self, *numbers: int) -> None:
        """Let it report this progress, and return when nothing more happens by itself."""
        for number in numbers:
            self.orders.send_nowait(number)
        await trio.testing.wait_all_tasks_blocked()

    async def end_stream(self, retry: float | None = None) -> None:
        self.orders.send_nowait(("end", retry))
        await trio.testing.wait_all_tasks_blocked()

    async def answer(self, text: str = "done") -> None:
        self.orders.send_nowait(text)
        await trio.testing.wait_all_tasks_blocked()


class Stage:
    """A server with the tool `talk`, and the runs of it by name."""

    def __init__(self) -> None:
        self.server = Server("stage", version="1.0")
        self.talks: dict[str, Talk] = {}
        self.server.tool(self.talk)

    def expect(self, name: str = "a") -> Talk:
        orders, heard = trio.open_memory_channel[object](math.inf)
        self.talks[name] = Talk(orders, heard)
        return self.talks[name]

    async def talk(self, ctx: Context, name: str = "a") -> str:
        talk = self.talks[name]
        try:
            async for order in talk.heard:
                if isinstance(order, str):
                    return order
                await self.obey(ctx, order)
                talk.done += 1
        finally:
            talk.reason = ctx.cancel_reason
            talk.over.set()
        return "never told"

    async def obey(self, ctx: Context, order: object) -> None:
        match order:
            case int(number):
                await ctx.progress(number)
            case ("end", float() | int() | None as retry):
                await ctx.end_stream(retry)


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
    return [[told(each) for each in event] if isinstance(event, list) else told(event) for event in reply.events]


def told(message: Any) -> Any:
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
