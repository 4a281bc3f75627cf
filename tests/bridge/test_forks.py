"""A fork while Trio is the guest of an asyncio loop: the child has a copy of the loop, which it must not use."""

from __future__ import annotations

import subprocess
import sys

import pytest
from on_asyncio import BOUND

PROGRAM = """
import asyncio, os, sys, warnings
import trio
from trio_mcp import Client, Server
from trio_mcp.session.event_loop import await_on_trio
# Python warns of a fork beside other threads, as those of Trio are.
warnings.simplefilter("ignore")
server, children = Server("forking"), []

def forked() -> str:
    child = os.fork()
    children.append(child)
    return "parent" if child else "child"

@server.tool(asyncio=True)
async def on_asyncio() -> str:
    return forked()

@server.tool
async def on_trio() -> str:
    return forked()

@server.tool
def in_a_thread() -> str:
    return forked()

async def main() -> None:
    async with Client.connect(server) as client:
        if FORKS_ITSELF:
            if forked() == "child":
                os._exit(3)
        else:
            # One write each: a child would come here, too.
            os.write(1, (await client.call_tool(sys.argv[1])).text.encode())
        _, status = os.waitpid(children[0], 0)
        os.write(1, b" %d" % os.waitstatus_to_exitcode(status))
        await client.ping()

"""
IN_PROGRAM = "asyncio.run(main())"
BESIDE_TRIO = "trio.run(main)"


def said(program: str, tool: str, *, forks_itself: bool = False) -> str:
    # In another process: should the rule be broken, the child would go on with these tests.
    text = PROGRAM.replace("FORKS_ITSELF", str(forks_itself)) + program
    ran = subprocess.run([sys.executable, "-c", text, tool], capture_output=True, text=True, timeout=BOUND, check=True)
    return ran.stdout


@pytest.mark.parametrize("program", [IN_PROGRAM, BESIDE_TRIO], ids=["in a program", "beside Trio"])
@pytest.mark.parametrize("tool", ["on_asyncio", "on_trio", "in_a_thread"])
def test_a_child_that_returns_from_a_body_ends_and_the_server_goes_on(program: str, tool: str) -> None:
    assert said(program, tool) == "parent 1"


def test_a_child_that_leaves_the_loop_alone_disturbs_no_client() -> None:
    assert said(IN_PROGRAM, "", forks_itself=True) == " 3"
