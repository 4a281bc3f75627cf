"""A server whose resource is expensive to find, and a record of when it is looked for and when other tasks have a turn."""

# The annotations are read when the function is made: they name a local function.

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import trio
from peer import Json
from pydantic import AfterValidator

from trio_mcp import Server
from trio_mcp.runtime.loop_turn import TURN

CHARACTERS = 8_000
READS = 60


def at_once(characters: int = CHARACTERS) -> int:
    """Return how many URIs of so many characters may be compared, with a template of two parts, in one turn."""
    return TURN // (2 * characters) + 1


class ExpensiveReads:
    """Attributes:
    events: the number of each request when its URI was compared with the template, and each turn of a bystander as "turn".
    """

    def __init__(self) -> None:
        self.server, self.events = Server("cost"), list[str]()

        def compared(path: str) -> str:
            self.events.append(path[:3])
            return path

        async def cost(path: Annotated[str, AfterValidator(compared)]) -> str:
            return path[:3]

        self.server.add_resource("cost:/{+path}", cost)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Let a bystander run whenever it can, within the block."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._bystander)
            await trio.lowlevel.checkpoint()
            yield
            nursery.cancel_scope.cancel()

    async def _bystander(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.events.append("turn")

    @property
    def compared(self) -> list[str]:
        """The numbers of the requests, in the order in which they were processed."""
        return [event for event in self.events if event != "turn"]

    @property
    def most_at_once(self) -> int:
        """How many were processed between two turns of the bystander, at most."""
        return max(len(part.split()) for part in " ".join(self.events).split("turn"))


ORDER = [f"{number:03}" for number in range(1, READS + 1)]


def expensive_uri(number: int, characters: int = CHARACTERS) -> str:
    return f"cost:/{number:03}/{'a' * characters}"


def expensive_read(number: int) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": "resources/read", "params": {"uri": expensive_uri(number)}}


EXPENSIVE_READS = [expensive_read(number) for number in range(1, READS + 1)]
