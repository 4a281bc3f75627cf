"""`run_agent`: a model that calls the tools of servers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from naming import naming, unnamed
from scripted import as_legacy, as_modern, conversation
from scripted_model import ScriptedModel, StreamingModel, answer, check_conversation, results_in, use

from trio_mcp import Client, Context, Server, run_agent
from trio_mcp.compose import AgentCall, agent_tools
from trio_mcp.compose.agent_tools import model_name
from trio_mcp.errors import (
    ConfigurationError,
    Disconnected,
    LimitExceeded,
    ProviderError,
    ProviderErrorKind,
    RemoteProtocolError,
    RequestTimeout,
)
from trio_mcp.session import TokenUsage
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)


@pytest.fixture
def opening(mode: str) -> Any:
    return as_legacy if mode == "legacy" else as_modern


@asynccontextmanager
async def clients_of(mode: str, *servers: Server, **options: Any) -> AsyncIterator[list[Client]]:
    clients = [Client.connect(server, mode=mode, **options) for server in servers]
    try:
        for client in clients:
            await client.open()
        yield clients
    finally:
        for client in clients:
            await client.aclose()


def calculator() -> Server:
    server = Server("calculator")

    @server.tool(annotations={"readOnlyHint": True})
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def divide(a: int, b: int) -> float:
        return a / b

    return server


def weather() -> Server:
    server = Server("weather")

    @server.tool
    async def forecast(city: str) -> str:
        return f"rain in {city}"

    return server


def listing(*names: str, **more: Any) -> dict[str, Any]:
    """What a server answers that lists these tools."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    return {"tools": tools, "ttlMs": 0, "cacheScope": "private", **more}


def texts(results: list[ToolResultContent]) -> list[str]:
    return ["".join(block.text for block in result.content if isinstance(block, TextContent)) for result in results]


def never(_call: AgentCall) -> bool:
    raise AssertionError("no call is made")


# what it does


async def test_the_model_gets_the_tools_of_all_servers_and_the_results_of_its_calls(mode: str) -> None:
    last = answer("3, and it rains", {"inputTokens": 20})
    model = ScriptedModel([use("add", "1", a=1, b=2), use("forecast", "2", city="Lisbon")], last)
    async with clients_of(mode, calculator(), weather()) as clients:
        result = await run_agent(model, "1 + 2, and the weather?", clients, system_prompt="Be brief.", max_tokens=50)
    assert [tool.name for tool in model.asked[0].tools or ()] == ["add", "divide", "forecast"]
    assert (model.asked[0].system_prompt, model.asked[0].max_tokens) == ("Be brief.", 50)
    assert texts(results_in(model.asked[1].messages)) == ["3", "rain in Lisbon"]
    assert (result.text, result.iterations, result.stop_reason) == ("3, and it rains", 2, "endTurn")
    assert (result.model, result.usage) == ("scripted", TokenUsage(20, None))
    check_conversation(result.messages)


async def test_an_answer_of_a_provider_that_ignores_its_cancel_is_dropped(mode: str) -> None:
    class Late:
        async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
            scope.cancel()
            with suppress(trio.Cancelled):
                await trio.sleep_forever()
            return answer("late")

    seen: list[SamplingMessage] = []
    async with clients_of(mode, calculator()) as clients:
        with trio.CancelScope() as scope:
            await run_agent(Late(), "1 + 2?", clients, on_message=seen.append)
            raise AssertionError("it has an answer")
    assert scope.cancelled_caught
    assert seen == []


async def test_the_results_come_in_the_order_of_the_calls_and_not_of_their_ends(mode: str) -> None:
    server = Server("sleeper")
    ended: list[int] = []

    @server.tool
    async def sleep(seconds: int) -> int:
        await trio.sleep(seconds)
        ended.append(seconds)
        return seconds

    model = ScriptedModel([use("sleep", "a", seconds=2), use("sleep", "b", seconds=1)], "done")
    async with clients_of(mode, server) as clients:
        await run_agent(model, "sleep", clients)
    assert ended == [1, 2], "the calls run at once"
    assert [result.tool_use_id for result in results_in(model.asked[1].messages)] == ["a", "b"]


