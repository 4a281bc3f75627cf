"""Branches as a tool starts them: what they are given, what they may use, and what comes back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trio
from connected import connected
from naming import naming, unnamed
from one_tool import talk_with
from scripted_model import ScriptedModel, answer, message
from talk import Talk, accept
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import CancelReason, Context, PeerError, Server, ServiceOptions, accept as user_accepts
from trio_mcp.errors import BranchElicitNotAllowed, BranchLimit, CapabilityError
from trio_mcp.testing import make_context, replay_tool
from trio_mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    SamplingMessage,
    TextContent,
)

BOUND = 20.0
Body = Callable[[Context], Awaitable[str]]


class Model(ScriptedModel):
    """The client's model: it numbers its answers, and counts these tokens for them."""

    def __init__(self, *usages: JsonObject | None) -> None:
        counted = enumerate([*usages, *[None] * 9], 1)
        super().__init__(*(answer(f"answer {number}", usage) for number, usage in counted))

    @property
    def heard(self) -> list[list[str]]:
        """The texts of each request."""
        return [texts(params.messages) for params in self.asked]


def texts(messages: Any) -> list[str]:
    return [message.content.text for message in messages]


async def call(
    body: Body, *, model: Any = None, mode: str = "legacy", limits: Any = None, **tool: Any
) -> CallToolResult:
    """Call a tool with this body, over memory; the user says yes to everything."""
    server = Server("tester", options=ServiceOptions(**(limits or {})))
    server.add_tool(body, name="tool", **tool)
    asked = model or Model()
    handlers = {"on_sample": getattr(asked, "sample", asked), "on_elicit": lambda _: user_accepts(value=True)}
    async with connected(server, mode=mode, **handlers) as client:
        return await client.call_tool("tool")


async def text_of(body: Body, **more: Any) -> str:
    result = await call(body, **more)
    assert not result.is_error, result.text
    return result.text


# a conversation


async def test_a_prompt_goes_on_with_the_conversation_and_its_answer_is_kept(mode: str) -> None:
    async def body(ctx: Context) -> str:
        assert ctx.messages == ()
        await ctx.sample("one")
        await ctx.sample("two")
        assert [message.role for message in ctx.messages] == ["user", "assistant"] * 2
        return " ".join(texts(ctx.messages))

    model = Model()
    assert await text_of(body, model=model, mode=mode) == "one answer 1 two answer 2"
    assert model.heard == [["one"], ["one", "answer 1", "two"]]


async def test_given_messages_are_sent_as_they_are_and_nothing_is_kept_of_them(mode: str) -> None:
    async def body(ctx: Context) -> str:
        await ctx.sample("one")
        await ctx.sample(messages=[message("user", "apart")])
        return " ".join(texts(ctx.messages))

    model = Model()
    assert await text_of(body, model=model, mode=mode) == "one answer 1"
    assert model.heard == [["one"], ["apart"]]


async def unanswering(params: CreateMessageRequestParams) -> str:
    """A model that fails when it is asked to, and takes its time when it is asked to; else it says yes."""
    match texts(params.messages)[-1]:
        case "fail":
            raise RuntimeError("no more")
        case "be slow":
            await trio.sleep(10)
    return "yes"


@pytest.mark.parametrize(("mode", "prompt"), [("legacy", "fail"), ("legacy", "be slow"), ("2026-07-28", "be slow")])
async def test_a_sample_without_an_answer_leaves_nothing_in_the_conversation(
    mode: str, prompt: str, autojump_clock: MockClock
) -> None:
    async def body(ctx: Context) -> str:
        await ctx.sample("one")
        with suppress(PeerError), trio.move_on_after(5):
            await ctx.sample(prompt)
        await ctx.sample("two")
        return " ".join(texts(ctx.messages))

    assert await text_of(body, model=unanswering, mode=mode) == "one yes two yes"


