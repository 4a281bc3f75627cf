"""`ctx.run_tool_loop`: what the model is asked, how its calls run, how the loop ends, and the conversation after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import trio
from scripted_model import answer, message, requests_of, results_in, texts_of, use
from trio.testing import Sequencer

from trio_mcp import Context, Server, ToolError, accept
from trio_mcp.errors import BranchLimit, CapabilityError, LimitExceeded, LocalProtocolError, MalformedAnswer
from trio_mcp.providers import ScriptedProvider
from trio_mcp.server import BreakToolLoop
from trio_mcp.testing import MockClient, SecondWorker, make_context, replay_tool, tool_use, unchecked_tool_use
from trio_mcp.types import (
    ClientCapabilities,
    CreateMessageResult,
    SamplingCapability,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# the rounds


async def test_the_model_gets_the_results_of_its_calls_until_it_calls_none(mode: str) -> None:
    last = answer("3 and 7", {"inputTokens": 20, "outputTokens": 3})
    client = MockClient(samples=[[tool_use("add", a=1, b=2), tool_use("add", a=3, b=4)], last], era=mode)
    async with client.context() as ctx:
        result = await ctx.run_tool_loop("Add.", [add], system_prompt="Be brief.", max_tokens=50)
    assert (result.text, result.ended_by, result.iterations, result.value) == ("3 and 7", "answer", 2, None)
    first, second = requests_of(client)
    assert first.messages == [message("user", "Add.")]
    assert [tool.name for tool in first.tools or []] == ["add"] == [tool.name for tool in second.tools or []]
    assert (first.system_prompt, first.max_tokens) == ("Be brief.", 50)
    assert [each.tool_use_id for each in results_in(second.messages)] == ["add_1", "add_2"]
    assert texts_of(results_in(second.messages)) == ["3", "7"]
    assert [message.role for message in result.messages] == ["user", "assistant", "user", "assistant"]
    assert (result.usage.input_tokens, result.usage.output_tokens) == (20, 3)


async def test_a_prompt_of_several_blocks_is_no_conversation() -> None:
    client = MockClient(samples=["a cat"])
    async with client.context() as ctx:
        await ctx.run_tool_loop(["What is", TextContent(text="this?")], [add])
    (asked,) = requests_of(client)
    assert [message.content for message in asked.messages] == [[TextContent(text="What is"), TextContent(text="this?")]]


async def test_the_last_round_has_no_tools(mode: str) -> None:
    call = tool_use("add", a=1, b=2)
    client = MockClient(samples=[call, call, "enough"], era=mode)
    async with client.context() as ctx:
        result = await ctx.run_tool_loop("Add.", [add], max_iterations=3, tool_choice="required")
    assert (result.text, result.ended_by, result.iterations) == ("enough", "limit", 3)
    choices = [(params.tools is not None, params.tool_choice) for params in requests_of(client)]
    assert choices == [
        (True, ToolChoice(mode="required")),
        (True, ToolChoice(mode="auto")),
        (False, ToolChoice(mode="none")),
    ]


async def test_the_rounds_are_reported_if_the_author_wants_it(mode: str) -> None:
    client = MockClient(samples=[tool_use("add", a=1, b=2), "3", "quiet"], era=mode)
    async with client.context() as ctx:
        await ctx.run_tool_loop("Add.", [add], max_iterations=5, progress=True)
        await ctx.run_tool_loop("Say.", [add])
    reports = [(each.progress, each.total, each.message) for each in client.progress]
    assert reports == [(0, 5, "round 1 of at most 5"), (1, 5, "round 2 of at most 5")]


# the conversation


async def test_a_prompt_continues_the_conversation_with_all_messages_of_the_loop() -> None:
    async with make_context(samples=["hello", tool_use("add", a=1, b=2), "3"]) as ctx:
        await ctx.sample("Hi.")
        result = await ctx.run_tool_loop("Add.", [add])
        assert ctx.messages == result.messages
        assert [message.role for message in ctx.messages] == ["user", "assistant"] * 3


async def test_given_messages_are_not_stored() -> None:
    given = [message("user", "Add.")]
    async with make_context(samples=["3", "3"]) as ctx:
        result = await ctx.run_tool_loop(given, [add])
        await ctx.run_tool_loop(None, [add], messages=given)
        assert ctx.messages == ()
    assert result.messages == (given[0], message("assistant", "3"))


async def test_a_loop_continues_from_the_results_that_were_added() -> None:
    client = MockClient(samples=[tool_use("add", a=1, b=2), "3"])
    async with client.context() as ctx:
        sampled = await ctx.sample("Add.", tools=[add])
        with pytest.raises(LocalProtocolError):
            await ctx.run_tool_loop("And?", [add])
        ctx.add_tool_results({sampled.tool_calls[0].id: "3"})
        await ctx.run_tool_loop(None, [add])
        assert [message.role for message in ctx.messages] == ["user", "assistant", "user", "assistant"]


async def test_a_failed_loop_adds_nothing() -> None:
    samples = [tool_use("add", a=1, b=2), answer(ToolResultContent(tool_use_id="x", content=[]))]
    async with make_context(samples=samples) as ctx:
        with pytest.raises(MalformedAnswer):
            await ctx.run_tool_loop("Add.", [add])
        assert ctx.messages == ()


# what the calls get


async def test_failures_are_error_results_that_the_model_reads(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    async def refuse() -> str:
        raise ToolError("not on Sundays")

    async def crash() -> str:
        raise RuntimeError("the password is swordfish")

    calls = [
        tool_use("refuse"),
        tool_use("crash"),
        unchecked_tool_use("add", a="one", b=2),
        unchecked_tool_use("add", a=1, b=2, c=3),
        unchecked_tool_use("steal"),
        tool_use("add", a=1, b=1),
    ]
    client = MockClient(samples=[calls, "well"], era=mode)
    async with client.context() as ctx:
        result = await ctx.run_tool_loop("Try.", [add, refuse, crash])
    assert result.text == "well"
    results = results_in(requests_of(client)[1].messages)
    assert [each.is_error for each in results] == [True, True, True, True, True, None]
    refused, crashed, wrong, unknown_argument, unknown, fine = texts_of(results)
    assert refused == "not on Sundays"
    assert "swordfish" not in crashed
    assert "swordfish" in caplog.text
    assert wrong.startswith("Invalid arguments for add: a")
    assert unknown_argument.startswith("Invalid arguments for add: c")
    assert "steal" in unknown
    assert fine == "2"


async def test_calls_run_concurrently_and_their_results_are_in_the_order_of_the_calls(mode: str) -> None:
    seq = Sequencer()

    async def slow(ctx: Context) -> str:
        async with seq(1):
            assert ctx.depth == 1
        return "slow"

    async def fast() -> str:
        async with seq(0):
            pass
        return "fast"

    client = MockClient(samples=[[tool_use("slow"), tool_use("fast")], "done"], era=mode)
    with trio.fail_after(5):
        async with client.context() as ctx:
            await ctx.run_tool_loop("Go.", [slow, fast])
    assert texts_of(results_in(requests_of(client)[1].messages)) == ["slow", "fast"]


async def test_a_tool_may_ask_the_user_and_the_model(mode: str) -> None:
    async def choose(ctx: Context) -> str:
        chosen = await ctx.elicit.strict("Which?", int)
        return f"{chosen}, {(await ctx.sample('A word?')).text}"

    client = MockClient(
        elicits=[1, 2], samples=[[tool_use("choose"), tool_use("choose")], "red", "red", "done"], era=mode
    )
    async with client.context() as ctx:
        result = await ctx.run_tool_loop("Go.", [choose])
        assert len(ctx.messages) == 4
    assert result.text == "done"
    assert sorted(texts_of(results_in(result.messages))) == ["1, red", "2, red"]


# how it ends


async def test_a_tool_ends_the_loop_with_a_value_and_cancels_the_other_calls(mode: str) -> None:
    ended: list[str] = []

    async def find() -> str:
        raise BreakToolLoop({"flight": "TP3"}, "found")

    async def wait() -> str:
        try:
            await trio.sleep(math.inf)
        finally:
            ended.append("wait")
        return ""

    client = MockClient(samples=[[tool_use("wait"), tool_use("find"), tool_use("add", a=1, b=2)]], era=mode)
    with trio.fail_after(5):
        async with client.context() as ctx:
            result = await ctx.run_tool_loop("Go.", [find, wait, add])
            assert ctx.messages == result.messages
    assert (result.text, result.value, result.ended_by, result.iterations) == ("found", {"flight": "TP3"}, "break", 1)
    assert ended == ["wait"]
    results = results_in(result.messages)
    assert [each.tool_use_id for each in results] == ["wait_1", "find_2", "add_3"]
    assert results[0].is_error
    assert texts_of(results)[1] == "found"


@pytest.mark.parametrize(("value", "text"), [("all", "all"), (None, "A tool has ended the loop."), ([1, 2], "[1,2]")])
def test_a_break_has_the_text_of_its_value(value: Any, text: str) -> None:
    error = BreakToolLoop(value)
    assert (error.value, str(error)) == (value, text)


def test_a_break_takes_json_only() -> None:
    with pytest.raises(ValueError, match="nan"):
        BreakToolLoop(math.nan)


async def test_a_break_in_a_call_of_a_client_is_an_error_result() -> None:
    async def find() -> str:
        raise BreakToolLoop("found")

    result = await MockClient().call(find)
    assert (result.is_error, result.text) == (True, "found")


async def test_more_calls_than_the_limit_end_the_loop_before_one_runs() -> None:
    async with make_context(samples=[[tool_use("add", a=1, b=1)] * 101]) as ctx:
        with pytest.raises(LimitExceeded, match="101"):
            await ctx.run_tool_loop("Add.", [add])
        assert ctx.messages == ()


async def test_the_timeout_covers_the_whole_loop(mode: str, autojump_clock: object) -> None:
    ended: list[str] = []

    async def wait() -> str:
        try:
            await trio.sleep(math.inf)
        finally:
            ended.append("wait")
        return ""

    async with make_context(samples=[tool_use("wait")], era=mode) as ctx:
        start = trio.current_time()
        with pytest.raises(BranchLimit) as caught:
            await ctx.run_tool_loop("Go.", [wait], timeout=5)
        assert (caught.value.kind, trio.current_time() - start) == ("time", 5)
        assert ctx.messages == ()
    assert ended == ["wait"]


async def test_a_client_without_tools_is_asked_nothing() -> None:
    client = MockClient(samples=[], capabilities=ClientCapabilities(sampling=SamplingCapability()))
    async with client.context() as ctx:
        with pytest.raises(CapabilityError):
            await ctx.run_tool_loop("Add.", [add])
    assert client.questions == []


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (("Go.", add), {}, TypeError),
        (("Go.", "add"), {}, TypeError),
        (("Go.", [Tool(name="t", input_schema={"type": "object"})]), {}, TypeError),
        ((None, [add]), {}, TypeError),
        (("Go.", [add]), {"messages": [message("user", "Go.")]}, TypeError),
        (("Go.", [add]), {"max_iterations": 0}, ValueError),
        (("Go.", [add]), {"tool_choice": "any"}, ValueError),
        (("Go.", [add]), {"timeout": -1}, ValueError),
        (("Go.", [add]), {"max_token": 5}, TypeError),
        (("Go.", [add, add]), {}, ValueError),
        (("Go.", [dict]), {}, TypeError),
        (("Go.", [5]), {}, TypeError),
        (("Go.", ["nothing"]), {}, LookupError),
    ],
)
async def test_wrong_arguments_are_refused_before_anything_is_asked(
    arguments: Any, options: Any, error: type[Exception]
) -> None:
    client = MockClient(samples=[])
    async with client.context() as ctx:
        with pytest.raises(error):
            await ctx.run_tool_loop(*arguments, **options)
    assert client.questions == []


# budgets and depth


async def test_the_budget_of_a_tool_is_a_part_of_that_of_its_caller() -> None:
    server = Server("s")

    @server.tool(token_budget=10)
    async def think(ctx: Context) -> str:
        return (await ctx.sample("Think.")).text

    samples = [answer(use("think"), {"totalTokens": 10}), answer("hm", {"totalTokens": 16}), "done"]

    @server.tool
    async def lead(ctx: Context) -> str:
        result = await ctx.run_tool_loop("Go.", ["think"])
        return texts_of(results_in(result.messages))[0]

    assert "10 tokens" in (await MockClient(samples=samples).call((server, "lead"))).text


async def test_a_loop_whose_calls_would_nest_too_deep_runs_none() -> None:
    server = Server("s")

    @server.tool(max_depth=0)
    async def lead(ctx: Context) -> str:
        with pytest.raises(BranchLimit) as caught:
            await ctx.run_tool_loop("Add.", [add])
        return caught.value.kind

    assert (await MockClient(samples=[tool_use("add", a=1, b=1)]).call((server, "lead"))).text == "depth"


# replays


def numbered(index: int, blocks: Sequence[Any]) -> CreateMessageResult:
    """An answer whose tool uses have ids that no other answer has."""
    return answer([each.model_copy(update={"id": f"{index}-{place}"}) for place, each in enumerate(blocks)])


def replayable(effects: list[str], provider: ScriptedProvider | None = None) -> Server:
    """A server whose tool loops over one tool that asks and one that does not, and asks at the end."""
    server = Server("s", sampling=provider)

    @server.tool
    async def note(text: str) -> str:
        effects.append(text)
        return f"noted {text}"

    @server.tool
    async def confirm(what: str, ctx: Context) -> str:
        sure = await ctx.elicit.strict(f"{what}?", bool)
        effects.append(f"confirmed {what}")
        return str(sure)

    @server.tool
    async def stop(text: str) -> str:
        effects.append("stop")
        raise BreakToolLoop([text])

    @server.tool(resume="replay")
    async def lead(ctx: Context) -> str:
        result = await ctx.run_tool_loop("Go.", [note, confirm, stop])
        last = await ctx.elicit("Done?", bool)
        return f"{result.text}, {result.ended_by}, {result.iterations}, {result.value}, {last.action}"

    return server


async def test_a_replay_runs_no_call_again_that_has_ended() -> None:
    effects: list[str] = []
    rounds = [
        [tool_use("note", text="a"), tool_use("confirm", what="x"), tool_use("note", text="b")],
        [tool_use("note", text="c")],
    ]
    provider = ScriptedProvider([*(numbered(index, blocks) for index, blocks in enumerate(rounds)), "end"])
    report = await replay_tool(replayable(effects, provider), "lead", on_elicit=lambda _params: accept(value=True))
    report.check()
    assert report.result.text == "end, answer, 3, None, accept"
    assert sorted(effects[:2]) == ["a", "b"]
    assert effects[2:] == ["confirmed x", "c"]
    assert len(provider.requests) == 3


async def test_a_replay_of_a_loop_that_a_tool_ended_runs_none_of_its_calls() -> None:
    effects: list[str] = []
    client = MockClient(
        elicits=[SecondWorker(True)], samples=[[tool_use("stop", text="found"), tool_use("note", text="a")]]
    )
    assert (await client.call((replayable(effects), "lead"))).text == "[\"found\"], break, 1, ['found'], accept"
    assert effects.count("stop") == 1
    assert len(effects) <= 2


async def test_a_loop_continues_in_another_process_where_its_tool_has_asked() -> None:
    effects: list[str] = []
    client = MockClient(
        elicits=[SecondWorker(True), SecondWorker(True)],
        samples=[SecondWorker([tool_use("note", text="a"), tool_use("confirm", what="x")]), SecondWorker("end")],
    )
    assert (await client.call((replayable(effects), "lead"))).text == "end, answer, 2, None, accept"
    assert effects == ["a", "confirmed x"]
    assert len(requests_of(client)) == 2
