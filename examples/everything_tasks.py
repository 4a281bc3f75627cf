"""The tools of `everything_server.py` that run as tasks: calls that outlive their request."""

from __future__ import annotations

import trio
from pydantic import BaseModel

from trio_mcp import Context, Server, ToolError
from trio_mcp.errors import ProtocolError

PAUSE = 0.05  # seconds for which a job works


class Confirm(BaseModel):
    confirm: bool


class Person(BaseModel):
    name: str


def add_tasks(server: Server) -> None:
    """Offer all of them."""
    server.tool(greet)
    server.tool(task="required")(failing_job)
    server.tool(task="later", resume="replay")(test_tool_with_task)
    for each in (slow_compute, protocol_error_job, confirm_delete, multi_input):
        server.tool(task=True)(each)


def greet(name: str) -> str:
    """Greet; never as a task."""
    return f"Hello, {name}!"


async def slow_compute(seconds: float, label: str = "") -> str:
    """Take some seconds."""
    await trio.sleep(seconds)
    return f"Computed {label} in {seconds:g} seconds."


async def failing_job() -> str:
    """Fail with an error that the model can read."""
    await trio.sleep(PAUSE)
    raise ToolError("This job intentionally returns an error for testing")


async def protocol_error_job() -> str:
    """Fail with an error of the protocol."""
    await trio.sleep(PAUSE)
    raise ProtocolError("This job intentionally fails for testing", code=-32603)


async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask whether a file may be deleted."""
    answer = await ctx.elicit(f"Delete {filename}?", Confirm)
    return f"{filename}: {'deleted' if answer.action == 'accept' and answer.content.confirm else 'kept'}"


async def multi_input(ctx: Context) -> str:
    """Ask two questions at once, which may be answered one by one."""
    return " ".join(await ctx.branch_all(ask_again, ask_again))


async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name in the call itself, and then go on as a task."""
    person = await ctx.elicit.strict("What is your name?", Person)
    await ctx.become_task()
    await trio.sleep(PAUSE)
    return f"Hello, {person.name}!"


async def ask_again(ctx: Context) -> str:
    return (await ctx.elicit("Are you sure?", Confirm)).action