async def test_samples_side_by_side_in_one_lane_keep_each_prompt_beside_its_answer(autojump_clock: MockClock) -> None:
    async def slow_first(params: CreateMessageRequestParams) -> str:
        prompt = texts(params.messages)[-1]
        await trio.sleep(10 if prompt == "a" else 5)
        return f"re {prompt}"

    async def body(ctx: Context) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.sample, "a")
            nursery.start_soon(ctx.sample, "b")
        return " ".join(texts(ctx.messages))

    assert await text_of(body, model=slow_first) == "b re b a re a"


async def test_a_branch_has_a_conversation_apart_from_its_parent_and_its_siblings(mode: str) -> None:
    async def branch(child: Context) -> list[str]:
        await child.sample("inner")
        return texts(child.messages)

    async def body(ctx: Context) -> str:
        await ctx.sample("outer")
        conversations = [*await ctx.branch_all(branch, branch), await ctx.branch(branch)]
        assert conversations == [["outer", "yes", "inner", "yes"]] * 3
        return " ".join(texts(ctx.messages))

    assert await text_of(body, model=unanswering, mode=mode) == "outer yes"


@pytest.mark.parametrize(
    ("options", "begins_with"),
    [
        ({}, ["one", "answer 1"]),
        ({"messages": [message("user", "more")]}, ["one", "answer 1", "more"]),
        ({"inherit_messages": False}, []),
        ({"inherit_messages": False, "messages": (message("user", "only"),)}, ["only"]),
    ],
)
async def test_a_branch_inherits_the_conversation_unless_an_option_says_no(
    options: dict[str, Any], begins_with: list[str]
) -> None:
    async def look(child: Context) -> str:
        assert texts(child.parent_messages) == ["one", "answer 1"]
        return " ".join(texts(child.messages))

    async def body(ctx: Context) -> str:
        await ctx.sample("one")
        async with ctx.branches() as group:
            started = group.start(look, **options)
        assert started.value == await ctx.branch(look, **options)
        return started.value

    assert await text_of(body) == " ".join(begins_with)


async def test_what_a_branch_begins_with_is_what_was_said_when_it_was_started() -> None:
    """And not when it first runs: its parent may have gone on by then."""
    seen: list[list[str]] = []

    async def look(child: Context) -> None:
        await ready.wait()
        seen.extend([texts(child.messages), texts(child.parent_messages)])

    async def body(ctx: Context) -> str:
        async with ctx.branches() as group:
            group.start(look)
            await ctx.sample("later")
            ready.set()
        return "done"

    ready = trio.Event()
    await text_of(body)
    assert seen == [[], []]


async def test_no_branch_can_change_what_another_one_reads() -> None:
    """A message is frozen, but its blocks may be a list, and what hangs on them dicts."""
    parts = [TextContent(text="a", meta={"k": ["v"]}), TextContent(text="b")]
    given = SamplingMessage(role="user", content=parts)

    def spoil(message: Any) -> None:
        message.content[0].meta["k"].append("spoilt")
        message.content.clear()

    async def spoils(child: Context) -> None:
        for each in (*child.messages, *child.parent_messages):
            spoil(each)

    async def looks(child: Context) -> str:
        await wait_all_tasks_blocked()
        (message,) = child.messages
        assert message == child.parent_messages[0]
        assert isinstance(message.content, list)
        return "".join(f"{block.text}{block.meta}" for block in message.content if isinstance(block, TextContent))

    async def outer(ctx: Context) -> str:
        spoil(given)
        return (await ctx.branch_all(spoils, looks))[1]

    async def body(ctx: Context) -> str:
        return await ctx.branch(outer, messages=[given])

    assert await text_of(body) == "a{'k': ['v']}bNone"


