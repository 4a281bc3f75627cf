"""Tools of the contract's server that report, ask in between, and end their stream."""

from __future__ import annotations

from ....server import Context, Server
from ..stage import Stage


def add_telling_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask_model_twice(ctx: Context) -> str:
        """Ask the model twice, one after the other."""
        first = (await ctx.sample("first")).text
        return f"{first}, {(await ctx.sample('second')).text}"

    @server.tool
    async def tell(n: int, ctx: Context, name: str = "tell", gates: int = 1) -> str:
        """Report once, and n times more behind each gate."""
        await ctx.progress(0)
        for gate in range(gates):
            stage.mark(f"{name} waits")
            await stage.gate(f"{name} {gate}")
            for done in range(n):
                await ctx.progress(gate * n + done + 1)
        stage.mark(f"{name} reported")
        return f"{name} reported {gates * n}"

    @server.tool
    async def tell_and_ask(ctx: Context) -> str:
        """Report, wait at a gate, ask, and report again."""
        await ctx.progress(1)
        stage.mark("tell_and_ask began")
        await stage.gate("tell_and_ask")
        answer = await ctx.elicit("And now?", str)
        await ctx.progress(2)
        return answer.content if answer.action == "accept" else answer.action

    @server.tool
    async def let_go(ctx: Context) -> str:
        """Report, end the stream of the response, and report again afterwards."""
        await ctx.progress(1)
        await ctx.end_stream(0)
        stage.mark("stream ended")
        await ctx.progress(2)
        return "still here"
