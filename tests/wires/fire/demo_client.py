"""A client that has the conversation of `trio-mcp demo`, and is killed after a given message.

Usage: demo_client.py MODE URL, or demo_client.py MODE COMMAND... It reads lines `NUMBER [ARGUMENT]`: after NUMBER messages the
client, a separate process, is gone with SIGKILL; ARGUMENT is one more for the COMMAND. It says `killed`, or `done` when the
conversation was over before that.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from trio_mcp import accept
from trio_mcp.cli.commands import demo
from trio_mcp.client import Client, ClientOptions, Handlers
from trio_mcp.client.target import open_target
from trio_mcp.session import Envelope
from trio_mcp.types import Implementation

LIMIT = 50.0


class Fuse:
    """Kills this process after a number of messages."""

    def __init__(self, length: int) -> None:
        self._left = length

    def burn(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class FusedChannel(trio.abc.Channel[Envelope]):
    """A client's channel on which each message, sent or received, burns the fuse."""

    def __init__(self, channel: trio.abc.Channel[Envelope], fuse: Fuse) -> None:
        self._channel = channel
        self._fuse = fuse

    async def send(self, value: Envelope) -> None:
        await self._channel.send(value)
        self._fuse.burn()

    async def receive(self) -> Envelope:
        envelope = await self._channel.receive()
        self._fuse.burn()
        return envelope

    async def aclose(self) -> None:
        await self._channel.aclose()


@asynccontextmanager
async def fused(
    connection: AbstractAsyncContextManager[trio.abc.Channel[Envelope]], fuse: Fuse
) -> AsyncIterator[FusedChannel]:
    async with connection as channel:
        yield FusedChannel(channel, fuse)


async def converse(mode: str, target: str | Sequence[str], length: int) -> None:
    """The conversation of the demo."""
    answers = iter([accept(flight="TP3", seat="aisle"), accept(value=True)])
    # A WebSocket is open only when the server has answered. On a machine that is busy with other tests that may take longer than
    # the ten seconds of a client, and no server has left anything behind then.
    by_url = {"connect_timeout": LIMIT}
    options = by_url if isinstance(target, str) else {"env": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
    made = ClientOptions(
        handlers=Handlers(on_elicit=lambda _asked: next(answers), on_sample=lambda _asked: "Lunch in the sun."),
        mode=mode,
        info=Implementation(name="victim", version="1"),
        probe_timeout=LIMIT,
    )
    client = Client(fused(open_target(target, options), Fuse(length)), made)
    with trio.fail_after(LIMIT):
        async with client:
            result = await client.call_tool("book_flight", {"destination": "Lisbon"}, on_progress=lambda _report: None)
    assert result.text == demo.EXPECTED, result


def sacrifice(mode: str, target: str | Sequence[str], length: int) -> str:
    """Fork, since all that is slow about a new client is to load it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            trio.run(converse, mode, target, length)
            code = 0
        except Exception:  # noqa: BLE001  os._exit would lose it
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return "killed"
    return "done" if os.waitstatus_to_exitcode(status) == 0 else f"failed with {status}"


def main(mode: str, *target: str) -> None:
    is_url = target[0].startswith(("http:", "ws:"))
    # Loads the transport, which each child would load again. It connects when it is entered.
    open_target(target[0] if is_url else target, {})
    for line in sys.stdin:
        length, *more = line.split()
        whom = target[0] if is_url else [*target, *more]
        print(sacrifice(mode, whom, int(length)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
