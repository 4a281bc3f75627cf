"""The tools of group E, which need a capability, fail, log, and ask questions that fail."""

from __future__ import annotations

import json

from ....errors import PeerError, ProtocolError
from ....server import Context, Server
from ....session import Question
from ....types import LOGGING_LEVELS, EmptyResult, JsonObject, RequestParams
from ..stage import Stage

REFUSED = -32011
"""The code that `refuse` answers with."""

SEATS: JsonObject = {"seats": [1, 2], "left": None}
"""The data of its error."""


def add_lifecycle_tools(server: Server, stage: Stage) -> None:
    @server.tool(requires={"sampling"})
    async def gated() -> str:
        """Answer; only for clients that have a model."""
        stage.mark("gated")
        return "with a model"

    @server.tool
    async def refuse() -> str:
        """Answer with a protocol error that has data."""
        raise ProtocolError("these seats are taken", code=REFUSED, data=SEATS)

    @server.tool
    async def relay(ctx: Context) -> str:
        """Ask the client's model, and return the text of its error."""
        try:
            return (await ctx.sample("hello")).text
        except PeerError as error:
            return json.dumps([error.code, error.message, error.data])

    @server.tool
    async def ping_client(ctx: Context) -> str:
        """Ping the client, for which the public interface has no method."""
        sign = Question("ping", "ping", RequestParams(), EmptyResult, ())
        await ctx._call.ask(ctx._lane, sign)  # noqa: SLF001
        return "alive"

    @server.tool
    async def log_everything(ctx: Context) -> str:
        """Send a log message of every level, the least severe first."""
        for level in LOGGING_LEVELS:
            await ctx.log(level, f"this is {level}", logger="contract")
        return "logged"

    @server.tool
    async def folders(ctx: Context) -> str:
        """Return the folders that the client works in."""
        return " ".join(root.uri for root in await ctx.roots())
