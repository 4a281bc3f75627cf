"""FastMCP's client, which logs in with a browser: `fastmcp_login.py URL MODE`. It runs in a separate environment.

It writes a line for each step, and waits for a line before the last one.
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.auth import OAuth


async def main(url, mode):
    # It keeps what it has got between the two connections.
    auth = OAuth(url)
    async with Client(url, auth=auth, mode=mode) as client:
        print((await client.call_tool("read")).content[0].text, flush=True)
        print((await client.call_tool("write", {"text": "x"})).content[0].text, flush=True)
        auth.context.token_expiry_time = 1.0
        print((await client.call_tool("write", {"text": "y"})).content[0].text, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with Client(url, auth=auth, mode=mode) as client:
        print((await client.call_tool("write", {"text": "z"})).content[0].text, flush=True)


asyncio.run(main(*sys.argv[1:]))