async def test_a_returned_sample_cannot_change_the_conversation() -> None:
    async def body(ctx: Context) -> str:
        sampled = await ctx.sample("one")
        sampled.message.content[0].meta["k"].append("spoilt")  # type: ignore[index,union-attr]
        sampled.message.content.clear()
        block, _ = ctx.messages[1].content  # type: ignore[misc]
        return f"{block.text} {block.meta}"

    model = ScriptedModel([TextContent(text="kept", meta={"k": []}), TextContent(text="too")])
    assert await text_of(body, model=model) == "kept {'k': []}"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "parent"),
        ({"system_prompt": "own"}, "own"),
        ({"inherit_system_prompt": False}, None),
        ({"inherit_system_prompt": False, "system_prompt": "own"}, "own"),
        ({"system_prompt": ""}, ""),
    ],
)
async def test_a_branch_has_the_system_prompt_it_is_given_or_else_that_of_its_parent(
    options: dict[str, Any], expected: str | None
) -> None:
    model = Model()

    async def leaf(child: Context) -> str:
        await child.sample("as it is")
        await child.sample("otherwise", system_prompt="given")
        await child.sample(messages=[message("user", "apart")])
        assert child.parent_system_prompt == "parent"
        return str(child.system_prompt)

    async def outer(ctx: Context) -> str:
        return await ctx.branch(leaf, **options)

    async def body(ctx: Context) -> str:
        assert (ctx.system_prompt, ctx.parent_system_prompt, ctx.parent_messages) == (None, None, ())
        return await ctx.branch(outer, system_prompt="parent")

    assert await text_of(body, model=model) == str(expected)
    assert [params.system_prompt for params in model.asked] == [expected, "given", expected]


async def replayed(body: Body, model: Model, **tool: Any) -> str:
    """Replay a call after every leg, and return the text of its result."""
    server = Server("tester")
    server.add_tool(body, name="talks", resume="replay", **tool)
    with trio.fail_after(BOUND):
        report = await replay_tool(
            server, "talks", on_sample=model.sample, on_elicit=lambda _: user_accepts(value=True)
        )
    report.check()
    return report.result.text


async def test_a_conversation_is_the_same_in_every_replay() -> None:
    async def body(ctx: Context) -> str:
        await ctx.sample("one")
        inner = await ctx.branch(lambda child: child.sample("inner"))
        await ctx.elicit("Go on?", bool)
        await ctx.sample("two")
        return f"{inner.text} {' '.join(texts(ctx.messages))}"

    model = Model()
    assert await replayed(body, model) == "answer 2 one answer 1 two answer 3"
    assert model.heard == [["one"], ["one", "answer 1", "inner"], ["one", "answer 1", "two"]]


# depth


def nesting(ran: list[int], **options: Any) -> Body:
    async def down(ctx: Context) -> str:
        ran.append(ctx.depth)
        return await ctx.branch(down, **options)

    return down


@pytest.mark.parametrize(
    ("tool", "branch", "server", "deepest"),
    [
        ({"max_depth": 2}, {}, {}, 2),
        ({"max_depth": 0}, {}, {}, 0),
        ({"max_depth": 2}, {"max_depth": 4}, {}, 4),
        ({"max_depth": 4}, {"max_depth": 2}, {}, 2),
        ({"max_depth": 2}, {"max_depth": 99}, {"max_depth": 5}, 5),
        ({"max_depth": 99}, {}, {"max_depth": 5}, 5),
        ({}, {}, {"max_depth": 3}, 3),
        ({}, {}, {}, 32),
    ],
)
async def test_branches_nest_as_deep_as_tool_or_branch_allow_and_never_deeper_than_the_server_does(
    tool: dict[str, Any], branch: dict[str, Any], server: dict[str, Any], deepest: int
) -> None:
    ran: list[int] = []
    result = await call(nesting(ran, **branch), limits=server, **tool)
    assert ran == list(range(deepest + 1))
    assert result.is_error
    assert unnamed(result.text, deepest, deepest + 1) == []


async def never(_child: Context) -> None:
    raise AssertionError


async def test_a_group_refuses_a_branch_that_is_too_deep_when_it_is_started() -> None:
    async def body(ctx: Context) -> str:
        async with ctx.branches() as group:
            with pytest.raises(BranchLimit):
                group.start(never)
        for start in (ctx.branch_all, ctx.branch_race):
            with pytest.RaisesGroup(BranchLimit):
                await start(never, never)
        return "refused"

    assert await text_of(body, max_depth=0) == "refused"


