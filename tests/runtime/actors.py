"""Bodies of actors, a limit that they may share, and a record of how actors ended."""

from __future__ import annotations

import trio

from trio_mcp.base.shared_limits import SharedLimit
from trio_mcp.runtime import Actor, Outcome

CUPS = SharedLimit("cups", 8, "none", "Kitchen.cups", cap="Kitchen.cups_per_guest")
"""A limit for quotas."""


class Ended:
    """Records how actors ended, and when; lets a test wait for the first."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[float, Outcome]] = []
        self._event = trio.Event()

    def __call__(self, _actor: Actor, outcome: Outcome) -> None:
        self.outcomes.append((trio.current_time(), outcome))
        self._event.set()

    async def first(self) -> tuple[float, Outcome]:
        """Return the time and the outcome of the first that ended."""
        with trio.fail_after(10_000):
            await self._event.wait()
        return self.outcomes[0]

    async def wait(self) -> Outcome:
        """Return the outcome of the only actor."""
        _, outcome = await self.first()
        assert len(self.outcomes) == 1, "an actor has exactly one outcome"
        return outcome


async def forever(_actor: Actor) -> None:
    await trio.sleep_forever()


async def quick(_actor: Actor) -> str:
    await trio.lowlevel.checkpoint()
    return "done"
