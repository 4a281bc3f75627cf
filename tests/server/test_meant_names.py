"""An unknown name of a caller is answered with the nearest one that it may know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from naming import unnamed
from one_tool import failure_of

from trio_mcp import Caller, Client, Context, PeerError, Server, tool
from trio_mcp.server.composing import as_mounted
from trio_mcp.server.data.prompts import unknown_prompt
from trio_mcp.server.other_names import MAX_KNOWN, meant
from trio_mcp.server.tools.tool import MAX_LOOKED_AT


@dataclass
class Period:
    day: str
    month: str = "May"


def slots(day: str, month: str = "May") -> str:
    return day + month


def slots_of(period: Period, ctx: Context) -> str:
    return period.day


def is_admin(caller: Caller | None) -> bool:
    return caller is not None and caller.principal == "admin"


@pytest.fixture
def server() -> Server:
    server = Server("salon")
    server.add_tool(slots, name="free_slots")
    server.add_tool(slots, name="drop_slots", visible=is_admin)
    server.add_tool(slots, name="ask_slots", requires={"sampling"})
    server.add_prompt(slots, name="review")
    return server


async def test_an_unknown_tool_or_prompt_is_answered_with_the_nearest(server: Server, mode: str) -> None:
    async with Client.connect(server, mode=mode) as client:
        with pytest.raises(PeerError) as unknown:
            await client.call_tool("free_slot")
        with pytest.raises(PeerError) as prompt:
            await client.get_prompt("revue")
    assert unnamed(str(unknown.value), "free_slot", "'free_slots'") == []
    assert unnamed(str(prompt.value), "revue", "'review'") == []


@pytest.mark.parametrize("name", ["drop_slot", "ask_slot", "zzz"])
async def test_no_tool_is_named_that_the_caller_cannot_see_or_call(server: Server, name: str) -> None:
    server.remove_tool("free_slots")
    async with Client.connect(server) as client:
        with pytest.raises(PeerError, match=f"Unknown tool: {name}") as unknown:
            await client.call_tool(name)
    assert "mean" not in str(unknown.value)


@pytest.mark.parametrize(("function", "parameters"), [(slots, None), (slots_of, Period)])
async def test_an_unknown_argument_is_answered_with_the_nearest(function: object, parameters: type | None) -> None:
    server = Server("salon")
    if parameters is None:
        server.add_tool(slots)
    else:
        server.add_tool(tool("slots").parameters(parameters).execute(slots_of))
    async with Client.connect(server) as client:
        result = await client.call_tool("slots", {"dy": "Mon"})
    assert unnamed(result.text, "dy", "'day'") == []


async def test_an_unknown_argument_that_is_like_none_gets_no_suggestion() -> None:
    assert "mean" not in await failure_of(slots, {"day": "Mon", "zzz": 1})


def test_names_of_a_caller_are_compared_in_bounds() -> None:
    assert meant("a" * 10_000, ["a" * 64]) == f"; do you mean {'a' * 64!r}?"
    assert meant("name", [*(f"{n}" for n in range(MAX_KNOWN)), "name1"]) == ""


async def test_an_unknown_name_costs_no_call_of_the_function_of_every_hidden_tool() -> None:
    asked: list[Caller | None] = []

    def is_visible(caller: Caller | None) -> bool:
        asked.append(caller)
        return False

    server = Server("salon")
    for number in range(2 * MAX_LOOKED_AT):
        server.add_tool(slots, name=f"slots_{number}", visible=is_visible)
    async with Client.connect(server) as client:
        asked.clear()
        with pytest.raises(PeerError):
            await client.call_tool("slots")
    assert len(asked) == MAX_LOOKED_AT


def test_another_thread_may_add_prompts_while_names_are_compared(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nearest_while_changed(_name: str, known: Iterable[str]) -> str:
        names = iter(known)
        first = next(names)
        server.add_prompt(slots, name="revise")
        return str([first, *names])

    monkeypatch.setattr("trio_mcp.server.other_names.nearest", nearest_while_changed)
    assert "review" in str(unknown_prompt(as_mounted(server).registry.prompts, "revue", None))
