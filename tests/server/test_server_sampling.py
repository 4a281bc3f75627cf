"""`Server(sampling=provider)`: which model is asked, and what a call gets from the provider."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import pytest
import trio

from trio_mcp import Client, Context, PeerError, RequestTimeout, Server, accept
from trio_mcp.errors import CapabilityError, ProviderError, ProviderErrorKind
from trio_mcp.providers import ScriptedProvider
from trio_mcp.testing import MockClient, replay_tool, tool_use
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


def asking(server: Server, **options: Any) -> Server:
    """Add the tool `ask`, which asks one question."""

    @server.tool(resume="replay", **options)
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Who?")).text

    return server


async def asked(server: Server, era: str = "modern", **client: Any) -> str:
    return (await MockClient(era=era, **client).call((server, "ask"))).text


# which model


async def test_the_provider_answers_where_the_client_has_no_model(mode: str) -> None:
    provider = ScriptedProvider(["the server's"])
    assert await asked(asking(Server("s", sampling=provider)), mode, capabilities=NO_MODEL) == "the server's"
    (request,) = provider.requests
    assert request.messages[0].content == TextContent(text="Who?")


async def test_the_client_answers_if_it_has_a_model_unless_the_server_comes_first(mode: str) -> None:
    assert (
        await asked(asking(Server("s", sampling=ScriptedProvider([]))), mode, samples=["the client's"])
        == "the client's"
    )
    first = Server("s", sampling=ScriptedProvider(["the server's"]), sampling_prefer="server")
    assert await asked(asking(first), mode, samples=[]) == "the server's"


async def test_tools_are_offered_to_the_provider_if_the_client_takes_none(mode: str) -> None:
    async def look() -> str:
        return ""

    provider = ScriptedProvider(["no need"])
    server = Server("s", sampling=provider)

    @server.tool
    async def ask(ctx: Context) -> str:
        plain = await ctx.sample("Who?")
        return f"{plain.text}, {(await ctx.sample('Who?', tools=[look])).text}"

    assert await asked(server, mode, capabilities=PLAIN, samples=["me"]) == "me, no need"
    assert [each.name for each in provider.requests[0].tools or []] == ["look"]


async def test_a_structured_answer_comes_from_the_client_even_without_tools() -> None:
    server = Server("s", sampling=ScriptedProvider([]))

    @server.tool
    async def ask(ctx: Context) -> int:
        return (await ctx.sample("How many?", returns=int)).data

    assert await asked(server, capabilities=PLAIN, samples=['{"result": 5}']) == "5"


@pytest.mark.parametrize(
    ("capabilities", "prefer"), [(NO_MODEL, "client"), (PLAIN, "server")], ids=["no model", "the server comes first"]
)
async def test_a_structured_answer_of_the_provider_is_a_tool_call(
    capabilities: ClientCapabilities, prefer: Literal["client", "server"]
) -> None:
    use = tool_use("__schema__", result=5)
    provider = ScriptedProvider([CreateMessageResult(role="assistant", content=[use], model="m")])
    server = Server("s", sampling=provider, sampling_prefer=prefer)

    @server.tool
    async def ask(ctx: Context) -> int:
        return (await ctx.sample("How many?", returns=int)).data

    assert await asked(server, capabilities=capabilities) == "5"
    assert [each.name for each in provider.requests[0].tools or []] == ["__schema__"]


async def test_the_context_of_servers_is_a_matter_of_the_client() -> None:
    provider = ScriptedProvider([])
    server = Server("s", sampling=provider, sampling_prefer="server")

    @server.tool
    async def ask(ctx: Context) -> str:
        with pytest.raises(CapabilityError):
            await ctx.sample("Who?", include_context="thisServer")
        return "no context"

    assert await asked(server, capabilities=PLAIN) == "no context"
    assert provider.requests == []


async def test_a_tool_loop_runs_on_the_provider(mode: str) -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    def last(request: CreateMessageRequestParams) -> str:
        content = request.messages[-1].content
        assert isinstance(content, list)
        (result,) = content
        return f"it is {result.structured_content}"

    call = CreateMessageResult(role="assistant", content=[tool_use("add", a=1, b=2)], model="m")
    server = Server("s", sampling=ScriptedProvider([call, last]))

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.run_tool_loop("Add.", [add])).text

    assert await asked(server, mode, capabilities=NO_MODEL) == "it is {'result': 3}"


# what a tool may require


async def test_a_provider_fulfils_what_a_tool_requires_of_clients(mode: str) -> None:
    bare, provided = Server("s"), Server("s", sampling=ScriptedProvider(["yes"]))
    for server in (bare, provided):
        asking(server, requires={"sampling", "sampling.tools"})
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


async def test_a_replay_does_not_ask_the_provider_again() -> None:
    provider = ScriptedProvider(["once", "twice"])
    server = Server("s", sampling=provider)

    @server.tool(resume="replay")
    async def ask(ctx: Context) -> str:
        first = await ctx.sample("Who?")
        answer = await ctx.elicit("Sure?", bool)
        second = await ctx.sample("And?")
        return f"{first.text}, {answer.action}, {second.text}"

    report = await replay_tool(server, "ask", on_elicit=lambda _params: accept(value=True))
    report.check()
    assert report.result.text == "once, accept, twice"
    assert len(provider.requests) == 2


async def test_a_replay_gets_the_failure_of_the_provider_without_the_words_of_its_api() -> None:
    failure = ProviderError("the API said secret", kind=ProviderErrorKind.RATE_LIMITED, status=429, retry_after=7.0)
    provider = ScriptedProvider([failure, "late"])
    server = Server("s", sampling=provider)
    failures: list[ProviderError] = []

    @server.tool(resume="replay")
    async def ask(ctx: Context) -> str:
        try:
            first = (await ctx.sample("Who?")).text
        except ProviderError as error:
            failures.append(error)
            first = "nobody"
        answer = await ctx.elicit(f"{first}?", bool)
        return f"{first}, {answer.action}, {(await ctx.sample('And?')).text}"

    report = await replay_tool(server, "ask", on_elicit=lambda _params: accept(value=True))
    report.check()
    assert report.result.text == "nobody, accept, late"
    first, again = failures
    assert (first.kind, first.status, first.retry_after) == (again.kind, again.status, again.retry_after)
    assert "secret" in str(first)
    assert "secret" not in str(again)


async def test_another_question_does_not_get_the_failure_of_the_one_before() -> None:
    failures = [ProviderError("no", kind=ProviderErrorKind.UNAVAILABLE) for _ in range(2)]
    provider = ScriptedProvider([failures[0], failures[1]])
    server = Server("s", sampling=provider)
    prompts = iter(["old", "new", "new", "new"])

    @server.tool(resume="replay")
    async def ask(ctx: Context) -> str:
        with pytest.raises(ProviderError):
            await ctx.sample(next(prompts))
        return (await ctx.elicit("Sure?", bool)).action

    report = await replay_tool(server, "ask", on_elicit=lambda _params: accept(value=True))
    assert report.result.text == "accept"
    assert len(provider.requests) == 2


class Hanging:
    """A provider whose API never answers."""

    def __init__(self) -> None:
        self.started = trio.Event()
        self.ended = trio.Event()

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        self.started.set()
        try:
            await trio.sleep(math.inf)
        finally:
            self.ended.set()
        raise AssertionError("unreachable")


async def test_the_timeout_of_a_question_ends_the_request_of_the_provider(mode: str, autojump_clock: object) -> None:
    provider = Hanging()
    server = Server("s", sampling=provider)

    @server.tool
    async def ask(ctx: Context) -> str:
        with pytest.raises(RequestTimeout):
            await ctx.sample("Who?", timeout=3)
        return f"{provider.ended.is_set()} {trio.current_time() - start}"

    start = trio.current_time()
    with trio.fail_after(60):
        assert await asked(server, mode, capabilities=NO_MODEL) == "True 3.0"


class Late:
    """A provider that answers when it is cancelled."""

    def __init__(self) -> None:
        self.started = trio.Event()

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        self.started.set()
        with suppress(trio.Cancelled):
            await trio.sleep_forever()
        return CreateMessageResult(role="assistant", content=TextContent(text="late"), model="m")


async def test_an_answer_that_comes_after_the_timeout_is_dropped(mode: str, autojump_clock: object) -> None:
    server = Server("s", sampling=Late())

    @server.tool
    async def ask(ctx: Context) -> str:
        with pytest.raises(RequestTimeout):
            await ctx.sample("Who?", timeout=3)
        return f"{len(ctx.messages)}"

    with trio.fail_after(60):
        assert await asked(server, mode, capabilities=NO_MODEL) == "0"


async def test_an_answer_that_comes_after_the_cancel_is_dropped(mode: str) -> None:
    provider = Late()
    server = Server("s", sampling=provider)
    ended = trio.Event()

    @server.tool
    async def ask(ctx: Context) -> None:
        try:
            await ctx.sample("Who?")
            raise AssertionError("it went on")
        except trio.Cancelled:
            ended.set()
            raise

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(asked, server, mode, capabilities=NO_MODEL))
            await provider.started.wait()
            nursery.cancel_scope.cancel()
        await ended.wait()


async def test_a_provider_without_an_answer_is_an_error_result_without_the_words_of_its_api(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = ProviderError("the API said: sk-live", kind=ProviderErrorKind.RATE_LIMITED, status=429)
    result = await MockClient(era=mode, capabilities=NO_MODEL).call(
        (asking(Server("s", sampling=ScriptedProvider([error]))), "ask")
    )
    assert (result.is_error, result.text) == (True, error.public_text)
    assert "sk-live" not in result.text
    assert "sk-live" in caplog.text


async def test_a_prompt_without_an_answer_fails_with_the_same_words(mode: str) -> None:
    error = ProviderError("the API said: sk-live", kind=ProviderErrorKind.TIMEOUT)
    server = Server("s", sampling=ScriptedProvider([error]))

    @server.prompt
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("Who?")).text

    async with Client.connect(server, mode=mode) as client:
        with pytest.raises(PeerError) as caught:
            await client.get_prompt("ask")
    assert error.public_text in str(caught.value)


async def test_a_provider_whose_method_is_a_plain_function_is_named() -> None:
    class Plain:
        def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
            return CreateMessageResult(role="assistant", content=TextContent(text="x"), model="m")

    plain: Any = Plain()
    server = Server("s", sampling=plain)

    @server.tool
    async def ask(ctx: Context) -> str:
        with pytest.raises(TypeError, match=r"Plain\.sample"):
            await ctx.sample("Who?")
        return "named"

    assert await asked(server, capabilities=NO_MODEL) == "named"


class Wrong:
    """A provider that returns what it was given."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def sample(self, request: CreateMessageRequestParams) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("text", TypeError),
        (None, TypeError),
        (
            CreateMessageResult(role="assistant", content=[ToolResultContent(tool_use_id="x", content=[])], model="m"),
            ProviderError,
        ),
        (CreateMessageResult(role="assistant", content=[tool_use("a"), tool_use("a")], model="m"), ProviderError),
        (CreateMessageResult(role="assistant", content=[tool_use("a")], model="m"), ProviderError),
    ],
    ids=["text", "none", "orphan", "twice", "not offered"],
)
async def test_an_error_of_a_wrong_provider_names_it(answer: object, error: type[Exception]) -> None:
    server = Server("s", sampling=Wrong(answer))

    @server.tool
    async def ask(ctx: Context) -> str:
        with pytest.raises(error, match="Wrong"):
            await ctx.sample("Who?")
        return "named"

    assert await asked(server, capabilities=NO_MODEL) == "named"


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
