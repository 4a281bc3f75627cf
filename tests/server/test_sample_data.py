"""Structured answers of a model: `ctx.sample(..., returns=T)` and `ctx.sample_schema`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal
from unittest.mock import Mock

import pytest
import trio
from pydantic import BaseModel, ConfigDict, Field
from scripted_model import answer, message, requests_of, use
from talk import offering, talk_to
from typing_extensions import TypedDict
from wire_terms import SCHEMA_TOOL

from trio_mcp import Context, RequestTimeout, SampleInvalid, Server
from trio_mcp.errors import BranchLimit
from trio_mcp.protocol.schema.json_schema import Schema
from trio_mcp.protocol.schema.references import CheckTooExpensive
from trio_mcp.testing import MockClient, Never, SecondWorker, make_context
from trio_mcp.types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    ToolChoice,
    ToolResultContent,
)

ways = pytest.mark.parametrize("tools", [True, False], ids=["tool", "text"])

PLAIN = ClientCapabilities(sampling=SamplingCapability())


class Late(BaseModel):
    """Pydantic builds its validator when it is first needed."""

    model_config = ConfigDict(defer_build=True)

    at: date


class Weather(BaseModel):
    """How it will be."""

    city: str
    degrees: int


LISBON = Weather(city="Lisbon", degrees=21)


def declared(tools: bool) -> ClientCapabilities | None:
    """What a mock client declares: everything, or sampling without tools."""
    return None if tools else PLAIN


def gives(data: Any, tool_use_id: str = "s1") -> CreateMessageResult:
    return answer(use(SCHEMA_TOOL, tool_use_id, **data))


# how it is asked


async def test_a_client_with_tools_is_offered_one_that_it_has_to_call() -> None:
    client = MockClient(samples=[LISBON])
    async with client.context() as ctx:
        answer = await ctx.sample("Weather?", returns=Weather)
    assert answer.data == LISBON
    (tool,) = requests_of(client)[-1].tools or []
    assert tool.name == SCHEMA_TOOL
    assert tool.input_schema["required"] == ["city", "degrees"]
    assert requests_of(client)[-1].tool_choice == ToolChoice(mode="required")
    assert requests_of(client)[-1].messages == [message("user", "Weather?")]


@pytest.mark.parametrize("era", ["modern", "legacy", "2025-06-18", "2024-11-05"])
async def test_a_client_without_tools_receives_the_schema(era: str) -> None:
    client = MockClient(samples=[LISBON], era=era, capabilities=PLAIN)
    async with client.context() as ctx:
        assert (await ctx.sample("Weather?", returns=Weather)).data == LISBON
    assert requests_of(client)[-1].tools is None
    assert requests_of(client)[-1].tool_choice is None
    sent = [message.wire() for message in requests_of(client)[-1].messages]
    assert "Weather?" in str(sent)
    assert '\\"degrees\\"' in json.dumps(sent)


async def test_a_client_of_an_older_revision_receives_the_schema_whatever_it_declares() -> None:
    async def forecast(ctx: Context) -> int:
        return (await ctx.sample("Weather?", returns=Weather)).data.degrees

    async with talk_to(offering(forecast)) as talk:
        await talk.initialize("2025-06-18", {"sampling": {"tools": {}}})
        call = talk.call("forecast")
        question = await talk.receive()
        assert "tools" not in question["params"]
        talk.answer(question, answer(LISBON.model_dump_json()).wire())
        assert (await talk.result(call))["structuredContent"] == {"result": 21}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Trip(TypedDict):
    to: str


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date


@ways
@pytest.mark.parametrize(
    ("returns", "given", "value"),
    [
        (Weather, {"city": "Lisbon", "degrees": 21}, LISBON),
        (Point, {"x": 1}, Point(1)),
        (Late, {"at": "2026-07-28"}, Late(at=date(2026, 7, 28))),
        (Trip, {"to": "Faro"}, {"to": "Faro"}),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Strict, {"day": "2026-07-28"}, Strict(day=date(2026, 7, 28))),
        (int, {"result": 5}, 5),
        (str, {"result": "five"}, "five"),
        (bool, {"result": True}, True),
        (list[Point], {"result": [{"x": 1}]}, [Point(1)]),
        (Weather | Point, {"result": {"x": 1}}, Point(1)),
        (int | None, {"result": None}, None),
        (Literal["a", "b"], {"result": "b"}, "b"),
        (Colour, {"result": "red"}, Colour.RED),
        (Annotated[int, Field(ge=1)], {"result": 1}, 1),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}, {"a": 1}),
        ({"type": "integer"}, {"result": 1}, 1),
    ],
)
async def test_a_value_of_any_type_is_read(tools: bool, returns: Any, given: Any, value: object) -> None:
    async with make_context(samples=[given], capabilities=declared(tools)) as ctx:
        answer = await ctx.sample("Well?", returns=returns)
    assert answer.data == value
    assert type(answer.data) is type(value)


@pytest.mark.parametrize(
    ("returns", "error"),
    [
        ("Weather", TypeError),
        (LISBON, TypeError),
        ([int], TypeError),
        (open, TypeError),
        (declared, TypeError),
        (lambda x: x, TypeError),
        (BaseModel, TypeError),
        ({"type": "odd"}, ValueError),
    ],
)
async def test_a_value_that_is_not_a_type_is_an_immediate_error(returns: Any, error: type[Exception]) -> None:
    client = MockClient()
    async with client.context() as ctx:
        with pytest.raises(error, match="returns"):
            ctx.sample("Well?", returns=returns)


# what counts as an answer


@pytest.mark.parametrize(
    "text",
    [
        '{"city": "Lisbon", "degrees": 21}',
        ' \n{"city": "Lisbon", "degrees": 21}\n',
        'Sure:\n```json\n{"city": "Lisbon", "degrees": 21}\n```\nEnjoy!',
        '```\n{"city": "Lisbon", "degrees": 21}```',
        'It is {"city": "Lisbon", "degrees": 21}, I think.',
    ],
    ids=["bare", "spaces", "fence", "unnamed fence", "in a sentence"],
)
@ways
async def test_json_in_a_text_is_an_answer(tools: bool, text: str) -> None:
    async with make_context(samples=[text], capabilities=declared(tools)) as ctx:
        assert (await ctx.sample("Weather?", returns=Weather)).data == LISBON


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ("21 degrees", "JSON"),
        ("", "text"),
        ("[1]", "object"),
        ('{"city": "Lisbon", "city": "Faro", "degrees": 21}', "city"),
        ('{"city": "Lisbon", "degrees": NaN}', "NaN"),
        ("[" * 100 + "]" * 100, "max_depth"),
        (gives({"city": "Lisbon"}), "degrees"),
        (gives({"city": 1, "degrees": "x"}), "city"),
        (answer([use(SCHEMA_TOOL, each, **LISBON.model_dump()) for each in "ab"]), "2"),
        (answer(use("weather", **LISBON.model_dump())), "weather"),
    ],
    ids=["prose", "empty", "list", "name twice", "NaN", "deep", "missing", "types", "two", "other tool"],
)
async def test_an_answer_that_does_not_match_is_asked_again_with_the_reason(mode: str, bad: Any, named: str) -> None:
    client = MockClient(samples=[bad, LISBON], era=mode)
    async with client.context() as ctx:
        assert (await ctx.sample("Weather?", returns=Weather)).data == LISBON
        assert [message.role for message in ctx.messages] == ["user", "assistant"]
        assert ctx.messages[0] == message("user", "Weather?")
    assert requests_of(client)[0].messages == [message("user", "Weather?")]
    (again,) = requests_of(client)[1].messages
    assert again.content[0] == TextContent(text="Weather?")
    assert named in client.questions[1].message


async def test_the_reason_names_the_member_that_holds_a_single_value() -> None:
    client = MockClient(samples=[{"result": "five"}, {"value": 5}, 5])
    async with client.context() as ctx:
        assert (await ctx.sample("How many?", returns=int)).data == 5
    assert "result: " in client.questions[1].message
    assert "'result'" in client.questions[2].message


@pytest.mark.parametrize(
    ("ask", "helper"),
    [
        (lambda ctx: ctx.sample("Weather?", returns=Weather), "sample"),
        (lambda ctx: ctx.sample_schema("Weather?", Weather), "sample_schema"),
    ],
)
async def test_after_all_attempts_the_error_has_each_of_them(ask: Any, helper: str) -> None:
    bad = [gives({"city": "Lisbon"}), "no", gives({"degrees": 21}, "s3")]
    client = MockClient(samples=bad)
    async with client.context() as ctx:
        with pytest.raises(SampleInvalid) as caught:
            await ask(ctx)
        assert ctx.messages == ()
    error = caught.value
    assert error.helper == helper
    texts = [attempt.text for attempt in error.attempts]
    assert texts == ['__schema__ {"city":"Lisbon"}', "no", '__schema__ {"degrees":21}']
    assert ["degrees" in error.attempts[0].reason, "city" in error.attempts[2].reason] == [True, True]
    assert error.last_result.message == bad[2]


async def test_each_further_attempt_has_the_reason_of_the_one_before_and_no_older_one() -> None:
    client = MockClient(samples=["no", gives({"city": "Lisbon"}), LISBON])
    async with client.context() as ctx:
        await ctx.sample("Weather?", returns=Weather)
    for number, named in ((1, "JSON"), (2, "degrees")):
        (again,) = requests_of(client)[number].messages
        assert isinstance(again.content, list)
        assert len(again.content) == 2
        assert named in str(again.content[1])


async def test_an_uncaught_error_is_the_result_of_the_tool() -> None:
    async def forecast(ctx: Context) -> str:
        return (await ctx.sample("Weather?", returns=Weather, retries=0)).data.city

    result = await MockClient(samples=["no"]).call(forecast)
    assert result.is_error
    assert "no valid answer" in result.text


async def test_a_truncated_answer_is_an_error_that_names_the_cause() -> None:
    async with make_context(samples=[answer('{"ci', stop_reason="maxTokens")]) as ctx:
        with pytest.raises(SampleInvalid, match="cut off"):
            await ctx.sample("Weather?", returns=Weather, retries=0)


# across the attempts


async def test_one_timeout_covers_all_attempts(autojump_clock: trio.abc.Clock) -> None:
    async def slow(_params: CreateMessageRequestParams) -> str:
        await trio.sleep(2)
        return "no"

    client = MockClient(samples=[slow, slow, slow], era="legacy")
    with client:
        async with client.context() as ctx:
            with pytest.raises(RequestTimeout):
                await ctx.sample("Weather?", returns=Weather, retries=9, timeout=5)
            assert ctx.messages == ()
    assert len(client.questions) == 3


async def test_a_token_budget_counts_every_attempt() -> None:
    bad = answer(use(SCHEMA_TOOL), {"totalTokens": 10})
    client = MockClient(samples=[bad, bad])
    async with client.context() as ctx:

        async def asks(child: Context) -> None:
            await child.sample("Weather?", returns=Weather, retries=9)

        with pytest.raises(BranchLimit) as caught:
            await ctx.branch(asks, token_budget=20)
    assert (caught.value.kind, caught.value.used) == ("tokens", 20)


async def test_a_cancel_keeps_nothing(autojump_clock: trio.abc.Clock) -> None:
    client = MockClient(samples=["no", Never()], era="legacy")
    async with client.context() as ctx:
        with trio.move_on_after(1):
            await ctx.sample("Weather?", returns=Weather)
        assert ctx.messages == ()


@ways
async def test_a_replay_asks_every_attempt_the_same(tools: bool) -> None:
    """Each answer goes to another process, which runs the tool again with the answers that it had."""
    server = Server("s")

    @server.tool(resume="replay")
    async def forecast(ctx: Context) -> str:
        answer = await ctx.sample("Weather?", returns=Weather)
        again = await ctx.sample("And tomorrow?", returns=int)
        return f"{answer.data.degrees} {again.data} {len(ctx.messages)}"

    script = [SecondWorker("no"), SecondWorker(LISBON), SecondWorker("no"), SecondWorker({"result": 3})]
    client = MockClient(samples=script, capabilities=declared(tools))
    assert (await client.call(forecast)).text == "21 3 4"


async def test_an_expensive_check_of_data_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Schema, "quick_check", Mock(side_effect=CheckTooExpensive))  # as every check is now
    client = MockClient(samples=[{}, {"a": 1}])
    async with client.context() as ctx:
        assert (await ctx.sample("Well?", returns={"type": "object", "required": ["a"]})).data == {"a": 1}
    assert "a" in client.questions[1].message


# exchanges and history


async def test_the_exchange_of_a_plain_answer_is_the_prompt_and_the_answer() -> None:
    async with make_context(samples=["Fine."]) as ctx:
        exchange = (await ctx.sample("Weather?")).exchange
    assert exchange.messages == (message("user", "Weather?"), message("assistant", "Fine."))


async def test_the_exchange_of_data_is_a_tool_use_with_the_data_and_a_short_result() -> None:
    async with make_context(samples=[gives(LISBON.model_dump(), "wire-7")]) as ctx:
        answered = await ctx.sample("Weather?", returns=Weather)
        assert ctx.messages == (message("user", "Weather?"), message("assistant", '{"city":"Lisbon","degrees":21}'))
    prompt, called, result = answered.exchange.messages
    assert prompt == message("user", "Weather?")
    assert called.content == use(SCHEMA_TOOL, "wire-7", city="Lisbon", degrees=21)
    assert result.role == "user"
    assert result.content == ToolResultContent(tool_use_id="wire-7", content=[TextContent(text="ok")])


async def test_the_exchange_of_data_in_a_text_has_an_id_that_depends_on_both() -> None:
    ids = []
    for prompt, degrees in (("a", 1), ("a", 1), ("b", 1), ("a", 2)):
        data = {"city": "Lisbon", "degrees": degrees}
        async with make_context(samples=[data], capabilities=PLAIN) as ctx:
            called = (await ctx.sample(prompt, returns=Weather)).exchange.messages[1].content
        assert called.input == data
        ids.append(called.id)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


async def test_the_exchange_of_calls_is_closed_with_their_results() -> None:
    def look(at: str) -> str:
        return at

    call = use("look", at="x")
    async with make_context(samples=[answer(call)]) as ctx:
        exchange = (await ctx.sample("Look.", tools=[look])).exchange
    assert exchange.messages == (message("user", "Look."), SamplingMessage(role="assistant", content=call))
    closed = exchange.close({"1": "x is fine"})
    result = ToolResultContent(tool_use_id="1", content=[TextContent(text="x is fine")])
    assert closed.messages == (*exchange.messages, message("user", result))
    with pytest.raises(ValueError, match="'1'"):
        exchange.close({})
    assert [message["role"] for message in closed.to_openai()] == ["user", "assistant", "tool"]
    assert [message["role"] for message in closed.to_anthropic()] == ["user", "assistant", "user"]


async def test_an_exchange_can_start_another_conversation() -> None:
    client = MockClient(samples=[LISBON, "Warm."])
    async with client.context() as ctx:
        exchange = (await ctx.sample("Weather?", returns=Weather)).exchange
        await ctx.sample(messages=[*exchange.messages, message("user", "So?")])
    assert requests_of(client)[-1].messages == [*exchange.messages, message("user", "So?")]
