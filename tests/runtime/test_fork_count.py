"""A body that forks: the child that returns from it ends, and never uses the connections that it has a copy of."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
import sys
import trio
from trio_mcp.runtime import open_supervisor

children = []

async def body(actor):
    child = os.fork()
    if child:
        children.append(child)

def on_done(actor, outcome):
    # The child must not come here.
    os.write(1, b"done\\n")

async def main():
    async with open_supervisor() as supervisor:
        supervisor.start(body, on_done)
        while not children or supervisor.actors:
            await trio.lowlevel.checkpoint()
    _, status = os.waitpid(children[0], 0)
    os.write(1, b"child %d\\n" % os.waitstatus_to_exitcode(status))

trio.run(main)
"""


def test_a_child_that_returns_from_a_body_ends_without_reporting_an_outcome() -> None:
    # In another process: should the rule be broken, the child would go on with these tests.
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "done\nchild 1\n"
