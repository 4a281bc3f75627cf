"""The contract's server, whose tools each do one thing and report it to the stage."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from functools import partial

import trio

from ...errors import ToolError
from ...runtime import MemoryBudget
from ...server import Context, Server
from ...session import ServiceOptions
from .stage import Gauges, Options, Stage
from .subjects import asking, faults, lifecycle, noise, offers, structured
from .subjects.common import Seat, reason_of

Part = Callable[[Server, Stage], None]


def contract_server(stage: Stage) -> Server:
    """Return a server whose tools use this stage."""
    options = service_options(stage.options)
    server = Server("contract", version="1.0", instructions="Be strict.", page_size=offers.PAGE, options=options)
    for add in PARTS:
        add(server, stage)
    stage.measured_by(partial(gauges_of, server))
    return server


def service_options(said: Options) -> ServiceOptions:
    """Return the options of a rule as those of a service."""
    of_actors = {each.name for each in dataclasses.fields(ServiceOptions().actors)}
    actors = {name: value for name, value in said.items() if name in of_actors}
    rest = {name: value for name, value in said.items() if name not in of_actors}
    return dataclasses.replace(
        ServiceOptions(),
        actors=dataclasses.replace(ServiceOptions().actors, **actors),  # type: ignore[arg-type]
        # Its own: what other servers of this process hold is not left behind by this one.
        memory=MemoryBudget(),
        **rest,  # type: ignore[arg-type]
    )


def gauges_of(server: Server) -> Gauges:
    """Return the gauges of a server, summed over its services."""
    found = Counter[str]()
    for service in server.services:
        now = service.statistics()
        actors, threads = now.actors, now.threads
        found.update(running=actors.running, parked=actors.parked, stuck=actors.stuck, questions=now.open_questions)
        if threads is not None:
            found.update(threads=threads.running + threads.waiting)
    return found


def add_plain_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def echo(text: str) -> str:
        """Say the same."""
        stage.mark("echo")
        return text

    @server.tool
    async def fail(text: str) -> str:
        """Fail with a text for the model."""
        raise ToolError(text)

    @server.tool
    async def wait(name: str = "wait") -> str:
        """Wait at a gate of this name; marks its beginning, its end, and its `finally`."""
        stage.mark(f"{name} began")
        try:
            await stage.gate(name)
            stage.mark(f"{name} ended")
            return name
        finally:
            stage.mark(f"{name} finally")

    @server.tool
    async def progress(n: int, ctx: Context) -> str:
        """Report progress n times."""
        for done in range(1, n + 1):
            await ctx.progress(done, n, f"step {done}")
        return "done"


def add_asking_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask for a seat; marks its `finally` with the reason of a cancellation."""
        stage.mark("ask began")
        try:
            answer = await ctx.elicit("Which seat?", Seat)
            return f"row {answer.content.row}" if answer.action == "accept" else answer.action
        finally:
            stage.mark(f"ask finally {reason_of(ctx)}")

    @server.tool
    async def ask_model(prompt: str, ctx: Context) -> str:
        """Ask the client's model."""
        stage.mark("ask_model began")
        try:
            return (await ctx.sample(prompt)).text
        finally:
            stage.mark(f"ask_model finally {reason_of(ctx)}")


def add_branching_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def nest(depth: int, ctx: Context) -> str:
        """Wait in a branch that is so deep; marks the `finally` of every level."""

        async def level(left: int, here: Context) -> None:
            try:
                if left:
                    await here.branch(lambda child: level(left - 1, child))
                else:
                    stage.mark("nest began")
                    await trio.sleep_forever()
            finally:
                stage.mark(f"nest finally {left}")

        await level(depth, ctx)
        return "never"


PARTS: list[Part] = [
    add_plain_tools,
    add_asking_tools,
    add_branching_tools,
    faults.add_failing_tools,
    faults.add_holding_tools,
    faults.add_leaving_tools,
    faults.add_passing_tools,
    faults.add_questioning_tools,
    faults.add_branches_that_ask,
    faults.add_talking_tools,
    offers.add_contents,
    offers.add_prompts,
    offers.add_resources,
    offers.add_changing_tools,
    asking.add_telling_tools,
    noise.add_noisy_tools,
    structured.add_holding_tools,
    structured.add_asking_tools,
    structured.add_talking_tools,
    lifecycle.add_lifecycle_tools,
]
"""The functions that add the tools."""


def contract_tools(add: Part) -> Part:
    """Let a function add tools to the server of every case that is made from now on, for rules that need more tools."""
    PARTS.append(add)
    return add
