"""Wherever a conversation is interrupted, every request has one outcome and nothing is left.

Some conversations are interrupted at every third step, the others at every seventh; all at every step with `--every-step`
(`make sweep`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from asyncio_scenarios import on_asyncio, stepped_loops
from scenarios import (
    Scenario,
    a_batch,
    a_call_with_a_timeout,
    a_listener,
    a_prompt,
    a_resource,
    all_lists,
    called,
    effects,
    messages_that_are_refused,
    nothing,
    raw_client,
    refused,
    server,
    several_calls,
    threads_in_turns,
)
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Server
from trio_mcp.client import accept
from trio_mcp.testing import Play, SweepReport, Way, sweep, sweep_play
from trio_mcp.types import Root

TOOLS = [
    "plain",
    "sleeping",
    "reporting",
    "beating",
    "reading",
    "asking",
    "asking_twice",
    "handing_over",
    "sampling",
    "rooted",
    "fanned",
    "nested",
    "racing",
    "hurried",
    "prompting_in_turn",
    "stepping",
    "cleaning",
    "too_slow",
    "hanging_up",
]
OFTEN = {"asking_twice", "beating", "handing_over", "fanned", "stepping", "cleaning", "several_calls", "a_listener"}
"""Those that are interrupted more often in every run of the tests."""
STRIDES = {True: 3, False: 7}
OTHERS: list[Scenario] = [several_calls, a_call_with_a_timeout, all_lists, a_prompt, a_resource, a_listener, refused]


@pytest.fixture(autouse=True)
def stride(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.config.getoption("every_step"):
        monkeypatch.setitem(globals(), "STRIDES", {True: 1, False: 1})


eras = pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])


def swept(scenario: Scenario, mode: str, served: Server = server, **options: object) -> SweepReport:
    stride = STRIDES[scenario.__name__ in OFTEN]
    report = sweep(
        served,
        scenario,
        mode=mode,
        on_elicit=lambda _asked: accept(value=1),
        on_sample=lambda _asked: "a line",
        on_roots=lambda: [Root(uri="file:///home")],
        effects=effects,
        stride=stride,
        **options,  # type: ignore[arg-type]
    )
    report.check()
    assert report.runs * stride > report.steps
    return report


@eras
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_leaves_nothing_wherever_it_is_interrupted(tool: str, mode: str) -> None:
    swept(called(tool), mode)


@eras
@pytest.mark.parametrize("tool", ["raising", "failing_sibling"])
def test_a_tool_that_fails_leaves_nothing_and_is_logged(tool: str, mode: str) -> None:
    swept(called(tool), mode, logs=[f"the tool {tool} failed"])


@eras
def test_clean_up_that_asks_gets_an_error(mode: str) -> None:
    swept(called("asking_at_the_end"), mode, logs=["was not awaited"])


@eras
def test_a_question_that_is_asked_again_leaves_nothing(mode: str) -> None:
    swept(called("asking_again"), mode)


@eras
@pytest.mark.parametrize("scenario", OTHERS, ids=lambda scenario: scenario.__name__)
def test_a_conversation_leaves_nothing_wherever_it_is_interrupted(scenario: Scenario, mode: str) -> None:
    swept(scenario, mode)


@eras
def test_a_plain_function_in_a_thread_leaves_nothing(mode: str) -> None:
    with threads_in_turns():
        swept(called("threaded"), mode)


@eras
@pytest.mark.parametrize("tool", ["plainly", "asking_twice", "cleaning", "grouped", "stepping"])
def test_a_body_on_asyncio_leaves_nothing(tool: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with stepped_loops(monkeypatch):
        swept(called(tool), mode, on_asyncio)


@eras
def test_a_body_on_asyncio_that_fails_leaves_nothing_and_is_logged(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with stepped_loops(monkeypatch):
        swept(called("raising_later"), mode, on_asyncio, logs=["the tool raising_later failed"])


@eras
@pytest.mark.parametrize(
    "scenario", [called("reporting"), called("fanned"), several_calls], ids=["one", "fan", "several"]
)
def test_a_connection_that_takes_one_message_at_a_time_leaves_nothing(scenario: Scenario, mode: str) -> None:
    narrow = server.copy(options=replace(server.options, outbox=1))
    swept(scenario, mode, narrow, buffer=1)


@pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN, "auto"])
def test_opening_and_closing_leave_nothing(mode: str) -> None:
    swept(nothing, mode, opening=True)


@pytest.mark.parametrize("tool", ["stepping", "handing_over"])
def test_a_call_that_is_replayed_at_every_leg_does_its_steps_once(tool: str) -> None:
    replayed = server.copy(options=replace(server.options, always_replay=True))
    sweep(
        replayed,
        called(tool),
        mode=MODERN,
        on_elicit=lambda _asked: accept(value=1),
        effects=effects,
        stride=STRIDES[False],
    ).check()


def test_what_is_refused_leaves_nothing() -> None:
    play = Play(server, raw_client, messages_that_are_refused)
    sweep_play(play, effects=effects, ways=[Way.PEER, Way.END, Way.MESSAGE], stride=STRIDES[False]).check()


def test_a_batch_leaves_nothing_wherever_it_is_interrupted() -> None:
    play = Play(server, raw_client, a_batch, logs=["the tool raising failed"])
    sweep_play(play, effects=effects, ways=[Way.PEER, Way.END, Way.MESSAGE], stride=STRIDES[False]).check()