# tokens

TEN = {"inputTokens": 6, "outputTokens": 4}


async def test_an_answer_that_is_more_than_was_left_is_charged_and_not_given(mode: str) -> None:
    async def body(ctx: Context) -> str:
        await ctx.sample("one")
        with pytest.raises(BranchLimit) as caught:
            await ctx.sample("two")
        assert (caught.value.kind, caught.value.limit, caught.value.used) == ("tokens", 19, 20)
        return " ".join(texts(ctx.messages))

    assert await text_of(body, model=Model(TEN, TEN), mode=mode, token_budget=19) == "one answer 1"


async def test_a_branch_with_a_budget_is_charged_and_so_is_everything_above_it() -> None:
    async def leaf(ctx: Context) -> str:
        await ctx.sample("?")
        with pytest.raises(BranchLimit) as caught:
            await ctx.sample("?")
        assert (caught.value.limit, caught.value.used) == (15, 20)
        return str(caught.value)

    async def body(ctx: Context) -> str:
        text = await ctx.branch(leaf, token_budget=15)
        await ctx.sample("?")
        with pytest.raises(BranchLimit, match=r"30 .*30"):
            await ctx.sample("?")
        return text

    model = Model(TEN, TEN, TEN)
    text = await text_of(body, model=model, token_budget=30)
    assert unnamed(text, "branch", "15 tokens", "20") == []
    assert len(model.asked) == 3


async def test_a_budget_of_a_branch_needs_none_of_the_tool() -> None:
    async def body(ctx: Context) -> str:
        with pytest.raises(BranchLimit, match=r"branch.* 0 "):
            await ctx.branch(lambda child: child.sample("?"), token_budget=0)
        await ctx.sample("free")
        return "done"

    model = Model()
    assert await text_of(body, model=model) == "done"
    assert len(model.asked) == 1


async def test_tokens_that_the_client_does_not_count_are_estimated_as_the_server_says() -> None:
    seen: list[tuple[list[str], str | None]] = []

    def estimate(params: CreateMessageRequestParams, result: CreateMessageResult | None) -> int:
        content = None if result is None else result.content
        seen.append((texts(params.messages), content.text if isinstance(content, TextContent) else None))
        return 7

    async def body(ctx: Context) -> str:
        await ctx.sample("one")
        await ctx.sample("two")
        with pytest.raises(BranchLimit) as caught:
            await ctx.sample("three")
        return f"{caught.value.used}"

    model = Model(None, TEN)
    assert await text_of(body, model=model, token_budget=20, limits={"estimate_tokens": estimate}) == "24"
    assert seen == [(["one"], "answer 1"), (["one", "answer 1", "two", "answer 2", "three"], "answer 3")]