async def test_calls_above_the_limit_wait(mode: str) -> None:
    server = Server("counter")
    running: list[int] = [0, 0]

    @server.tool
    async def count() -> None:
        running[0] += 1
        running[1] = max(running)
        await trio.sleep(1)
        running[0] -= 1

    model = ScriptedModel([use("count", str(number)) for number in range(5)], "done")
    async with clients_of(mode, server) as clients:
        await run_agent(model, "count", clients, max_parallel=2)
    assert running == [0, 2]


async def test_a_server_without_tools_is_left_out(mode: str) -> None:
    server = Server("prompts only")

    @server.prompt
    async def hello() -> str:
        return "hello"

    model = ScriptedModel("hi")
    async with clients_of(mode, server) as clients:
        result = await run_agent(model, "hello", clients)
    assert result.text == "hi"
    assert model.asked[0].tools is None


async def test_a_second_run_continues_the_conversation(mode: str) -> None:
    model = ScriptedModel(use("add", a=1, b=2), "3", "still 3")
    async with clients_of(mode, calculator()) as clients:
        first = await run_agent(model, "1 + 2?", clients)
        second = await run_agent(model, "Sure?", clients, messages=first.messages)
    assert [message.role for message in second.messages] == ["user", "assistant"] * 3
    assert second.iterations == 1


async def test_a_prompt_may_be_an_image(mode: str) -> None:
    picture = ImageContent(data="AAAA", mime_type="image/png")
    model = ScriptedModel("a cat", "a cat")
    async with clients_of(mode) as clients:
        for prompt in (picture, [TextContent(text="What is this?"), picture]):
            await run_agent(model, prompt, clients)
    assert [request.messages[0].content for request in model.asked] == [
        picture,
        [TextContent(text="What is this?"), picture],
    ]


@pytest.mark.parametrize(("kind", "pieces"), [(StreamingModel, ["h", "i", "3"]), (ScriptedModel, ["hi", "3"])])
async def test_the_text_is_shown_as_it_comes(mode: str, kind: type[ScriptedModel], pieces: list[str]) -> None:
    shown: list[str] = []
    model = kind([TextContent(text="hi"), use("add", a=1, b=2)], "3")
    async with clients_of(mode, calculator()) as clients:
        await run_agent(model, "1 + 2?", clients, on_text=shown.append)
    assert shown == pieces


async def test_what_was_shown_of_a_stream_that_breaks_off_is_no_message(mode: str) -> None:
    broken = ProviderError("the stream breaks off", kind=ProviderErrorKind.MALFORMED)

    class HalfBroken(ScriptedModel):
        async def stream(
            self, request: CreateMessageRequestParams, on_text: Callable[[str], None]
        ) -> CreateMessageResult:
            on_text("I th")
            raise broken

    shown: list[str] = []
    appended: list[SamplingMessage] = []
    async with clients_of(mode, calculator()) as clients:
        with pytest.raises(ProviderError) as caught:
            await run_agent(HalfBroken(), "1 + 2?", clients, on_text=shown.append, on_message=appended.append)
    assert caught.value is broken
    assert (shown, appended) == (["I th"], [])


async def test_each_message_is_passed_on_when_it_is_part_of_a_whole_conversation(mode: str) -> None:
    appended: list[SamplingMessage] = []
    model = ScriptedModel(use("add", a=1, b=2), ProviderError("no", kind=ProviderErrorKind.UNAVAILABLE))
    async with clients_of(mode, calculator()) as clients:
        with pytest.raises(ProviderError):
            await run_agent(model, "1 + 2?", clients, on_message=appended.append)
    assert [message.role for message in appended] == ["assistant", "user"]
    check_conversation(appended)


# consent


