"""The probes on which other MCP libraries for Python fail: a table of what holds each, and tests of what nothing else holds.

A probe drives a server whose tool asks in the middle, as a client of either era, a retrying proxy or an attacker does.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from more_rules.catalogue import all_rules
from naming import unnamed
from talk import ERAS, Legacy, accept, talk_to

from trio_mcp import Context, Server
from trio_mcp.types import InputRequiredResult

HERE = Path(__file__).parent
ROUNDS, REPLAY, SESSION = "session/test_rounds.py", "session/test_replay.py", "session/test_server_session.py"
STATE, CLIENT = "protocol/test_request_state.py", "client/test_client_rounds.py"
MACHINE = "session/test_rounds_machine.py::test_any_program_of_legs_answers_repeats_losses_and_restarts_does_what_the_model_says"

TABLE = {
    "questions that depend on each other": [
        f"{ROUNDS}::test_a_parked_call_keeps_its_locals_and_repeats_no_side_effect"
    ],
    "the body once for all rounds": ["a_call_may_take_several_rounds_and_runs_once"],
    "a legacy call asks on the stream of its response": ["a_question_is_answered_in_the_middle_of_a_call"],
    "a leg at a server with another key": [f"{REPLAY}::test_other_keys_refuse_a_state_and_nothing_runs"],
    "a leg at a server with the same keys": [
        f"{REPLAY}::test_a_call_goes_on_in_another_process_and_its_steps_are_not_done_again"
    ],
    "the same keys under another name": [
        f"{ROUNDS}::test_a_state_of_another_server_with_the_same_keys_is_refused",
        f"{STATE}::test_a_state_opens_only_for_what_it_was_sealed_for",
    ],
    "the same leg again": [MACHINE],
    "copies of a leg at the same time": [MACHINE],
    "a leg at two servers": [f"{REPLAY}::test_a_call_that_must_not_run_twice_is_reported_as_lost"],
    "a state with other arguments": [
        f"{ROUNDS}::test_a_state_with_another_tool_or_other_arguments_is_refused_and_nothing_runs"
    ],
    "answers without a state": ["answers_without_a_state_begin_a_new_call"],
    "an answer that breaks the schema": [
        "a_form_without_its_required_fields_is_asked_again_with_the_reason",
        f"{SESSION}::test_after_the_last_attempt_an_invalid_answer_is_an_error_result",
    ],
    "a loop of more questions than the client allows rounds": [
        f"{CLIENT}::test_a_server_that_asks_endlessly_is_left_after_max_rounds"
    ],
    "a client that did not declare elicitation": [
        "a_client_that_cannot_answer_receives_the_missing_capability_and_no_question"
    ],
}
"""By probe: contract rules, which every transport keeps, and tests."""


@pytest.mark.parametrize("probe", TABLE)
def test_every_probe_is_held_by_rules_and_tests_that_exist(probe: str) -> None:
    rules = {rule.name for rule in all_rules()}
    for name in TABLE[probe]:
        path, _, test = name.rpartition("::")
        assert f"def {test}(" in (HERE / path).read_text(encoding="utf-8") if path else name in rules, name


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_that_never_reads_the_same_is_asked_once(era: type[Legacy]) -> None:
    server, time = Server("till"), itertools.count(1)

    @server.tool
    async def now(ctx: Context) -> str:
        return (await ctx.elicit(f"It is {next(time)} o'clock. Sure?", bool)).action

    async with talk_to(server) as talk:
        player = era(talk, {"elicitation": {}})
        await player.call("now")
        assert (await player.question())["message"] == "It is 1 o'clock. Sure?"
        await player.answer(accept(value=True))
        assert await player.text() == "accept"
    assert next(time) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_a_hand_made_interim_result_is_an_error_that_names_the_way_to_ask(era: type[Legacy]) -> None:
    server = Server("till")

    @server.tool
    async def handmade():  # type: ignore[no-untyped-def]
        return InputRequiredResult.model_validate({"requestState": "made by hand"})

    async with talk_to(server) as talk:
        player = era(talk, {})
        await player.call("handmade")
        assert unnamed(await player.failure(), "ctx.elicit") == []


def test_a_tool_cannot_promise_an_interim_result() -> None:
    async def handmade() -> InputRequiredResult:
        raise NotImplementedError

    with pytest.raises(TypeError, match=r"ctx\.elicit"):
        Server("till").tool(handmade)


async def test_a_state_is_small_whatever_the_call_holds_and_was_answered() -> None:
    server = Server("till")

    @server.tool
    async def laden(ctx: Context, kilobytes: int) -> str:
        cargo = bytes(1024 * kilobytes)
        answered = await ctx.sample("Tell me a long story.", max_tokens=10_000)
        await ctx.elicit("Was it good?", bool)
        return str(len(cargo) + len(answered.text))

    story = {"role": "assistant", "content": {"type": "text", "text": "x" * 20_000}, "model": "m"}
    sizes = []
    async with talk_to(server) as talk:
        for arguments in ({"kilobytes": 1}, {"kilobytes": 9999}):
            first = await talk.round(talk.leg("laden", arguments))
            second = await talk.round(talk.leg("laden", arguments, state=first.state, answers={first.key: story}))
            sizes += [len(first.state), len(second.state)]
            last = talk.leg("laden", arguments, state=second.state, answers={second.key: accept(value=True)})
            assert await talk.text(last) == str(1024 * arguments["kilobytes"] + 20_000)
    assert max(sizes) < 512