@pytest.mark.parametrize("prompt", ["fail", "be slow"])
async def test_an_attempt_without_an_answer_counts_what_its_request_is_estimated_at(
    prompt: str, autojump_clock: MockClock
) -> None:
    async def body(ctx: Context) -> str:
        for _ in range(2):
            with suppress(PeerError), trio.move_on_after(1):
                await ctx.sample(prompt)
        with pytest.raises(BranchLimit, match=naming(used)):
            await ctx.sample(prompt)
        return "enough"

    used = 2 * -(-len(prompt) // 4)
    assert await text_of(body, model=unanswering, token_budget=used) == "enough"


async def test_what_was_never_sent_is_not_counted() -> None:
    async def tries(ctx: Context) -> None:
        for _ in range(3):
            with pytest.raises(CapabilityError):
                await ctx.sample("a prompt of more than four characters")

    async with talk_with(tries, token_budget=1) as talk:
        await talk.text(talk.leg("tries", capabilities={}))


async def test_a_replay_charges_the_answers_it_remembers_again() -> None:
    spent: list[str] = []

    async def body(ctx: Context) -> str:
        await ctx.sample("one")
        await ctx.elicit("Go on?", bool)
        await ctx.branch(lambda child: child.sample("two"), token_budget=10)
        with pytest.raises(BranchLimit) as caught:
            await ctx.sample("three")
        spent.append(str(caught.value))
        await ctx.elicit("And now?", bool)
        return spent[-1]

    text = await replayed(body, Model(TEN, TEN, TEN), token_budget=25)
    assert re.findall(r"\d+", text) == ["25", "30"]
    assert len(set(spent)) == 1
    assert len(spent) > 1  # it ran more than once, and each time it came to the same


# time


async def test_a_branch_over_its_time_has_withdrawn_its_question_when_it_fails(autojump_clock: MockClock) -> None:
    seen: list[object] = []

    async def asks(child: Context) -> None:
        try:
            await child.elicit("Quick?", bool)
        finally:
            seen.append((child.cancel_reason, child.deadline))

    async def tool(ctx: Context) -> str:
        with pytest.raises(BranchLimit) as caught:
            await ctx.branch(asks, timeout=3)
        assert (caught.value.kind, caught.value.limit, ctx.cancel_reason) == ("time", 3, None)
        return "went on"

    async with talk_with(tool) as talk:
        await talk.initialize()
        request_id = talk.call("tool")
        question = await talk.question()
        assert (await talk.notification("notifications/cancelled"))["requestId"] == question["id"]
        assert await talk.text(request_id) == "went on"
    assert seen == [(CancelReason.DEADLINE, -float("inf"))]


async def test_the_time_of_a_branch_runs_while_its_call_is_parked(autojump_clock: MockClock) -> None:
    async def tool(ctx: Context) -> str:
        try:
            await ctx.branch(lambda child: child.elicit("Quick?", bool), timeout=3)
        except BranchLimit:
            return f"gave up after {trio.current_time():g} seconds"
        return "answered"

    async with talk_with(tool) as talk:
        asked = await talk.round(talk.leg("tool"))
        await trio.sleep(10)
        assert await talk.text(asked.retry(True)) == "gave up after 3 seconds"


@pytest.mark.parametrize("reason", [CancelReason.CLIENT, CancelReason.DISCONNECT])
async def test_what_cancelled_the_call_is_the_reason_that_a_branch_sees(reason: CancelReason) -> None:
    seen: list[object] = []

    async def tool(ctx: Context) -> str:
        async def unwinds(child: Context) -> None:
            try:
                await trio.sleep_forever()
            finally:
                seen.append(child.cancel_reason)

        await ctx.branch_all(unwinds, unwinds)
        return "never"

    async with talk_with(tool) as talk:
        request_id = talk.leg("tool")
        await wait_all_tasks_blocked()
        if reason is CancelReason.CLIENT:
            talk.cancel(request_id)
        else:
            talk.session.disconnect(talk.listeners[request_id])
        await talk.silence()
    assert seen == [reason, reason]


@pytest.mark.parametrize("who", ["a sibling", "the body"])
async def test_no_question_of_a_branch_goes_out_that_a_failure_has_cancelled(who: str) -> None:
    """When nothing but questions is left that are being given up, the leg does not end with them."""

    async def first(child: Context) -> None:
        await child.elicit("First?", bool)
        raise LookupError

    async def tool(ctx: Context) -> str:
        with pytest.RaisesGroup(LookupError):
            async with ctx.branches() as group:
                group.start(lambda child: child.elicit("Second?", bool))
                if who == "a sibling":
                    group.start(first)
                else:
                    await first(ctx)
        return "went on"

    async with talk_with(tool) as talk:
        asked = await talk.round(talk.leg("tool"))
        first_key = next(key for key in asked.keys if asked.questions[key]["params"]["message"] == "First?")
        assert await talk.text(asked.leg({first_key: accept(value=True)})) == "went on"


# asking the user


async def test_a_branch_that_may_not_ask_the_user_raises_and_asks_nothing(mode: str) -> None:
    async def below(child: Context) -> str:
        with pytest.raises(BranchElicitNotAllowed, match=naming("allow_elicit=False")):
            await child.elicit("May I?", bool)
        return (await child.sample("But this")).text

    async def nested(child: Context) -> str:
        first = await child.branch(below)
        return f"{first}, {await child.branch(below, allow_elicit=True)}"

    async def body(ctx: Context) -> str:
        text = await ctx.branch(nested, allow_elicit=False)
        answer = await ctx.elicit("May the body?", bool)
        return f"{text}, {answer.action}"

    assert await text_of(body, mode=mode) == "answer 1, answer 2, accept"


# the first to end


async def test_a_race_of_questions_ends_with_the_first_answer_and_withdraws_the_others(mode: str) -> None:
    async def tool(ctx: Context) -> str:
        first = await ctx.branch_race(lambda child: child.sample("model?"), lambda child: child.elicit("user?", bool))
        return type(first).__name__

    async with talk_with(tool) as talk:
        if mode == "legacy":
            assert await race_live(talk) == "Accepted"
        else:
            asked = await talk.round(talk.leg("tool"))
            assert asked.keys == ["sample/1-1", "elicit/2-1"]
            assert await talk.text(asked.leg({"elicit/2-1": accept(value=True)})) == "Accepted"
        await talk.silence()
        assert talk.service.supervisor.actors == ()


async def race_live(talk: Talk) -> str:
    await talk.initialize()
    request_id = talk.call("tool")
    await wait_all_tasks_blocked()
    asked = {message["method"]: message for message in talk.waiting()}
    talk.answer(asked["elicitation/create"], accept(value=True))
    notice = await talk.notification("notifications/cancelled")
    assert notice["requestId"] == asked["sampling/createMessage"]["id"]
    return await talk.text(request_id)


async def test_a_race_needs_a_branch() -> None:
    async with make_context() as ctx:
        with pytest.raises(TypeError, match="at least one"):
            await ctx.branch_race()


# options


@pytest.mark.parametrize(
    ("options", "kind", "names"),
    [
        ({"time": 3}, TypeError, ["'time'", "'timeout'"]),
        ({"timeout": "3"}, TypeError, ["timeout", "'3'"]),
        ({"timeout": 0}, ValueError, ["timeout", "0"]),
        ({"max_depth": 1.5}, TypeError, ["max_depth", "1.5"]),
        ({"max_depth": True}, TypeError, ["max_depth", "True"]),
        ({"token_budget": -1}, ValueError, ["token_budget", "-1"]),
        ({"messages": "hi"}, TypeError, ["messages", "SamplingMessage", "'hi'"]),
        ({"messages": ["hi"]}, TypeError, ["messages", "SamplingMessage", "'hi'"]),
    ],
)
async def test_a_wrong_option_of_a_branch_is_rejected_and_nothing_runs(
    options: dict[str, Any], kind: type[Exception], names: list[str]
) -> None:
    async with make_context() as ctx:
        with pytest.raises(kind, match=naming(*names)):
            await ctx.branch(never, **options)
        async with ctx.branches() as group:
            with pytest.raises(kind, match=naming(*names)):
                group.start(never, **options)


async def nothing(_ctx: Context) -> str:
    return ""


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (nothing, ["branch(nothing)", "branch(nothing(...))"]),
        (lambda ctx: [nothing, nothing], ["Context", "[<function nothing"]),
        (lambda ctx: None, ["Context", "None"]),
    ],
    ids=["a coroutine", "a list", "nothing"],
)
async def test_a_branch_that_is_not_an_async_function_is_rejected_by_name(
    wrong: Callable[[Context], Any], names: list[str]
) -> None:
    @contextmanager
    def rejected(value: object) -> Iterator[Any]:
        with pytest.raises(TypeError, match=naming(*names)):
            yield value
        # A coroutine that is only dropped warns when it is collected, perhaps in another test.
        if inspect.iscoroutine(value):
            value.close()

    async with make_context() as ctx:
        for start in (ctx.branch, ctx.branch_race):
            with rejected(wrong(ctx)) as value:
                await start(value)
        async with ctx.branches() as group:
            with rejected(wrong(ctx)) as value:
                group.start(value)
