"""A proxy as `trio-mcp backfill` is one, with a model that is scripted: `relay_app.py stdio|http SERVER...`.

SERVER is a URL, or a command and its arguments.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from trio_mcp import Backfill, RelayServer
from trio_mcp.client.target import open_target
from trio_mcp.server.running import run_process
from trio_mcp.session import AnyChannel, find_transport
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent, ToolUseContent


class Scripted:
    """Answers with a poem, or by using the first tool that it may use."""

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        if request.tools:
            use = ToolUseContent(id="u1", name=request.tools[0].name, input={"at": "sky"})
            return CreateMessageResult(role="assistant", content=[use], model="scripted", stop_reason="toolUse")
        # In a list, as the providers have what the APIs of models answer.
        content = [TextContent(text="So be it.")]
        return CreateMessageResult(role="assistant", content=[*content], model="scripted", stop_reason="endTurn")


@asynccontextmanager
async def connect() -> AsyncIterator[AnyChannel]:
    command = sys.argv[2:]
    target, options = (command[0], {}) if "://" in command[0] else (command, {"env": dict(os.environ)})
    async with open_target(target, options) as channel:
        yield channel


async def serve(relay: RelayServer) -> None:
    options = {"port": 0} if sys.argv[1] == "http" else {}
    await find_transport(sys.argv[1]).serve(relay, **options)


run_process(partial(serve, RelayServer(connect, Backfill(Scripted()))))