async def test_each_call_is_approved_in_order_before_it_is_made(mode: str) -> None:
    asked: list[tuple[str, Any]] = []

    async def approve(call: AgentCall) -> bool:
        asked.append((call.tool.name, call.arguments))
        await trio.sleep(1)
        assert call.client in clients
        return bool(call.tool.annotations and call.tool.annotations.read_only_hint)

    model = ScriptedModel([use("divide", "1", a=1, b=2), use("add", "2", a=1, b=2)], "done")
    async with clients_of(mode, calculator()) as clients:
        await run_agent(model, "?", clients, approve=approve)
    assert asked == [("divide", {"a": 1, "b": 2}), ("add", {"a": 1, "b": 2})]
    refused, made = results_in(model.asked[1].messages)
    assert refused.is_error
    assert texts([refused, made]) == ["The user did not allow this call.", "3"]


async def test_an_approval_that_is_neither_yes_nor_no_is_a_mistake_and_not_a_yes(mode: str) -> None:
    async with clients_of(mode, calculator()) as clients:
        with pytest.raises(TypeError, match="approve"):
            await run_agent(ScriptedModel(use("add", a=1, b=2)), "?", clients, approve=lambda _: None)  # type: ignore[arg-type,return-value]


async def test_what_an_approval_raises_ends_the_run_and_its_calls(mode: str) -> None:
    server, cancelled = Server("sleeper"), list[bool]()

    @server.tool
    async def sleep() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(True)

    async def approve(call: AgentCall) -> bool:
        if call.id == "2":
            await trio.sleep(1)
            raise LookupError("enough")
        return True

    async with clients_of(mode, server) as clients:
        with pytest.raises(LookupError, match="enough"):
            await run_agent(ScriptedModel([use("sleep", "1"), use("sleep", "2")]), "?", clients, approve=approve)
        await trio.testing.wait_all_tasks_blocked()
        assert cancelled == [True]


# what goes wrong with a call


async def result_of(mode: str, server: Server, call: Any, **options: Any) -> ToolResultContent:
    """The result that the model gets for its call."""
    model = ScriptedModel(call, "done")
    async with clients_of(mode, server) as clients:
        assert (await run_agent(model, "?", clients, **options)).text == "done"
    (result,) = results_in(model.asked[1].messages)
    return result


@pytest.mark.parametrize(
    ("call", "named"),
    [(use("divide", a=1, b=0), []), (use("add", a="one", b=2), ["a"]), (use("subtract", a=1, b=2), ["subtract"])],
    ids=["fails", "wrong arguments", "unknown"],
)
async def test_a_call_that_fails_is_an_error_result_with_the_reason(
    mode: str, call: ToolUseContent, named: list[str]
) -> None:
    result = await result_of(mode, calculator(), call)
    assert result.is_error
    assert unnamed(texts([result])[0], *named) == []


@pytest.mark.parametrize(("seconds", "limit"), [(math.inf, {"tool_timeout": 5}), (0, {"max_result": 900})], ids=str)
async def test_a_call_over_a_limit_is_an_error_result_that_names_it(mode: str, seconds: float, limit: Any) -> None:
    server = Server("writer")

    @server.tool
    async def write() -> str:
        await trio.sleep(seconds)
        return "a" * 1000

    result = await result_of(mode, server, use("write"), **limit)
    assert result.is_error
    assert unnamed(texts([result])[0], *(["write", 5] if "tool_timeout" in limit else ["max_result", 900])) == []


async def test_a_tool_of_a_later_page_whose_error_is_too_large_has_one_that_names_the_limit(opening: Any) -> None:
    model = ScriptedModel(use("book"), "done")
    async with conversation(opening) as (client, wire, start):
        run = start(run_agent, model, "?", [client], max_result=900)
        await wire.reply("tools/list", listing(nextCursor="next"))
        await wire.reply("tools/list", listing("book"))
        request = await wire.request("tools/call")
        await wire.send({"id": request["id"], "error": {"code": -32000, "message": "x" * 1000}})
        await run.result()
    (result,) = results_in(model.asked[1].messages)
    assert result.is_error
    assert len(texts([result])[0]) < 900
    assert unnamed(texts([result])[0], "max_result", 900) == []


