"""A server whose tools ask in every way there is, for the tests to serve over every transport there is.

Usage: rounds_app.py LOG. It serves on stdio; the file LOG tells, line by line, what became of calls that were cancelled.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from trio_mcp import Context, Elicited, Server, ServiceOptions
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.runtime import Limits

NAME = "rounds"
KEYS = KeyRing([bytes(range(32))])
"""Known to the tests, which make states of their own."""
PARKED_BYTES = 1_000_000
"""What the requests of parked calls may hold."""


class App:
    def __init__(self, log: Path) -> None:
        self.server = Server(
            NAME, version="1.0", options=ServiceOptions(keys=KEYS, actors=Limits(parked_bytes=PARKED_BYTES))
        )
        self._log = log
        self._effects: list[str] = []
        self._ended = trio.Event()
        for tool in (self.ask, self.twice, self.loop, self.many, self.every, self.then_wait):
            self.server.tool(tool)
        for tool in (self.reports, self.wait, self.ended, self.effects):
            self.server.tool(tool)

    async def ask(self, ctx: Context, to: str = "Lisbon") -> str:
        self._effects.append("asked")
        number = value_of(await ctx.elicit(f"How many to {to}?", int))
        self._effects.append(f"answered {number}")
        return f"{number} to {to}"

    async def twice(self, ctx: Context) -> str:
        first = value_of(await ctx.elicit("First?", int))
        second = value_of(await ctx.elicit(f"{first}, and second?", int))
        return f"{first} {second}"

    async def loop(self, n: int, ctx: Context) -> str:
        return " ".join([str(value_of(await ctx.elicit(f"Number {i}?", int))) for i in range(n)])

    async def many(self, n: int, ctx: Context) -> str:
        async def one(branch: Context) -> int:
            return value_of(await branch.elicit("Which?", int))

        return str(sum(await ctx.branch_all(*[one] * n)))

    async def every(self, ctx: Context) -> str:
        """One question of every kind, all at once."""
        number, told, folders = await ctx.branch_all(
            lambda branch: branch.elicit("Which?", int),
            lambda branch: branch.sample("Say something.", max_tokens=5),
            lambda branch: branch.roots(),
        )
        return f"{value_of(number)} {told.text} {folders[0].uri}"

    async def reports(self, ctx: Context) -> str:
        """Reports on each of its three legs."""
        for number in (1, 2):
            await ctx.progress(number)
            await ctx.log("info", f"leg {number}")
            await ctx.elicit("Go on?", bool)
        await ctx.progress(1)  # a new token starts anew
        await ctx.log("error", "leg 3")
        return "done"

    async def wait(self, ctx: Context) -> None:
        """Report that it has begun, and wait until it is cancelled."""
        try:
            await ctx.progress(1)
            await trio.sleep_forever()
        finally:
            with self._log.open("a") as log:
                log.write(f"{ctx.cancel_reason.value if ctx.cancel_reason else None}\n")
            self._ended.set()

    async def then_wait(self, ctx: Context) -> None:
        await ctx.elicit("Go on?", bool)
        await self.wait(ctx)

    async def ended(self) -> str:
        """Return when a waiting call has ended."""
        await self._ended.wait()
        return self._log.read_text()

    async def effects(self) -> str:
        return ", ".join(self._effects)


def value_of(answer: Elicited[int]) -> int:
    assert answer.action == "accept"
    return answer.content


if __name__ == "__main__":
    App(Path(sys.argv[1])).server.run()
