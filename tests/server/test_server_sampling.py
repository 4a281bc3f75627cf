"""`Server(sampling=provider)`: which model is asked, and what a call gets from the provider."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import pytest
import trio
from scripted_model import answer, results_in, use

from trio_mcp import Client, Context, PeerError, RequestTimeout, Server, accept
from trio_mcp.errors import CapabilityError, ProviderError, ProviderErrorKind
from trio_mcp.providers import ScriptedProvider
from trio_mcp.testing import MockClient, ReplayReport, replay_tool, tool_use
from trio_mcp.types import (
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingCapability,
    TextContent,
    ToolResultContent,
)

NO_MODEL = ClientCapabilities()
PLAIN = ClientCapabilities(sampling=SamplingCapability())


async def who(ctx: Context) -> str:
    return (await ctx.sample("Who?")).text


def asking(
    provider: object, body: Callable[..., object] = who, prefer: Literal["client", "server"] = "client", **tool: Any
) -> Server:
    """A server with a model, whose tool `ask` has this body."""
    server = Server("s", sampling=provider, sampling_prefer=prefer)  # type: ignore[arg-type]
    server.add_tool(body, name="ask", **tool)
    return server


async def asked(server: Server, era: str = "modern", **client: Any) -> str:
    return (await MockClient(era=era, **client).call((server, "ask"))).text


# which model


async def test_the_provider_answers_where_the_client_has_no_model(mode: str) -> None:
    provider = ScriptedProvider(["the server's"])
    assert await asked(asking(provider), mode, capabilities=NO_MODEL) == "the server's"
    (request,) = provider.requests
    assert request.messages[0].content == TextContent(text="Who?")


async def test_the_client_answers_if_it_has_a_model_unless_the_server_comes_first(mode: str) -> None:
    assert await asked(asking(ScriptedProvider([])), mode, samples=["the client's"]) == "the client's"
    first = asking(ScriptedProvider(["the server's"]), prefer="server")
    assert await asked(first, mode, samples=[]) == "the server's"


async def test_tools_are_offered_to_the_provider_if_the_client_takes_none(mode: str) -> None:
    async def look() -> str:
        return ""

    async def ask(ctx: Context) -> str:
        return f"{await who(ctx)}, {(await ctx.sample('Who?', tools=[look])).text}"

    provider = ScriptedProvider(["no need"])
    assert await asked(asking(provider, ask), mode, capabilities=PLAIN, samples=["me"]) == "me, no need"
    assert [each.name for each in provider.requests[0].tools or []] == ["look"]


async def how_many(ctx: Context) -> int:
    return (await ctx.sample("How many?", returns=int)).data


async def test_a_structured_answer_comes_from_the_client_even_without_tools() -> None:
    server = asking(ScriptedProvider([]), how_many)
    assert await asked(server, capabilities=PLAIN, samples=['{"result": 5}']) == "5"


@pytest.mark.parametrize(
    ("capabilities", "prefer"), [(NO_MODEL, "client"), (PLAIN, "server")], ids=["no model", "the server comes first"]
)
async def test_a_structured_answer_of_the_provider_is_a_tool_call(
    capabilities: ClientCapabilities, prefer: Literal["client", "server"]
) -> None:
    provider = ScriptedProvider([tool_use("__schema__", result=5)])
    assert await asked(asking(provider, how_many, prefer), capabilities=capabilities) == "5"
    assert [each.name for each in provider.requests[0].tools or []] == ["__schema__"]


async def test_the_context_of_servers_is_a_matter_of_the_client() -> None:
    async def ask(ctx: Context) -> str:
        with pytest.raises(CapabilityError):
            await ctx.sample("Who?", include_context="thisServer")
        return "no context"

    provider = ScriptedProvider([])
    assert await asked(asking(provider, ask, "server"), capabilities=PLAIN) == "no context"
    assert provider.requests == []


async def test_a_tool_loop_runs_on_the_provider(mode: str) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    def last(request: CreateMessageRequestParams) -> str:
        return f"it is {results_in(request.messages)[0].structured_content}"

    async def ask(ctx: Context) -> str:
        return (await ctx.run_tool_loop("Add.", [add])).text

    server = asking(ScriptedProvider([tool_use("add", a=1, b=2), last]), ask)
    assert await asked(server, mode, capabilities=NO_MODEL) == "it is {'result': 3}"


# what a tool may require


async def test_a_provider_fulfils_what_a_tool_requires_of_clients(mode: str) -> None:
    bare, provided = (
        asking(each, requires={"sampling", "sampling.tools"}) for each in (None, ScriptedProvider(["yes"]))
    )
    async with Client.connect(provided, mode=mode) as client:
        (listed,) = await client.list_tools()
        assert not listed.meta
        assert (await client.call_tool("ask")).text == "yes"
    async with Client.connect(bare, mode=mode) as client:
        assert len(await client.list_tools()) == (0 if mode == "legacy" else 1)


async def test_a_provider_fulfils_nothing_else() -> None:
    server = Server("s", sampling=ScriptedProvider([]))
    tool = server.add_tool(lambda: "", name="both", requires={"sampling", "elicitation"})
    assert tool.requires == ("elicitation",)
    assert (tool.model.meta or {})["trio-mcp/requires"] == ["elicitation"]
    assert Server("other").add_tool(tool).requires == ("elicitation", "sampling")


# replays, limits and failures


async def replayed(server: Server) -> ReplayReport:
    """Replay the tool `ask` after each of its questions, which a user accepts."""
    return await replay_tool(server, "ask", on_elicit=lambda _params: accept(value=True))


async def test_a_replay_does_not_ask_the_provider_again() -> None:
    async def ask(ctx: Context) -> str:
        first = await ctx.sample("Who?")
        answer = await ctx.elicit("Sure?", bool)
        second = await ctx.sample("And?")
        return f"{first.text}, {answer.action}, {second.text}"

    provider = ScriptedProvider(["once", "twice"])
    report = await replayed(asking(provider, ask, resume="replay"))
    report.check()
    assert report.result.text == "once, accept, twice"
    assert len(provider.requests) == 2


async def test_a_replay_gets_the_failure_of_the_provider_without_the_words_of_its_api() -> None:
    failure = ProviderError("the API said secret", kind=ProviderErrorKind.RATE_LIMITED, status=429, retry_after=7.0)
    failures: list[ProviderError] = []

    async def ask(ctx: Context) -> str:
        with pytest.raises(ProviderError) as caught:
            await ctx.sample("Who?")
        failures.append(caught.value)
        answer = await ctx.elicit("Nobody?", bool)
        return f"{answer.action}, {(await ctx.sample('And?')).text}"

    report = await replayed(asking(ScriptedProvider([failure, "late"]), ask, resume="replay"))
    report.check()
    assert report.result.text == "accept, late"
    first, again = failures
    assert (first.kind, first.status, first.retry_after) == (again.kind, again.status, again.retry_after)
    assert ["secret" in str(each) for each in failures] == [True, False]


async def test_another_question_does_not_get_the_failure_of_the_one_before() -> None:
    prompts = iter(["old", "new", "new", "new"])

    async def ask(ctx: Context) -> str:
        with pytest.raises(ProviderError):
            await ctx.sample(next(prompts))
        return (await ctx.elicit("Sure?", bool)).action

    provider = ScriptedProvider([ProviderError("no", kind=ProviderErrorKind.UNAVAILABLE) for _ in range(2)])
    assert (await replayed(asking(provider, ask, resume="replay"))).result.text == "accept"
    assert len(provider.requests) == 2


class Hanging:
    """A provider whose API never answers."""

    def __init__(self) -> None:
        self.ended = trio.Event()

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        try:
            await trio.sleep(math.inf)
        finally:
            self.ended.set()
        raise AssertionError("unreachable")


async def test_the_timeout_of_a_question_ends_the_request_of_the_provider(mode: str, autojump_clock: object) -> None:
    async def ask(ctx: Context) -> str:
        with pytest.raises(RequestTimeout):
            await ctx.sample("Who?", timeout=3)
        return f"{provider.ended.is_set()} {trio.current_time() - start}"

    provider = Hanging()
    start = trio.current_time()
    with trio.fail_after(60):
        assert await asked(asking(provider, ask), mode, capabilities=NO_MODEL) == "True 3.0"


class Late:
    """A provider that answers when it is cancelled."""

    def __init__(self) -> None:
        self.started = trio.Event()

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        self.started.set()
        with suppress(trio.Cancelled):
            await trio.sleep_forever()
        return answer("late")


async def test_an_answer_that_comes_after_the_timeout_is_dropped(mode: str, autojump_clock: object) -> None:
    async def ask(ctx: Context) -> str:
        with pytest.raises(RequestTimeout):
            await ctx.sample("Who?", timeout=3)
        return f"{len(ctx.messages)}"

    with trio.fail_after(60):
        assert await asked(asking(Late(), ask), mode, capabilities=NO_MODEL) == "0"


async def test_an_answer_that_comes_after_the_cancel_is_dropped(mode: str) -> None:
    provider, ended = Late(), trio.Event()

    async def ask(ctx: Context) -> None:
        try:
            await ctx.sample("Who?")
            raise AssertionError("it went on")
        except trio.Cancelled:
            ended.set()
            raise

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(asked, asking(provider, ask), mode, capabilities=NO_MODEL))
            await provider.started.wait()
            nursery.cancel_scope.cancel()
        await ended.wait()


async def test_a_provider_without_an_answer_is_an_error_result_without_the_words_of_its_api(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = ProviderError("the API said: sk-live", kind=ProviderErrorKind.RATE_LIMITED, status=429)
    client = MockClient(era=mode, capabilities=NO_MODEL)
    result = await client.call((asking(ScriptedProvider([error])), "ask"))
    assert (result.is_error, result.text) == (True, error.public_text)
    assert "sk-live" not in result.text
    assert "sk-live" in caplog.text


async def test_a_prompt_without_an_answer_fails_with_the_same_words(mode: str) -> None:
    error = ProviderError("the API said: sk-live", kind=ProviderErrorKind.TIMEOUT)
    server = Server("s", sampling=ScriptedProvider([error]))
    server.prompt(who)
    async with Client.connect(server, mode=mode) as client:
        with pytest.raises(PeerError) as caught:
            await client.get_prompt("who")
    assert error.public_text in str(caught.value)


class Wrong:
    """A provider that returns what it was given."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def sample(self, request: CreateMessageRequestParams) -> Any:
        return self.answer