async def test_what_a_provider_says_is_not_shown_to_the_model(mode: str) -> None:
    server = Server("curious")

    @server.tool
    async def wonder(ctx: Context) -> str:
        return (await ctx.sample("why?")).text

    provider = ScriptedModel(ProviderError("the API said hunter2", kind=ProviderErrorKind.REJECTED))
    model = ScriptedModel(use("wonder"), "done")
    async with clients_of(mode, server, sampling=provider) as clients:
        await run_agent(model, "?", clients)
    (result,) = results_in(model.asked[1].messages)
    assert result.is_error
    assert "hunter2" not in texts([result])[0]


async def test_a_connection_that_is_lost_fails_its_calls_and_no_others(mode: str, opening: Any) -> None:
    model = ScriptedModel([use("book", "1"), use("add", "2", a=1, b=2)], use("book", "3"), "done")
    async with clients_of(mode, calculator()) as clients:
        # The first call starts a task of the service, which the conversation would count as its own.
        await clients[0].call_tool("add", {"a": 1, "b": 1})
        async with conversation(opening) as (other, wire, start):
            run = start(run_agent, model, "?", [*clients, other])
            await wire.reply("tools/list", listing("book"))
            await wire.request("tools/call")
            await wire.close()
            result = await run.result()
    assert result.text == "done"
    assert [bool(given.is_error) for given in results_in(result.messages)] == [True, False, True]


async def test_an_exception_of_the_programs_own_handler_ends_the_run_where_a_call_raises_it(mode: str) -> None:
    server = Server("travel")

    @server.tool
    async def book(ctx: Context) -> str:
        return str(await ctx.elicit.strict("Which seat?", str))

    def broken(_form: object) -> Any:
        raise LookupError("mine")

    model = ScriptedModel(use("book"), "done")
    async with clients_of(mode, server, on_elicit=broken) as clients:
        if mode == "legacy":  # the server gets the error, and its tool fails
            assert (await run_agent(model, "book", clients)).text == "done"
        else:
            with pytest.raises(LookupError, match="mine"):
                await run_agent(model, "book", clients)


# what goes wrong with the model


@pytest.mark.parametrize("call", [use("add", a=math.nan), use("add", "\ud800"), use("add", a="\ud800")], ids=repr)
async def test_an_answer_that_is_no_json_ends_the_run_before_any_call(mode: str, call: ToolUseContent) -> None:
    model = ScriptedModel([use("add", "first"), call])
    async with clients_of(mode, calculator()) as clients:
        with pytest.raises(RemoteProtocolError):
            await run_agent(model, "?", clients, approve=never)


# lists and names


