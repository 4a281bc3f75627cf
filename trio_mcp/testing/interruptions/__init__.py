"""Interrupt a scenario at each of its steps, and its connection after each of its messages.

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

The scenario runs once without an interruption, and then once with each. After each run nothing may be left: every request has
exactly one of a result, an error and no reply; no message about a request follows its reply; no effect has happened twice; and
there is no actor, mailbox, pending id, subscriber, parked call or task, nor any object of a call that only the garbage collector
would free.

A run is deterministic: its clock is virtual, and Trio's scheduler gets a seed. So a problem names the interruption that causes
it, and `only` repeats that one.
"""