class Plain:
    """A provider whose method is a plain function."""

    def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        return answer("x")


@pytest.mark.parametrize(
    ("provider", "error", "named"),
    [
        (Plain(), TypeError, r"Plain\.sample"),
        (Wrong("text"), TypeError, "Wrong"),
        (Wrong(None), TypeError, "Wrong"),
        (Wrong(answer([ToolResultContent(tool_use_id="x", content=[])])), ProviderError, "Wrong"),
        (Wrong(answer([use("a", "a"), use("a", "a")])), ProviderError, "Wrong"),
        (Wrong(answer([use("a")])), ProviderError, "Wrong"),
    ],
    ids=["plain", "text", "none", "orphan", "twice", "not offered"],
)
async def test_an_error_of_a_wrong_provider_names_it(provider: object, error: type[Exception], named: str) -> None:
    async def ask(ctx: Context) -> str:
        with pytest.raises(error, match=named):
            await ctx.sample("Who?")
        return "named"

    assert await asked(asking(provider, ask), capabilities=NO_MODEL) == "named"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sampling": ScriptedProvider}, TypeError),
        ({"sampling": "openai"}, TypeError),
        ({"sampling_prefer": "both"}, ValueError),
        ({"sampling_prefer": "server"}, ValueError),
    ],
)
def test_wrong_options_are_refused(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="sampling"):
        Server("s", **options)
