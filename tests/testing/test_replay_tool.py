"""The kit that proves a tool can be replayed."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from trio_mcp import Context, Server, ServiceOptions, accept
from trio_mcp.testing import replay_tool

server = Server("shop")
effects: list[str] = []
clock = itertools.count()


@server.tool(resume="replay")
async def steady(ctx: Context) -> str:
    """Every effect in a step, every question the same."""
    price = await ctx.step("price", lambda: effects.append("looked up") or 7)
    first = await ctx.elicit(f"Pay {price}?", int)
    second, third = await ctx.branch_all(lambda c: c.elicit("Tip?", int), lambda c: c.elicit("Round up?", int))
    return f"{price} {first} {second} {third}"


@server.tool(resume="replay")
async def restless(ctx: Context) -> str:
    """A question that is never the same twice."""
    await ctx.elicit(f"It is {next(clock)} o'clock. Sure?", int)
    return "done"


@server.tool
async def careless(ctx: Context) -> str:
    """An effect outside of a step."""
    effects.append("charged")
    await ctx.elicit("Sure?", int)
    return "done"


def answer(_question: object) -> object:
    return accept(value=1)


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


async def test_a_deterministic_tool_passes_and_does_its_steps_once() -> None:
    report = await replay_tool(server, "steady", on_elicit=answer)
    report.check()
    assert report.result is not None
    assert report.result.text.startswith("7 ")
    assert effects == ["looked up"]


async def test_a_question_that_changes_is_reported() -> None:
    report = await replay_tool(server, "restless", on_elicit=answer)
    assert report.divergences
    with pytest.raises(AssertionError, match="elicit-1"):
        report.check()


async def test_effects_outside_of_steps_are_seen_to_repeat() -> None:
    report = await replay_tool(server, "careless", on_elicit=answer)
    report.check()
    assert effects == ["charged", "charged"]


async def test_the_server_itself_is_left_as_it_was() -> None:
    await replay_tool(server, "steady", on_elicit=answer)
    assert server.options.always_replay is False


async def test_a_store_in_a_file_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)
    file = tmp_path / "state.db"
    stored = server.copy(options=ServiceOptions(store=str(file)))
    report = await replay_tool(stored, "steady", on_elicit=lambda _: accept(value=7))
    report.check()
    assert not file.exists()
