"""A server whose effects are lines in a file, and whose process kills itself in the middle of calls.

    effects_server.py DIRECTORY          over stdio
    effects_server.py http PORT          over HTTP and WebSocket, or over `WIRE`; the directory is in the environment

With keys in the environment, its store is a file in the directory. A file `die PLACE` there lets the process die at that place,
and `die at NUMBER` before that message, of those that it receives and sends.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from trio_mcp import Context, Server, ServiceOptions
from trio_mcp.runtime import Outbox
from trio_mcp.session import ServerSession
from trio_mcp.types import ToolAnnotations

OVER_HTTP = sys.argv[1] == "http"
HOME = Path(os.environ["EFFECTS"] if OVER_HTTP else sys.argv[1])

options = ServiceOptions(store=str(HOME / "state.db")) if "TRIO_MCP_KEYS" in os.environ else ServiceOptions()
server = Server("effects", version="1", options=options)


def act(what: str) -> str:
    """Have an effect."""
    with (HOME / "effects").open("a") as effects:
        effects.write(f"{what}\n")
        effects.flush()
        os.fsync(effects.fileno())
    return what


def die_once(place: str) -> None:
    """Kill this process if it is to die here; the next one lives."""
    deadly = HOME / f"die {place}"
    if deadly.exists():
        deadly.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


@server.tool
async def act_once(what: str) -> str:
    """Have an effect that must not be had twice, outside of any step."""
    die_once("before")
    act(what)
    die_once("after")
    return what


@server.tool(resume="replay")
async def act_in_steps(what: str, ctx: Context) -> list[str]:
    """Have two effects in steps, and die between them."""
    first = await ctx.step("first", act, f"{what} 1")
    die_once("between")
    second = await ctx.step("second", act_or_die, f"{what} 2")
    return [first, second]


def act_or_die(what: str) -> str:
    act(what)
    die_once("inside")
    return what


@server.tool(resume="replay")
async def act_and_ask(what: str, ctx: Context) -> str:
    """Have an effect, ask, and die with the answer."""
    done = await ctx.step("act", act, what)
    answer = await ctx.elicit("Keep it?", bool)
    die_once("answered")
    return f"{done} {answer.action}"


@server.tool(task=True, resume="replay")
async def report(what: str, ctx: Context) -> str:
    """Have an effect, ask, and have another one, as a task."""
    await ctx.status("working")
    first = await ctx.step("first", act, f"{what} 1")
    answer = await ctx.elicit("Keep it?", bool)
    second = await ctx.step("second", act, f"{what} 2")
    return f"{first} {answer.action} {second}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def process_id() -> int:
    """The process that answers."""
    return os.getpid()


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def crash() -> None:
    """Kill the process, each time."""
    os.kill(os.getpid(), signal.SIGKILL)


class Fuse:
    """Kills this process before a message."""

    def __init__(self, deadly: Path, messages: int) -> None:
        self._deadly = deadly
        self._left = messages

    def burn(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._deadly.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def light(self, owner: type, name: str) -> None:
        """Let each call of a method burn it."""
        method = getattr(owner, name)

        def burning(*args: object, **options: object) -> object:
            self.burn()
            return method(*args, **options)

        setattr(owner, name, burning)


for found in HOME.glob("die at *"):
    fuse = Fuse(found, int(found.name.rpartition(" ")[2]))
    fuse.light(ServerSession, "receive")
    fuse.light(Outbox, "post")
    fuse.light(Outbox, "send")

if OVER_HTTP:
    server.run(os.environ.get("WIRE", "http"), port=int(sys.argv[2]))
else:
    server.run()
