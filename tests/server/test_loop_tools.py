"""The tools of a loop: those of this server, with everything that a client's call of them would meet, and those of another."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated, Any

import pytest
import trio
from connected import connected
from listing_server import ListingServer, item
from naming import naming, unnamed
from pydantic import BaseModel
from scripted_model import answer, results_in, texts_of, use
from talk import offering

from trio_mcp import CallRequest, Client, ClientGroup, Context, Disconnected, Provide, Server, accept, tool
from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.providers import ScriptedProvider
from trio_mcp.server import ClientTools, Tool, ToolClient
from trio_mcp.testing import MockClient, make_context, replay_tool, tool_use, unchecked_tool_use
from trio_mcp.types import (
    CallToolResult,
    Tool as ToolModel,
)


def connect() -> str:
    return "db"


MAX_BYTES = 16 * 1024 * 1024
"""Of one message that a client takes."""


class Query(BaseModel):
    query: str


def offered(client: MockClient) -> list[str]:
    params = client.questions[0].params
    return [each.name for each in params.tools or []]


def leading(server: Server, *tools: Any) -> Server:
    """Add the tool `lead`, which loops over tools and returns what the model got."""

    @server.tool(resume="replay")
    async def lead(ctx: Context) -> list[str]:
        return texts_of(results_in((await ctx.run_tool_loop("Go.", tools)).messages))

    return server


async def led(server: Server, *uses: Any, era: str = "modern", **client: Any) -> list[str]:
    mock = MockClient(samples=[list(uses), "done"], era=era, **client)
    result = await mock.call((server, "lead"))
    assert not result.is_error, result.text
    return result.structured_content["result"]


@pytest.mark.parametrize("function", [lambda: "x", partial(connect)], ids=["lambda", "partial"])
async def test_a_function_without_a_name_is_refused_with_what_to_write(function: Any) -> None:
    async with make_context(samples=[]) as ctx:
        with pytest.raises(ValueError, match="no name: write it with `def`"):
            ctx.sample("Go.", tools=[function])
        with pytest.raises(ValueError, match="no name: write it with `def`"):
            await ctx.run_tool_loop("Go.", [function])


# this server's


async def test_a_tool_of_the_server_is_offered_and_run_by_its_name_its_value_or_its_function(mode: str) -> None:
    server = Server("s")

    @server.tool(name="find", description="Find it.")
    async def search(query: str) -> str:
        return f"found {query}"

    built = server.add_tool(tool("look").parameters(Query).execute(lambda params, ctx: f"saw {params.query}"))

    @server.tool
    async def other() -> str:
        return "other"

    leading(server, search, built, "other")
    mock = MockClient(
        samples=[[tool_use("find", query="a"), tool_use("look", query="b"), tool_use("other")], "done"], era=mode
    )
    await mock.call((server, "lead"))
    assert offered(mock) == ["find", "look", "other"]
    assert texts_of(results_in(mock.questions[1].params.messages)) == ["found a", "saw b", "other"]  # type: ignore[union-attr]


async def test_a_tool_that_no_server_has_is_run_by_its_value() -> None:
    built = tool("look").parameters(Query).execute(lambda params, ctx: f"saw {params.query}")
    assert isinstance(built, Tool)
    assert await led(leading(Server("s"), built), tool_use("look", query="b")) == ["saw b"]


async def test_middleware_runs_around_the_calls_of_registered_tools(mode: str) -> None:
    server = Server("s")
    seen: list[tuple[str, object]] = []

    @server.middleware
    async def note(call: CallRequest, handler: Any) -> Any:
        seen.append((call.name, dict(call.arguments)))
        return await handler()

    @server.tool
    async def echo(text: str) -> str:
        return text

    assert await led(leading(server, echo), tool_use("echo", text="x"), era=mode) == ["x"]
    assert seen == [("lead", {}), ("echo", {"text": "x"})]


async def hang() -> str:
    await trio.sleep(math.inf)
    return ""


async def write() -> str:
    raise AssertionError("it must not run")


async def big() -> str:
    return "x" * 10_000


@pytest.mark.parametrize(
    ("function", "options", "named"),
    [(hang, {"timeout": 3}, "3 seconds"), (write, {"scopes": {"write"}}, "write"), (big, {"max_result": 4096}, "xxx")],
    ids=["timeout", "scopes", "max_result"],
)
async def test_what_an_option_of_a_tool_limits_is_limited_in_a_loop(
    function: Any, options: Any, named: str, mode: str, autojump_clock: object
) -> None:
    server = Server("s")
    server.add_tool(function, **options)
    start = trio.current_time()
    (text,) = await led(leading(server, function), tool_use(function.__name__), era=mode)
    assert named in text
    assert len(text) < 4096
    assert trio.current_time() - start == options.get("timeout", 0)


async def test_the_limit_of_a_tool_holds_among_the_calls_of_a_loop(mode: str) -> None:
    server, running, most = Server("s"), 0, 0

    async def measured() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.testing.wait_all_tasks_blocked()
        running -= 1
        return "ran"

    server.add_tool(measured, name="queued", limit=2, queue=10)
    server.add_tool(measured, name="single", limit=1)

    leading(server, "queued")
    assert await led(server, *[tool_use("queued")] * 5, era=mode) == ["ran"] * 5
    assert most == 2
    server.remove_tool("lead")
    leading(server, "single")
    ran = await led(server, tool_use("single"), tool_use("single"), era=mode)
    assert [text == "ran" for text in ran].count(True) == 1
    assert ["busy" in text for text in ran].count(True) == 1
    server.remove_tool("lead")
    leading(server, "single")
    assert await led(server, tool_use("single"), era=mode) == ["ran"]


async def test_a_parked_call_gives_back_the_places_of_the_tools_in_its_loop() -> None:
    server = Server("s")

    @server.tool(limit=1)
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("?", int)).action

    asked = trio.Event()

    async def wait_for_the_other(_params: object) -> int:
        asked.set()
        assert (await MockClient(elicits=[2]).call((server, "ask"))).text == "accept"
        return 1

    with trio.fail_after(5):
        assert await led(leading(server, ask), tool_use("ask"), elicits=[wait_for_the_other]) == ["accept"]
    assert asked.is_set()


async def test_a_tool_that_is_hidden_from_the_caller_is_not_offered() -> None:
    server = Server("s")

    @server.tool(visible=lambda caller: caller is not None and caller.principal == "ann")
    async def secret() -> str:
        return "for ann"

    @server.tool
    async def public() -> str:
        return "for all"

    leading(server, secret, "public")
    for principal, names in (("ann", ["secret", "public"]), ("bob", ["public"])):
        mock = MockClient(samples=[[unchecked_tool_use("secret")], "done"], principal=principal)
        result = await mock.call((server, "lead"))
        assert offered(mock) == names
        assert ("for ann" in result.text) is (principal == "ann")


async def test_a_function_may_have_provided_parameters() -> None:
    async def query(text: str, db: Annotated[str, Provide(connect)]) -> str:
        return f"{text} in {db}"

    assert await led(leading(Server("s"), query), tool_use("query", text="x")) == ["x in db"]


async def test_a_failed_model_of_a_tool_is_an_error_result_without_the_words_of_its_api(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def think() -> str:
        raise ProviderError("the api said: sk-live", kind=ProviderErrorKind.UNAVAILABLE)

    (text,) = await led(leading(Server("s"), think), tool_use("think"))
    assert "sk-live" not in text
    assert "sk-live" in caplog.text


# another server's


def library() -> Server:
    async def lend(title: str) -> str:
        """Lend a book."""
        return f"lent {title}"

    async def burn(title: str) -> str:
        raise RuntimeError("no")

    return offering(lend, burn)


async def test_the_tools_of_a_client_are_offered_and_called(mode: str) -> None:
    uses = [tool_use("lend", title="Emma"), unchecked_tool_use("burn", title="Emma"), unchecked_tool_use("lend")]
    async with Client.connect(library()) as remote:
        mock = MockClient(samples=[uses, "done"], era=mode)
        async with mock.context() as ctx:
            result = await ctx.run_tool_loop("Go.", [remote])
    assert offered(mock) == ["lend", "burn"]
    lent, burnt, wrong = results_in(result.messages)
    assert texts_of([lent]) == ["lent Emma"]
    assert (lent.is_error, burnt.is_error, wrong.is_error) == (None, True, True)


async def test_some_of_the_tools_of_a_client_can_be_chosen() -> None:
    async with Client.connect(library()) as remote:
        mock = MockClient(samples=["done"])
        async with mock.context() as ctx:
            await ctx.run_tool_loop("Go.", [ClientTools(remote, ["lend"])])
            with pytest.raises(LookupError, match="read"):
                await ctx.run_tool_loop("Go.", [ClientTools(remote, ["read"])])
            with pytest.raises(ValueError, match="lend"):
                await ctx.run_tool_loop("Go.", [remote, ClientTools(remote, ["lend"])])
        assert offered(mock) == ["lend"]


async def test_odd_tools_of_a_client_are_left_out_of_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    odd = ["lend", "", "a/b", "__schema__", "own", item("tool", "lend", "again"), "some"]
    async with Client.connect(ListingServer("remote", "tool", odd)) as remote, Client.connect(library()) as other:
        mock = MockClient(samples=["done", "done"])
        async with mock.context() as ctx:

            async def own() -> str:
                return "own"

            await ctx.run_tool_loop("Go.", [remote, own])
            assert offered(mock) == ["lend", "some", "own"]
            await ctx.run_tool_loop("Go.", [remote, ClientTools(other, ["lend"])])
    texts = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for name in ("''", "a/b", "__schema__", "own", "lend"):
        assert [text for text in texts if unnamed(text, name, "left out") == []]


async def test_the_error_for_two_clients_with_one_tool_suggests_a_group() -> None:
    async with Client.connect(library()) as one, Client.connect(library()) as other:
        async with MockClient().context() as ctx:
            with pytest.raises(ValueError, match=naming("lend", "ClientGroup")):
                await ctx.run_tool_loop("Go.", [one, other])
    mock = MockClient(samples=[tool_use("b_lend", title="Emma"), "done"])
    async with ClientGroup({"a": library(), "b": library()}) as group, mock.context() as ctx:
        result = await ctx.run_tool_loop("Go.", [group])
    assert texts_of(results_in(result.messages)) == ["lent Emma"]


class Broken:
    """A client whose server fails in a certain way."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def list_tools(self) -> list[ToolModel]:
        return [ToolModel(name="lend", input_schema={"type": "object"})]

    async def call_tool(self, name: str, arguments: Any = None) -> CallToolResult:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        Disconnected("gone: sk-live"),
        RuntimeError("sk-live"),
        ProviderError("the api said: sk-live", kind=ProviderErrorKind.RATE_LIMITED),
    ],
    ids=["gone", "bug", "its model failed"],
)
async def test_a_client_that_fails_is_an_error_result_and_is_logged(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    remote = Broken(error)
    assert isinstance(remote, ToolClient)
    (text,) = await led(leading(Server("s"), remote), tool_use("lend"))
    assert "sk-live" not in text
    assert "sk-live" in caplog.text


async def test_a_result_that_a_client_rejects_is_an_error_result() -> None:
    async def flood(size: int) -> str:
        return "x" * size

    async with Client.connect(offering(flood)) as remote:
        small, large = await led(
            leading(Server("s"), remote), tool_use("flood", size=1), tool_use("flood", size=MAX_BYTES)
        )
    assert small == "x"
    assert str(MAX_BYTES) in large
    assert len(large) < 1000


async def test_a_replay_calls_another_server_once() -> None:
    calls: list[str] = []

    async def lend() -> str:
        calls.append("lend")
        return "lent"

    server = Server("s", sampling=ScriptedProvider([answer([use("lend"), use("confirm", "2")]), "done"]))

    @server.tool
    async def confirm(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    async with Client.connect(offering(lend)) as remote:
        report = await replay_tool(
            leading(server, remote, confirm), "lead", on_elicit=lambda _params: accept(value=True)
        )
    report.check()
    assert report.result.structured_content == {"result": ["lent", "accept"]}
    assert calls == ["lend"]


async def test_a_cancelled_loop_cancels_the_call_of_another_server() -> None:
    started, ended = trio.Event(), trio.Event()

    async def hang() -> None:
        started.set()
        try:
            await trio.sleep(math.inf)
        finally:
            ended.set()

    async with connected(offering(hang)) as remote:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(led, leading(Server("s"), remote), tool_use("hang"))
            await started.wait()
            nursery.cancel_scope.cancel()
        await ended.wait()
