"""What a conversation with a model holds is drawn from the memory budget of its server, and is given back when the call ends."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_model import ScriptedModel, results_in

from trio_mcp import Context, Server, ServiceOptions
from trio_mcp.errors import LimitExceeded
from trio_mcp.session import MemoryBudget
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import (
    ClientCapabilities,
)

LARGE = 300_000
ROUNDS = 3


class Own(ScriptedModel):
    """A model of the server that gives long answers."""

    def __init__(self) -> None:
        super().__init__(*["x" * LARGE] * ROUNDS)


def sampling(total: int, drawn: list[int], provider: Own | None = None) -> Server:
    """A server whose tool samples, and notes what is drawn after each answer, or that there is no room for one."""
    budget = MemoryBudget(total)
    server = Server("s", options=ServiceOptions(memory=budget), sampling=provider)

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            for _ in range(ROUNDS):
                await ctx.sample("Go.")
                drawn.append(budget.drawn)
        except LimitExceeded as error:
            return str(error)
        return "done"

    return server


def client_of(era: Any, *, own: bool) -> MockClient:
    if own:
        return MockClient(capabilities=ClientCapabilities(), era=era)
    return MockClient(samples=lambda _params: "x" * LARGE, era=era)


@pytest.mark.parametrize("own", [False, True], ids=["client", "provider"])
async def test_a_call_draws_each_answer_until_it_ends(mode: str, *, own: bool) -> None:
    drawn: list[int] = []
    server = sampling(10**9, drawn, Own() if own else None)
    assert (await client_of(mode, own=own).call((server, "ask"))).text == "done"
    assert [amount > LARGE * (index + 1) for index, amount in enumerate(drawn)] == [True] * ROUNDS
    assert server.options.memory.drawn < LARGE


@pytest.mark.parametrize(("era", "own"), [("legacy", False), ("legacy", True), ("modern", True)])
async def test_an_answer_without_room_is_an_error_of_the_sample(era: str, own: bool) -> None:
    drawn: list[int] = []
    result = await client_of(era, own=own).call((sampling(4 * LARGE // 2, drawn, Own() if own else None), "ask"))
    assert "memory" in result.text
    assert len(drawn) < ROUNDS


async def test_the_results_of_a_tool_loop_are_drawn(mode: str) -> None:
    budget, drawn = MemoryBudget(10**9), list[int]()
    server = Server("s", options=ServiceOptions(memory=budget))

    @server.tool
    async def much() -> str:
        return "x" * LARGE

    @server.tool
    async def lead(ctx: Context) -> str:
        result = await ctx.run_tool_loop("Go.", [much])
        drawn.append(budget.drawn)
        return result.text

    client = MockClient(samples=[[tool_use("much"), tool_use("much")], "done"], era=mode)
    assert (await client.call((server, "lead"))).text == "done"
    assert drawn[0] > 2 * LARGE
    assert budget.drawn < LARGE


async def test_a_result_without_room_is_an_error_for_the_model(mode: str) -> None:
    server = Server("s", options=ServiceOptions(memory=MemoryBudget(2 * LARGE)))

    @server.tool
    async def much() -> str:
        return "x" * LARGE

    @server.tool
    async def lead(ctx: Context) -> int:
        return sum(bool(each.is_error) for each in results_in((await ctx.run_tool_loop("Go.", [much])).messages))

    client = MockClient(samples=[[tool_use("much")] * 1 + [tool_use("much")] * 4, "done"], era=mode)
    assert int((await client.call((server, "lead"))).text) >= 3