async def test_a_list_that_fails_ends_the_run_and_names_the_server(mode: str, opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        run = start(run_agent, ScriptedModel(), "?", [client])
        await wire.request("tools/list")
        await wire.close()
        caught = await run.fails(Disconnected)
    assert unnamed(" ".join(caught.__notes__), "scripted") == []


async def test_names_that_models_reject_are_changed_for_the_model_and_back_for_the_server(mode: str) -> None:
    server = Server("files")

    @server.tool(name="files.read")
    async def read_file() -> str:
        return "content"

    name = model_name("files.read")
    model = ScriptedModel(use(name), "done")
    async with clients_of(mode, server) as clients:
        await run_agent(model, "?", clients)
    assert [tool.name for tool in model.asked[0].tools or ()] == [name]
    assert texts(results_in(model.asked[1].messages)) == ["content"]


async def test_two_servers_with_one_name_are_rejected_before_the_model_is_asked(mode: str) -> None:
    model = ScriptedModel()
    async with clients_of(mode, calculator(), calculator()) as clients:
        with pytest.raises(ConfigurationError) as caught:
            await run_agent(model, "?", clients)
    assert unnamed(str(caught.value), "add", "calculator", "ClientGroup") == []
    assert model.asked == []


async def test_the_clients_may_be_any_iterable_with_one_twice_or_one_client(mode: str) -> None:
    all_tools = ["add", "divide", "forecast"]
    asked = SamplingMessage(role="user", content=TextContent(text="?"))
    async with clients_of(mode, calculator(), weather()) as clients:
        for given in (iter(clients), dict.fromkeys(clients), clients * 2, clients[1]):
            model = ScriptedModel("3")
            result = await run_agent(model, None, given, messages=[asked])
            assert [tool.name for tool in model.asked[0].tools or ()] == (
                all_tools[2:] if given is clients[1] else all_tools
            )
            assert result.messages[0] == asked


async def test_no_further_page_is_read_of_too_many_tools(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_tools, "MAX_TOOLS", 2)
    async with conversation(opening) as (client, wire, start):
        run = start(run_agent, ScriptedModel(), "?", [client])
        await wire.reply("tools/list", listing("a", "b", "c", nextCursor="next"))
        await run.fails(LimitExceeded, naming(2, "scripted"))
        await wire.silence()


async def test_definitions_too_large_for_a_model_are_rejected(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_tools, "MAX_DEFINITIONS", 900)
    async with conversation(opening) as (client, wire, start):
        run = start(run_agent, ScriptedModel(), "?", [client])
        tool = {"name": "a", "description": "x" * 900, "inputSchema": {"type": "object"}}
        await wire.reply("tools/list", {**listing(nextCursor="next"), "tools": [tool]})
        await run.fails(LimitExceeded, naming(900, "scripted"))
        await wire.silence()


async def test_a_list_that_takes_too_long_ends_the_run_and_names_the_server(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        run = start(run_agent, ScriptedModel(), "?", [client], list_timeout=5)
        # The time is that of all pages, and not of each.
        await wire.reply("tools/list", listing("a", nextCursor="next"))
        await wire.request("tools/list")
        caught = await run.fails(RequestTimeout, naming(5))
    assert unnamed(" ".join(caught.__notes__), "scripted") == []


# arguments


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"provider": str}, TypeError),
        ({"prompt": None}, ValueError),
        ({"prompt": 5}, ValueError),
        ({"messages": ["hi"]}, TypeError),
        ({"messages": [SamplingMessage(role="assistant", content=use("add"))]}, ValueError),
        ({"approve": True}, TypeError),
        ({"on_text": True}, TypeError),
        ({"on_message": True}, TypeError),
        ({"max_tokens": 0}, ValueError),
        ({"max_iterations": 0}, ValueError),
        ({"tool_timeout": 0}, ValueError),
        ({"list_timeout": 0}, ValueError),
        ({"max_parallel": 0}, ValueError),
        ({"max_result": 0}, ValueError),
        ({"temperature": "hot"}, ValueError),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value.__name__,
)
async def test_a_wrong_argument_is_rejected_before_sending(arguments: dict[str, Any], kind: type[Exception]) -> None:
    given: dict[str, Any] = {"provider": ScriptedModel(), "prompt": "?", "clients": [Unused()], **arguments}
    with pytest.raises(kind):
        await run_agent(**given)


class Unused:
    """What no test may use."""


@pytest.mark.parametrize("clients", [5, [5], "a client"])
async def test_an_invalid_client_is_rejected(clients: Any) -> None:
    with pytest.raises(TypeError, match="client"):
        await run_agent(ScriptedModel(), "?", clients)


def test_a_name_is_changed_only_if_it_must_be_and_never_into_another() -> None:
    accepted = ["add", "Get_Weather-2", "a" * 64]
    assert [model_name(name) for name in accepted] == accepted
    changed = ["files.read", "files/read", "files_read.", "a" * 65, "a" * 66, "naïve", ""]
    names = [model_name(name) for name in changed]
    assert all(agent_tools.ACCEPTED.fullmatch(name) for name in names)
    assert len({*names, "files_read"}) == len(changed) + 1
    assert [model_name(name) for name in changed] == names
