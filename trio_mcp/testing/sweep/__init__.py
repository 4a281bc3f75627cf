"""Cancelling a scenario everywhere: at its k-th step for every k, and its connection after the b-th message for every b.

    effects = Effects()
    server = Server("shop")

    @server.tool
    async def buy(ctx: Context) -> str:
        sure = await ctx.elicit("Sure?", bool)
        effects.did("charged")
        return "bought"

    async def scenario(client: Client) -> None:
        await client.call_tool("buy")

    sweep(server, scenario, on_elicit=lambda _asked: accept(value=True), effects=effects).check()

The scenario runs once as it is, and then again and again, each time with one interruption. After each run everything must be
as it was before: every request has exactly one of a result, an error and no reply, no message follows a reply, no effect
has happened twice, and no actor, mailbox, pending id, listener, parked call or task is left, nor any object of a call that
only the garbage collector would free.

A run is deterministic: its clock is virtual, and Trio's scheduler is given a seed. So a problem names the interruption that
shows it, and `only` repeats that one.
"""

from .run import Play, Strike, Way
from .sweeping import Effects, Problem, SweepReport, sweep, sweep_play

__all__ = ["Effects", "Play", "Problem", "Strike", "SweepReport", "Way", "sweep", "sweep_play"]
