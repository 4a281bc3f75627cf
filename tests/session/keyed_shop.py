"""A shop whose tools count what they have done, served by one process after the other over one durable store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from crashing_store import CrashingStore, Disk
from late_store import Lateness, LateStore, in_time
from peer import EVERYTHING
from talk import Legacy, play
from task_talk import DECLARES
from wire_terms import IDEMPOTENCY_KEY, OUTCOME_UNKNOWN, REPEAT_OF

from trio_mcp import Context, Server, ServiceOptions
from trio_mcp.session import KeyRing
from trio_mcp.types import ToolAnnotations

SHOP_KEYS = KeyRing([bytes(32)])


class Shop:
    """Tools that count what they have done, over all processes."""

    def __init__(self, grace: float = 60.0) -> None:
        self.grace = grace
        self.disk = Disk()
        self.done: list[str] = []
        self.hold = trio.Event()
        """The held tools wait for it."""

    def server(self, store: CrashingStore) -> Server:
        options = ServiceOptions(store=store, keys=SHOP_KEYS, outcome_grace=self.grace)
        server = Server("shop", options=options)
        server.tool(self.pay)
        server.tool(self.pay_slowly)
        server.tool(resume="replay")(self.order)
        server.tool(resume="replay")(self.asking_order)
        server.tool(annotations=ToolAnnotations(idempotent_hint=True))(self.set_price)
        server.tool(task=True, resume="replay")(self.report)
        return server

    async def pay(self) -> str:
        self.done.append("pay")
        await self.hold.wait()
        return f"paid {len(self.done)}"

    async def pay_slowly(self, ctx: Context) -> str:
        await ctx.progress(1)
        return await self.pay()

    async def order(self, ctx: Context) -> str:
        await ctx.step("charge", self.act, "charge")
        await self.hold.wait()
        await ctx.step("ship", self.act, "ship")
        return "ordered"

    async def asking_order(self, ctx: Context) -> str:
        await ctx.step("charge", self.act, "charge")
        answer = await ctx.elicit("Ship it?", bool)
        await ctx.step("ship", self.act, "ship")
        return f"{answer.action}"

    async def set_price(self) -> str:
        self.done.append("price")
        await self.hold.wait()
        return "set"

    async def report(self) -> str:
        self.done.append("report")
        await trio.sleep_forever()
        return ""

    async def act(self, what: str) -> str:
        self.done.append(what)
        return what


class Process:
    """One process of the shop, with one connection."""

    def __init__(self, player: Legacy, store: LateStore) -> None:
        self.player, self.store = player, store

    @property
    def node(self) -> str:
        return self.player.talk.service.calls.node

    async def call(self, name: str, repeat_of: str | None = None, key: str = "k", **arguments: Any) -> None:
        meta = {IDEMPOTENCY_KEY: key, **({} if repeat_of is None else {REPEAT_OF: repeat_of})}
        await self.player.call(name, arguments, meta=meta)

    async def text(self) -> str:
        return await self.player.text()

    async def text_of(self, name: str, repeat_of: str | None = None, key: str = "k") -> str:
        """Make a call; return the text of its result."""
        await self.call(name, repeat_of, key)
        return await self.text()

    async def code_of(self, name: str, repeat_of: str | None = None, key: str = "k") -> int:
        """Make a call; return the code of its error."""
        await self.call(name, repeat_of, key)
        return int((await self.player.error())["code"])

    async def has_lost(self, name: str, repeat_of: str | None = None) -> bool:
        """Make a call; return whether its outcome is unknown."""
        await self.call(name, repeat_of)
        return (await self.player.error()).get("data") == {OUTCOME_UNKNOWN: True}

    def hang_up(self) -> None:
        """Let the client's connection end."""
        for target in list(self.player.talk.session.requests):
            self.player.talk.session.disconnect(target)


@asynccontextmanager
async def process(
    shop: Shop, era: type[Legacy], lateness: Lateness = in_time, *, takes_tasks: bool = False
) -> AsyncIterator[Process]:
    """A process of the shop, which is killed at the end of the block.

    Args:
        lateness: of its writes, which may overtake each other.
        takes_tasks: its client declares that it does.
    """
    store = LateStore(shop.disk, lateness, any_order_of=("record", "log"))
    async with play(shop.server(store), era, DECLARES if takes_tasks else EVERYTHING) as player:
        yield Process(player, store)
        store.crash()
    # What is on its way is made nevertheless.
    store.make_late()
