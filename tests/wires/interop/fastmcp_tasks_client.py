"""FastMCP's client with tasks, controlled by its one argument; prints what it saw as one line of JSON.

{"target": "http://..." | ["python", "server.py"], "env": {...}, "mode": "auto" | "legacy"}; it runs in a separate environment.
"""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task

WAIT = 20.0
"""Seconds for each wait."""


async def answer(message, response_type, params, context):
    return {"value": 7}


async def main(target, env, mode):
    transport = StdioTransport(command=target[0], args=target[1:], env=env) if isinstance(target, list) else target
    async with Client(transport, elicitation_handler=answer, mode=mode) as client:
        seen = {"called": (await client.call_tool("report", {"year": 1})).content[0].text}
        if mode != "legacy":
            seen.update(await tasks(client))
    print(json.dumps(seen))


async def tasks(client):
    """It has tasks in the modern era only."""
    report = await call_tool_task(client, "report", {"year": 2})
    await report.wait(state="input_required", timeout=WAIT)
    # The question may be seen before the message that was set before it is stored.
    waiting = await report.status()
    endless = await call_tool_task(client, "endless")
    await endless.cancel()
    broken = await (await call_tool_task(client, "break_off", raise_on_error=False)).wait(timeout=WAIT)
    return {
        "created": report.create_result.status,
        "waiting": [waiting.status, waiting.status_message],
        "result": (await report.result()).content[0].text,
        "cancelled": (await endless.wait(timeout=WAIT)).status,
        "broken": [broken.status, broken.status_message, broken.error["code"]],
    }


asyncio.run(main(**json.loads(sys.argv[1])))
