"""Wherever a conversation is interrupted, every request has one outcome and nothing is left.

Some conversations are interrupted at every third step, the others at every seventh; all at every step with `--every-step`
(`make sweep`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

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

from trio_mcp import Client, Server
from trio_mcp.testing import Play, Way, sweep_play

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
OTHERS: list[Scenario] = [several_calls, a_call_with_a_timeout, all_lists, a_prompt, a_resource, a_listener, refused]


eras = pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])


Sweep = Callable[..., None]


@eras
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_leaves_nothing_wherever_it_is_interrupted(swept: Sweep, tool: str, mode: str) -> None:
    swept(called(tool), mode)


@eras
@pytest.mark.parametrize("tool", ["raising", "failing_sibling"])
def test_a_tool_that_fails_leaves_nothing_and_is_logged(swept: Sweep, tool: str, mode: str) -> None:
    swept(called(tool), mode, logs=[f"the tool {tool} failed"])


@eras
def test_clean_up_that_asks_gets_an_error(swept: Sweep, mode: str) -> None:
    swept(called("asking_at_the_end"), mode, logs=["was not awaited"])


@eras
def test_a_question_that_is_asked_again_leaves_nothing(swept: Sweep, mode: str) -> None:
    swept(called("asking_again"), mode)


@eras
@pytest.mark.parametrize("scenario", OTHERS, ids=lambda scenario: scenario.__name__)
def test_a_conversation_leaves_nothing_wherever_it_is_interrupted(swept: Sweep, scenario: Scenario, mode: str) -> None:
    swept(scenario, mode)


@eras
def test_a_plain_function_in_a_thread_leaves_nothing(swept: Sweep, mode: str) -> None:
    with threads_in_turns():
        swept(called("threaded"), mode)


@eras
@pytest.mark.parametrize("tool", ["plainly", "asking_twice", "cleaning", "grouped", "stepping"])
def test_a_body_on_asyncio_leaves_nothing(swept: Sweep, tool: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with stepped_loops(monkeypatch):
        swept(called(tool), mode, on_asyncio)


@eras
def test_a_body_on_asyncio_that_fails_leaves_nothing_and_is_logged(
    swept: Sweep, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stepped_loops(monkeypatch):
        swept(called("raising_later"), mode, on_asyncio, logs=["the tool raising_later failed"])


@eras
@pytest.mark.parametrize(
    "scenario", [called("reporting"), called("fanned"), several_calls], ids=["one", "fan", "several"]
)
def test_a_connection_that_takes_one_message_at_a_time_leaves_nothing(
    swept: Sweep, scenario: Scenario, mode: str
) -> None:
    narrow = server.copy(options=replace(server.options, outbox=1))
    swept(scenario, mode, narrow, buffer=1)


@pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN, "auto"])
def test_opening_and_closing_leave_nothing(swept: Sweep, mode: str) -> None:
    swept(nothing, mode, opening=True)


@pytest.mark.parametrize("tool", ["stepping", "handing_over"])
def test_a_call_that_is_replayed_at_every_leg_does_its_steps_once(swept: Sweep, tool: str) -> None:
    swept(called(tool), MODERN, server.copy(options=replace(server.options, always_replay=True)), seldom=7)


@pytest.mark.parametrize(
    ("scenario", "logs"),
    [(messages_that_are_refused, ()), (a_batch, ["the tool raising failed"])],
    ids=["refused", "a batch"],
)
def test_what_a_client_writes_by_hand_leaves_nothing_wherever_it_is_interrupted(
    scenario: Any, logs: Sequence[str], stride: Callable[[int], int]
) -> None:
    play = Play(server, raw_client, scenario, logs=logs)
    sweep_play(play, effects=effects, ways=[Way.PEER, Way.END, Way.MESSAGE], stride=stride(7)).check()


outer = Server("outer", version="1")
outer.mount("s", server)


async def a_call_of_a_mounted_server(client: Client) -> None:
    assert (await client.call_tool("s_plain")).text == "done"
    assert not (await client.call_tool("s_asking")).is_error
    await client.read_resource("note://s/today")


@eras
def test_a_mounted_server_leaves_nothing(swept: Sweep, mode: str) -> None:
    swept(a_call_of_a_mounted_server, mode, outer)
