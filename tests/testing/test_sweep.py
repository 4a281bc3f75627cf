"""The kit that interrupts a scenario everywhere finds what it is there to find."""

from __future__ import annotations

import itertools

import pytest
import trio
from peer import Json, message_of
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Context, Server, accept
from trio_mcp.client import Client
from trio_mcp.testing import Effects, Strike, SweepReport, Way, sweep
from trio_mcp.testing.interruptions.rules import broken_rules
from trio_mcp.testing.interruptions.wire import Crossed

server = Server("shop")
effects = Effects()
kept: list[Context] = []
runs = itertools.count()


@server.tool
async def buy(ctx: Context) -> str:
    """Buy, after asking."""
    await ctx.elicit("Sure?", bool)
    effects.did("charged")
    return "bought"


@server.tool
async def buy_twice() -> str:
    """Charge again when the first time was cancelled."""
    try:
        effects.did("charged")
        await trio.sleep(1)
    except trio.Cancelled:
        effects.did("charged")
        raise
    return "bought"


@server.tool
async def keeping(ctx: Context) -> str:
    """Keep what belongs to the call."""
    try:
        await trio.sleep(1)
    except trio.Cancelled:
        kept.append(ctx)
        raise
    return "kept"


@server.tool
async def hoarding(ctx: Context) -> str:
    """Keep what belongs to the call, whatever happens."""
    kept.append(ctx)
    await trio.lowlevel.checkpoint()
    return "kept"


@server.tool
async def knotted(ctx: Context) -> str:
    """Leave a cycle that keeps the call alive until the collector comes."""
    knot: list[object] = [ctx]
    knot.append(knot)
    await trio.lowlevel.checkpoint()
    return "knotted"


@server.tool
async def stubborn() -> str:
    """Let nothing stop it."""
    with trio.CancelScope(shield=True):
        await trio.sleep(20_000)
    return "late"


@server.tool
async def moody() -> str:
    """Take another way in every run."""
    for _ in range(next(runs)):
        await trio.lowlevel.checkpoint()
    return "done"


@pytest.fixture(autouse=True)
def _as_before() -> None:
    kept.clear()


def swept(tool: str, only: Strike | None = None, mode: str = NEWEST_LEGACY, opening: bool = False) -> SweepReport:
    async def scenario(client: Client) -> None:
        await client.call_tool(tool)

    return sweep(
        server,
        scenario,
        mode=mode,
        on_elicit=lambda _asked: accept(value=True),
        effects=effects,
        opening=opening,
        only=only,
    )


@pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])
def test_a_good_tool_passes_and_every_step_of_it_was_interrupted(mode: str) -> None:
    report = swept("buy", mode=mode)
    report.check()
    assert report.messages == 4
    assert report.runs > 2 * report.steps


def test_an_effect_that_happens_twice_is_reported_with_the_interruption_that_shows_it() -> None:
    report = swept("buy_twice")
    with pytest.raises(AssertionError, match="charged was done more than once"):
        report.check()
    shown = report.problems[0].strike
    assert shown is not None
    again = swept("buy_twice", only=shown)
    assert [problem.strike for problem in again.problems] == [shown]
    assert again.runs == 4


def test_an_object_that_is_kept_is_reported() -> None:
    with pytest.raises(AssertionError, match=r"objects are left: .*1 Context"):
        swept("keeping").check()


def test_what_outlives_its_connection_in_every_run_is_reported_without_any_interruption() -> None:
    report = swept("hoarding", opening=True)
    assert report.problems[0].strike is None
    assert any("1 Context" in problem.what for problem in report.problems)


def test_what_only_the_collector_would_free_is_reported_without_any_interruption() -> None:
    report = swept("knotted")
    assert report.problems[0].strike is None
    assert "1 Context" in report.problems[0].what


def test_a_tool_that_cannot_be_stopped_is_reported() -> None:
    report = swept("stubborn", only=Strike(Way.SCOPE, 6))
    assert any("was not over" in problem.what for problem in report.problems)


def test_a_scenario_that_is_not_repeatable_is_reported() -> None:
    with pytest.raises(AssertionError, match="two runs differ"):
        swept("moody").check()


# the rules of a conversation


def came(message: Json) -> Crossed:
    return Crossed(True, message_of(message), None)


def said(message: Json, about: int | None = None) -> Crossed:
    return Crossed(False, message_of(message), about)


def cancelled(request: int) -> Json:
    return {"method": "notifications/cancelled", "params": {"requestId": request}}


def reporting(value: float) -> Crossed:
    return said({"method": "notifications/progress", "params": {"progressToken": 7, "progress": value}}, 1)


ASKED = came({"id": 1, "method": "tools/call"})
REPLIED = said({"id": 1, "result": {}}, 1)
CANCELLED = came(cancelled(1))
WITHDRAWN = said(cancelled(3))


@pytest.mark.parametrize(
    ("log", "ended", "wrong"),
    [
        ([ASKED, reporting(1), reporting(2), REPLIED], False, []),
        ([ASKED, CANCELLED], False, []),
        ([ASKED], True, []),
        ([ASKED], False, ["the client's request 1 (tools/call) has had no answer and was not cancelled"]),
        ([ASKED, REPLIED, REPLIED], False, ["the client's request 1 was answered twice"]),
        ([REPLIED], False, ["an answer to 1, which the client never asked"]),
        ([ASKED, REPLIED, reporting(1)], False, ["came after its reply"]),
        ([ASKED, reporting(1), reporting(1), REPLIED], False, ["progress went from 1 to 1"]),
        ([WITHDRAWN], False, ["the server cancelled its request 3, which it never sent"]),
    ],
    ids=["one reply", "cancelled", "ended", "silence", "twice", "to nothing", "after the reply", "no rise", "unasked"],
)
def test_what_breaks_a_rule_of_a_conversation_is_reported(log: list[Crossed], ended: bool, wrong: list[str]) -> None:
    found = list(broken_rules(log, ended=ended))
    assert len(found) == len(wrong)
    assert all(said in each for said, each in zip(wrong, found, strict=True))
