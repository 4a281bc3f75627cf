"""The server of a chaos run, as one process of several: `python server.py PORT HOME`, with the store of `TRIO_MCP_STORE`.

`HOME/clock-PORT` holds how far its clock is off, as a C double. The tools have two effects, `charge` and `ship`, and most ask in
between.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import signal
import struct
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
# It must not outlive the run, however that ends.
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

PORT, HOME = int(sys.argv[1]), Path(sys.argv[2])

with (HOME / f"clock-{PORT}").open("rb") as clock_file:
    clock = mmap.mmap(clock_file.fileno(), 8, prot=mmap.PROT_READ)
machine_time = time.time
# Before anything is imported that takes the function.
time.time = lambda: machine_time() + struct.unpack("d", clock[:8])[0]

import trio  # noqa: E402

from chaos.ledger import Ledger  # noqa: E402
from trio_mcp import Context, Server, ServiceOptions, TaskOptions  # noqa: E402

ledger = Ledger(HOME / "ledger")
options = ServiceOptions(tasks=TaskOptions(poll_interval=0.2))
server = Server("chaos", version="1", options=options)


async def work() -> None:
    """Take some time, so that a fault comes in the middle of it now and then."""
    await trio.sleep(random.choice((0.0, 0.0, 0.05, 0.3)))


async def have(operation: str, effect: str) -> str:
    """Have an effect."""
    await work()
    ledger.add(operation, effect)
    await work()
    return effect


async def in_steps(operation: str, ctx: Context) -> str:
    await ctx.step("charge", have, operation, "charge")
    await ctx.progress(1, 2)
    answer = await ctx.elicit("Ship it?", bool)
    await ctx.step("ship", have, operation, "ship")
    return f"{operation} {answer.action}"


@server.tool(resume="replay")
async def replayed(operation: str, ctx: Context) -> str:
    """Charge, ask and ship, in steps."""
    return await in_steps(operation, ctx)


@server.tool(resume="parked")
async def parked(operation: str, ctx: Context) -> str:
    """Charge, ask and ship, outside of steps."""
    await have(operation, "charge")
    await ctx.progress(1, 2)
    answer = await ctx.elicit("Ship it?", bool)
    await have(operation, "ship")
    return f"{operation} {answer.action}"


@server.tool(resume="parked")
async def quick(operation: str) -> str:
    """Charge and ship, without a question and outside of steps."""
    await have(operation, "charge")
    await have(operation, "ship")
    return f"{operation} accept"


@server.tool(task=True, resume="replay")
async def job(operation: str, ctx: Context) -> str:
    """Charge, ask and ship, in steps and as a task."""
    await ctx.status("charging")
    return await in_steps(operation, ctx)


server.run("http", port=PORT, drain=1.0)
