"""A small server on the real stdio transport, for the tests to start as a separate process.

Usage: stdio_app.py [options as JSON]. It answers each request with its params; some methods first do what a tool might.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial

import trio

from trio_mcp.protocol.jsonrpc import Malformed, Notification, Request, Response
from trio_mcp.session import Envelope
from trio_mcp_transports.entry_points import stdio as transport


class App:
    async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
        """Cancelled or not, the clean-up is reported on stderr."""
        try:
            async for envelope in channel:
                await self._answer(channel, envelope)
        except trio.BrokenResourceError as error:
            print(f"broken: {error}", file=sys.stderr)
        finally:
            print("cleaned up", file=sys.stderr)

    async def _answer(self, channel: trio.abc.Channel[Envelope], envelope: Envelope) -> None:
        match envelope.message:
            case Request(id, method, params):
                result = await self._call(method)
                await channel.send(Envelope(Response(id, params if result is None else {"is": result})))
            case Malformed(error):
                await channel.send(Envelope(Notification("malformed", {"code": error.code})))
            case _:
                pass

    async def _call(self, method: str) -> str | bool | int | None:
        match method:
            case "noise":
                print("from print")
                os.write(1, b"from fd 1\n")
                os.system("echo from a child")  # noqa: ASYNC221  (what a careless tool does)
            case "inherited":
                return len(_descriptors_of_a_child())
            case "stderr is blocking":
                return os.get_blocking(2)
            case "pid":
                return os.getpid()
            case "hang":
                print("busy")
                await trio.sleep_forever()
            case "slow":
                await trio.sleep(0.5)
            case "block":
                print("busy")
                time.sleep(3600)  # noqa: ASYNC251
            case "shield":
                print("busy")
                with trio.CancelScope(shield=True):
                    await trio.sleep_forever()
            case "big":
                return "x" * 1_000_000
        return None


def _descriptors_of_a_child() -> list[str]:
    """What a child that is started without `close_fds` has open beyond the standard three (and the listing itself)."""
    listing = "import os; print(*[n for n in os.listdir('/dev/fd') if int(n) > 2])"
    child = subprocess.run([sys.executable, "-c", listing], stdout=subprocess.PIPE, text=True, close_fds=False)
    return child.stdout.split()[1:]


if __name__ == "__main__":
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    trio.run(partial(transport.serve, App(), **options))
    print("after serving")
