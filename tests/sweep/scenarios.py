"""What is swept: tools that do one thing each, and what a client does with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from peer import ChannelClient

from trio_mcp import Context, PeerError, Server
from trio_mcp.client import Client
from trio_mcp.errors import BranchLimit
from trio_mcp.session import MessageChannel
from trio_mcp.testing import Effects

Json = dict[str, Any]
Scenario = Callable[[Client], Awaitable[object]]

effects = Effects()
server = Server("swept", version="1", page_size=2)

NOTE = "note://today"


@server.tool
async def plain() -> str:
    """Return at once."""
    effects.did("plain")
    return "done"


@server.tool
async def raising(ctx: Context) -> str:
    """Fail in an unexpected way."""
    await ctx.progress(1)
    raise RuntimeError("unexpected")


@server.tool
async def sleeping() -> str:
    """Take its time."""
    await trio.sleep(1)
    effects.did("slept")
    return "awake"


@server.tool
async def reporting(ctx: Context) -> str:
    """Say how far it is, and say it to the log."""
    for done in range(1, 4):
        await ctx.progress(done, 3)
        await ctx.log("info", {"done": done})
    return "reported"


@server.tool(heartbeat=0.4)
async def beating(ctx: Context) -> str:
    """Report by itself, before and after a question."""
    await trio.sleep(1)
    await ctx.elicit("Go on?", int)
    await trio.sleep(1)
    effects.did("beaten")
    return "done"


@server.tool
async def reading(ctx: Context) -> str:
    """Read a resource that asks."""
    contents = (await ctx.read_resource(NOTE)).contents
    effects.did("read")
    return str(len(contents))


@server.tool
async def asking(ctx: Context) -> str:
    """Ask once."""
    answer = await ctx.elicit("Which?", int)
    effects.did("answered")
    return str(answer)


@server.tool
async def asking_twice(ctx: Context) -> str:
    """Ask, and ask again."""
    first = await ctx.elicit("First?", int)
    effects.did("first")
    await ctx.progress(1)
    second = await ctx.elicit("Second?", int)
    effects.did("second")
    return f"{first} {second}"


async def hand_over(_value: str, ctx: Context) -> str:
    """Ask, and ask again."""
    await ctx.elicit("First?", int)
    return str(await ctx.elicit("Second?", int))


async def finish(_value: str, answer: str, ctx: Context) -> str:
    """Do what is done once."""
    await ctx.progress(2)
    effects.did("finished or undone")
    return answer


async def undo(_value: str, _ctx: Context) -> None:
    """Do this instead, if the call was cancelled."""
    effects.did("finished or undone")
    await trio.sleep(0.1)


@server.handoff_tool(client=hand_over, after=finish, on_cancel=undo)
async def handing_over(ctx: Context) -> str:
    """Prepare, ask, and finish."""
    await ctx.progress(1)
    effects.did("prepared")
    return "prepared"


@server.tool
async def asking_again(ctx: Context) -> str:
    """Ask for what the user will not give, so that it is asked for again."""
    answer = await ctx.elicit("Yes or no?", bool, reask=1)
    return str(answer)


@server.tool
async def sampling(ctx: Context) -> str:
    """Ask the model."""
    return (await ctx.sample("A line, please")).text


@server.tool
async def rooted(ctx: Context) -> str:
    """Ask for the folders."""
    return str(len(await ctx.roots()))


@server.tool
async def fanned(ctx: Context) -> str:
    """Ask in three branches, one of which is busy with something else first."""

    async def late(child: Context) -> object:
        await trio.sleep(1)
        effects.did("late")
        return await child.elicit("Late?", int)

    answers = await ctx.branch_all(lambda c: c.elicit("One?", int), lambda c: c.sample("Two?"), late)
    effects.did("joined")
    return str(len(answers))


async def napping(_ctx: Context) -> None:
    """A branch that takes its time."""
    await trio.sleep(5)


@server.tool
async def nested(ctx: Context) -> str:
    """Ask in a branch of a branch, and wait for one branch in another."""

    async def inner(child: Context) -> object:
        return await child.elicit("Inner?", int)

    async def outer(child: Context) -> object:
        async with child.branches() as group:
            first = group.start(inner)
            group.start(napping)
            await first.result()
            return await child.elicit("Outer?", int)

    await ctx.branch_all(outer, inner)
    return "nested"


@server.tool
async def failing_sibling(ctx: Context) -> str:
    """Lose a branch while the others ask and sleep."""

    async def fails(_child: Context) -> None:
        await trio.sleep(0.1)
        raise ValueError("a branch failed")

    await ctx.branch_all(lambda c: c.elicit("Never answered in time?", int), fails, napping)
    return "not reached"


@server.tool
async def racing(ctx: Context) -> str:
    """Let two questions and a sleeper race."""
    won = await ctx.branch_race(lambda c: c.elicit("First?", int), lambda c: c.sample("Second?"), napping)
    effects.did("won")
    return str(won)


@server.tool
async def hurried(ctx: Context) -> str:
    """Give a branch less time than it takes, and ask afterwards."""
    try:
        await ctx.branch(napping, timeout=1)
    except BranchLimit as limit:
        effects.did("hurried")
        return f"{limit} {await ctx.elicit('Go on?', int)}"
    return "not reached"


@server.tool
async def prompting_in_turn(ctx: Context) -> str:
    """Ask the user three things at once, of which one is given up before its turn."""

    async def impatient(child: Context) -> object:
        with trio.move_on_after(0):
            return await child.elicit("Never mind?", int)

    await ctx.branch_all(lambda c: c.elicit("One?", int), impatient, lambda c: c.elicit("Three?", int))
    return "asked"


@server.tool(resume="replay")
async def stepping(ctx: Context) -> str:
    """Do things once, with questions between them."""
    await ctx.step("look", lambda: effects.did("look"))
    await ctx.elicit("Go on?", int)

    async def charge() -> str:
        await trio.lowlevel.checkpoint()
        effects.did("charge")
        return "receipt"

    receipt = await ctx.step("charge", charge)
    await ctx.branch_all(lambda c: c.elicit("Tip?", int), lambda c: c.step("note", lambda: effects.did("note")))
    return receipt


@server.tool
def threaded() -> str:
    """Work in a thread."""
    effects.did("threaded")
    return "worked"


@server.tool
async def cleaning(ctx: Context) -> str:
    """Clean up behind a shield, whatever happens."""
    try:
        await ctx.elicit("Which?", int)
        await trio.sleep(1)
    finally:
        with trio.move_on_after(1, shield=True):
            await trio.sleep(0.5)
            await ctx.progress(5)
            effects.did("cleaned")
    return "clean"


@server.tool
async def asking_at_the_end(ctx: Context) -> str:
    """Ask in its clean-up, with a shield and without."""
    try:
        await trio.sleep(1)
    finally:
        try:
            with trio.move_on_after(1, shield=True):
                await ctx.elicit("Really?", int)
        finally:
            await ctx.elicit("Really, really?", int)
    return "asked"


@server.tool(timeout=2)
async def too_slow(ctx: Context) -> str:
    """Take longer than it may."""
    await ctx.progress(1)
    await trio.sleep(5)
    return "too late"


@server.tool
async def hanging_up(ctx: Context) -> str:
    """Let the client go, where that is possible."""
    await ctx.progress(1)
    await ctx.end_stream(retry=1)
    await ctx.progress(2)
    return "there again"


@server.tool
async def touch() -> str:
    """Change what somebody watches."""
    server.resource_updated(NOTE)
    return "touched"


@server.prompt
async def asked_prompt(ctx: Context) -> str:
    """Ask before it is rendered."""
    return str(await ctx.elicit("Which words?", int))


@server.resource(NOTE)
async def note(ctx: Context) -> str:
    """Ask before it is read."""
    return str(await ctx.elicit("Which note?", int))


def called(name: str) -> Scenario:
    """Call one tool, and hear of its progress."""

    async def scenario(client: Client) -> None:
        await client.call_tool(name, on_progress=lambda _report: None)

    scenario.__name__ = name
    return scenario


async def several_calls(client: Client) -> None:
    async with trio.open_nursery() as nursery:
        for name in ("asking", "sleeping", "reporting"):
            nursery.start_soon(client.call_tool, name)


async def a_call_with_a_timeout(client: Client) -> None:
    with trio.move_on_after(0.5):
        await client.call_tool("sleeping")
    await client.call_tool("plain")


async def all_lists(client: Client) -> None:
    await client.list_tools()
    await client.list_prompts()
    await client.list_resources()


async def a_prompt(client: Client) -> None:
    await client.get_prompt("asked_prompt")


async def a_resource(client: Client) -> None:
    await client.read_resource(NOTE)


async def a_listener(client: Client) -> None:
    async with client.listen(tools=True, uris=[NOTE]) as changes:
        await client.call_tool("touch")
        async for _change in changes:
            break


async def nothing(_client: Client) -> None:
    await trio.lowlevel.checkpoint()


async def refused(client: Client) -> None:
    for unknown in ("no_such_tool", "neither_this_one"):
        try:
            await client.call_tool(unknown)
        except PeerError:
            effects.did(unknown)


@asynccontextmanager
async def raw_client(end: MessageChannel) -> AsyncIterator[ChannelClient]:
    """A client that writes JSON, in the revision that has batches."""
    async with end:
        raw = ChannelClient(end)
        await raw.initialize("2025-03-26", capabilities={})
        yield raw


async def a_batch(raw: ChannelClient) -> None:
    calls = ("sleeping", "plain", "raising", "reporting")
    await raw.send_batch(
        *({"id": name, "method": "tools/call", "params": {"name": name}} for name in calls),
        {"id": "ping", "method": "ping"},
        {"id": "unknown", "method": "no/such"},
    )
    while not isinstance(await raw.receive(), list):
        pass


async def messages_that_are_refused(raw: ChannelClient) -> None:
    await raw.send({"id": 1, "method": "tools/call", "params": {"name": 5}})
    await raw.send({"id": 2, "method": "no/such"})
    await raw.send({"id": 3, "method": "tools/call", "params": {"name": "no_such_tool"}})
    await raw.send({"id": 4, "method": "initialize", "params": {}})
    await raw.send({"method": "notifications/progress", "params": {"progressToken": []}})
    await raw.send_batch({"id": 5, "method": "tools/call", "params": {}}, {"id": 6, "method": "initialize"})
    for _ in range(5):
        await raw.receive()


@contextmanager
def threads_in_turns() -> Iterator[None]:
    """Threads whose work takes a second of the virtual clock and no thread: what they do stays repeatable."""
    run_sync = trio.to_thread.run_sync

    async def scripted(fn: Callable[[], object], *, limiter: trio.CapacityLimiter, **_options: object) -> object:
        await limiter.acquire_on_behalf_of(fn)
        try:
            await trio.sleep(1)
        except trio.Cancelled:  # no task waits any more, but no thread knows that
            fn()
            raise
        else:
            return fn()
        finally:
            limiter.release_on_behalf_of(fn)

    trio.to_thread.run_sync = scripted  # type: ignore[assignment]
    try:
        yield
    finally:
        trio.to_thread.run_sync = run_sync  # type: ignore[assignment]
