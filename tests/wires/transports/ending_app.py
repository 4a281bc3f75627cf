"""A real server, for the tests to start as a separate process and to end while its tools run, or have left something behind.

Usage: ending_app.py [options of the transport as JSON] [transport]. `trio-mcp serve ending_app.py` works too.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import trio

from trio_mcp import Server
from trio_mcp.session import pump
from trio_mcp_transports import hard_end
from trio_mcp_transports.hypercorn import serve as serving

server = Server("ending")


def say(what: str) -> None:
    # In one piece: `print` writes the end of the line by itself.
    os.write(2, f"{what}\n".encode())


@server.tool
async def deaf() -> str:
    """No cancel reaches it."""
    say("running")
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()
    return "never"


@server.tool
async def blocks() -> str:
    """Nor does anything else."""
    say("running")
    time.sleep(3600)  # noqa: ASYNC251
    return "never"


@server.tool
async def queries() -> str:
    """It waits in C code, which does not come back for signals."""
    say("running")
    sqlite3.connect(":memory:").execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT sum(i) FROM n"
    )
    return "never"


@server.tool
async def matches() -> str:
    """It keeps the interpreter's lock too, but `re` handles signals now and then."""
    say("running")
    re.match("(a+)+b", "a" * 64)
    return "never"


@server.tool
async def locks() -> str:
    """From its cancel on it keeps the interpreter's lock, so that no thread runs Python code any more."""
    say("running")
    try:
        await trio.sleep_forever()
    finally:
        ctypes.PyDLL(None).sleep(3600)
    return "never"


@server.tool
async def cleans_up() -> str:
    say("running")
    try:
        await trio.sleep_forever()
    finally:
        say("cleaning up")
        with trio.CancelScope(shield=True):
            await trio.sleep(0.5)
        say("cleaned up")


def hang_for_ever() -> None:
    threading.Event().wait()


def spin_for_ever() -> None:
    """Its frames change all the time."""
    depth = 0
    while True:
        depth = descend(depth % 50)


def descend(depth: int) -> int:
    return descend(depth - 1) if depth else 7


@server.tool
async def leaves_a_thread() -> str:
    threading.Thread(target=hang_for_ever, name="left behind").start()
    say("running")
    return "left"


@server.tool
async def leaves_an_executor() -> str:
    ThreadPoolExecutor(thread_name_prefix="pool").submit(hang_for_ever)
    say("running")
    return "left"


@server.tool
async def leaves_busy_threads() -> str:
    for _ in range(int(os.environ.get("BUSY_THREADS", "4"))):
        threading.Thread(target=spin_for_ever).start()
    say("running")
    return "left"


@server.tool
async def leaves_an_idle_executor() -> str:
    """Python ends its worker when the process ends."""
    await trio.to_thread.run_sync(ThreadPoolExecutor(1).submit(len, "").result)
    say("running")
    return "left"


@server.tool
def hangs() -> str:
    """In a thread of ours, which is a daemon."""
    say("running")
    hang_for_ever()
    return "never"


if __name__ == "__main__":
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    vars(pump).update({"CLEAN_UP": options.pop("clean_up", pump.CLEAN_UP)})
    vars(hard_end).update({"GIL_GRACE": options.pop("gil_grace", hard_end.GIL_GRACE)})
    vars(serving).update({"HARD_END_AFTER": options.pop("hard_end_after", serving.HARD_END_AFTER)})
    server.run(*sys.argv[2:], **options)
    say("after run")
