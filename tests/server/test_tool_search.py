"""`ToolSearch`: two tools in place of a long list, in both eras."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from connected import connected
from peer import message_of
from talk import accept, talk_to

from trio_mcp import Caller, Client, Context, Server, ServiceOptions, ToolError, ToolSearch
from trio_mcp.server import CallHandler, CallRequest, CallResult
from trio_mcp.session import KeyRing
from trio_mcp.types import JsonObject


def zoo(**options: Any) -> Server:
    server = Server("zoo", tool_search=ToolSearch(**options))

    @server.tool
    async def feed_animal(animal: str, grams: int) -> str:
        """Give food to one of the animals."""
        return f"{animal} ate {grams} g"

    @server.tool(tags=["ticketing"])
    async def sell_ticket(age: int) -> dict[str, int]:
        """Sell a ticket for a visitor."""
        return {"price": 5 if age < 18 else 10}

    @server.tool
    async def close_gate(ctx: Context) -> str:
        """Shut the entrance."""
        sure = await ctx.elicit("Really?", bool)
        return f"{sure.action} {sure.content}" if sure.action == "accept" else sure.action

    return server


async def found(client: Client, query: str, **more: Any) -> list[str]:
    result = (await client.call_tool("search_tools", {"query": query, **more})).check()
    return [tool["name"] for tool in result.data["tools"]]  # type: ignore[index, call-overload]


async def test_the_list_has_the_two_tools_and_the_pinned_ones(mode: str) -> None:
    async with connected(zoo(pinned=["sell_ticket"]), mode) as client:
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool", "sell_ticket"]


async def test_a_tool_is_found_by_words_of_its_name_its_description_its_parameters_and_its_tags(mode: str) -> None:
    async with connected(zoo(), mode) as client:
        assert await found(client, "feeding? feed") == ["feed_animal"]
        assert (await found(client, "food for an animal"))[0] == "feed_animal"
        assert await found(client, "grams") == ["feed_animal"]
        assert await found(client, "ticketing") == ["sell_ticket"]
        assert await found(client, "entrances") == ["close_gate"]
        assert await found(client, "submarine") == []


async def test_a_search_returns_the_schemas_of_what_it_finds(mode: str) -> None:
    async with connected(zoo(), mode) as client:
        result = (await client.call_tool("search_tools", {"query": "sell a ticket"})).data
    (tool,) = result["tools"]  # type: ignore[misc]
    assert tool["inputSchema"]["properties"] == {"age": {"type": "integer"}}  # type: ignore[call-overload, index]
    assert tool["outputSchema"]["type"] == "object"  # type: ignore[call-overload, index]
    assert result["total"] == 1


async def fail() -> None:
    raise ToolError("the lion is asleep")


@pytest.mark.parametrize(
    ("request_of", "is_error", "text"),
    [
        ({"name": "sell_ticket", "arguments": {"age": 7}}, False, '{"price":5}'),
        ({"name": "sell_ticket", "arguments": {"age": "old"}}, True, "Invalid arguments for sell_ticket: age"),
        ({"arguments": {}}, True, "Invalid arguments for call_tool: name"),
        ({"name": "sell_tickets"}, True, "search_tools"),
        ({"name": "fail"}, True, "the lion is asleep"),
    ],
    ids=["a result", "wrong arguments", "no name", "an unknown name", "an error of the tool"],
)
async def test_call_tool_validates_the_arguments_and_returns_the_result_of_the_tool(
    mode: str, request_of: Any, is_error: bool, text: str
) -> None:
    server = zoo()
    server.add_tool(fail)
    async with connected(server, mode) as client:
        called = await client.call_tool("call_tool", request_of)
        assert (called.is_error, text in called.text) == (is_error, True)
        assert (await client.call_tool("feed_animal", {"animal": "Bo", "grams": 2})).text == "Bo ate 2 g"


async def test_a_tool_that_call_tool_runs_samples_and_reports(mode: str) -> None:
    server = zoo()

    @server.tool
    async def describe_animal(animal: str, ctx: Context) -> str:
        """Ask the model about an animal."""
        await ctx.progress(1, total=2, message="asking")
        return (await ctx.sample(f"What is {animal}?")).text

    reports = list[float]()
    async with connected(server, mode, on_sample=lambda request: "A bear.") as client:
        result = await client.call_tool(
            "call_tool",
            {"name": "describe_animal", "arguments": {"animal": "Bo"}},
            on_progress=lambda report: reports.append(report.progress),
        )
    assert (result.text, reports) == ("A bear.", [1])


async def test_cancelling_call_tool_cancels_the_tool(mode: str) -> None:
    server, started, ended = zoo(), trio.Event(), trio.Event()

    @server.tool
    async def wait_for_ever() -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()

    async with connected(server, mode) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "call_tool", {"name": "wait_for_ever"})
            await started.wait()
            nursery.cancel_scope.cancel()
        await ended.wait()


async def test_a_call_of_call_tool_is_replayed_by_another_process() -> None:
    asked: JsonObject = {"name": "ask_twice", "arguments": {}}
    runs = list[str]()

    def make() -> Server:
        server = zoo()

        @server.tool(annotations={"readOnlyHint": True})
        async def ask_twice(ctx: Context) -> str:
            runs.append("run")
            answer = await ctx.elicit("Yes?", str)
            return f"{answer.action}: {answer.content}" if answer.action == "accept" else ""

        return server

    keys = ServiceOptions(keys=KeyRing.random())
    async with talk_to(make().copy(options=keys)) as first, talk_to(make().copy(options=keys)) as second:
        interim = await first.round(first.leg("call_tool", asked))
        assert await second.text(interim.leg({interim.key: accept(value="on")}, talk=second)) == "accept: on"
    assert len(runs) == 2


async def test_a_tool_that_the_caller_may_not_see_is_neither_found_nor_called() -> None:
    server = zoo(pinned=["fire_keeper"])

    @server.tool(visible=lambda caller: caller is not None and caller.principal == "boss")
    async def fire_keeper() -> str:
        """Dismiss a keeper."""
        return "gone"

    async with talk_to(server) as talk:
        for principal, sees in (("guest", False), ("boss", True)):
            client = type(talk)(talk.service, principal=principal)
            searched = await client.result(client.ask("tools/call", name="search_tools", arguments={"query": "keeper"}))
            assert bool(searched["structuredContent"]["tools"]) is sees
            called = await client.result(client.leg("call_tool", {"name": "fire_keeper"}))
            assert called["isError"] is (not sees) if "isError" in called else sees
            unknown = await client.result(client.leg("call_tool", {"name": "no_keeper"}))
            if not sees:
                assert called["content"][0]["text"].replace("fire", "no") == unknown["content"][0]["text"]
            listed = await client.result(client.ask("tools/list"))
            assert ("fire_keeper" in [tool["name"] for tool in listed["tools"]]) is sees
            assert listed["cacheScope"] == "private"


async def test_scopes_hold_for_what_call_tool_names() -> None:
    server = zoo()

    @server.tool(scopes=["gate:open"])
    async def open_gate() -> str:
        return "open"

    async with talk_to(server) as talk:
        params = {"name": "call_tool", "arguments": {"name": "open_gate"}}
        request = message_of({"id": 1, "method": "tools/call", "params": params})
        assert talk.service.missing_scopes(request, lambda: None) == {"gate:open"}
        assert talk.service.missing_scopes(request, lambda: Caller("a", ["gate:open"])) == frozenset()
        assert (await talk.result(talk.leg("call_tool", {"name": "open_gate"})))["isError"]


async def test_middleware_sees_the_tool_that_is_run(mode: str) -> None:
    server, seen = zoo(), list[tuple[str, JsonObject]]()

    @server.middleware
    async def note(call: CallRequest, handler: CallHandler) -> CallResult:
        seen.append((call.name, dict(call.arguments)))
        return await handler()

    async with connected(server, mode) as client:
        await client.call_tool("call_tool", {"name": "sell_ticket", "arguments": {"age": 30}})
        await client.call_tool("search_tools", {"query": "x"})
    assert seen == [("sell_ticket", {"age": 30}), ("search_tools", {"query": "x"})]


async def test_what_is_added_and_removed_while_serving_is_found_and_not_found(mode: str) -> None:
    server = zoo(pinned=["ride_pony"])

    async def ride_pony() -> str:
        """Sit on a pony."""
        return "hop"

    async with connected(server, mode) as client:
        assert await found(client, "pony") == []
        async with client.listen(tools=True) as changes:
            server.add_tool(ride_pony)
            assert (await anext(aiter(changes))).kind == "tools"
        assert await found(client, "pony") == ["ride_pony"]
        assert "ride_pony" in [tool.name for tool in await client.list_tools()]
        server.remove_tool("ride_pony")
        assert await found(client, "pony") == []
        assert (await client.call_tool("call_tool", {"name": "ride_pony"})).is_error


async def test_a_query_and_its_results_have_limits(mode: str) -> None:
    server = zoo(max_query=10, results=1, max_results=2, max_result_bytes=1024)
    for number in range(200):
        server.add_tool(sample_tool, name=f"lion_{number}", description="roar " * 300)
    async with connected(server, mode) as client:
        assert (await client.call_tool("search_tools", {"query": "x" * 11})).is_error
        assert (await client.call_tool("search_tools", {"query": ""})).is_error
        assert (await client.call_tool("search_tools", {"query": "lion", "limit": 3})).is_error
        assert len(await found(client, "lion")) == 1
        result = (await client.call_tool("search_tools", {"query": "lion", "limit": 2})).data
    first, second = result["tools"]  # type: ignore[misc]
    assert "inputSchema" in first
    assert second.keys() == {"name", "note"}
    assert result["total"] == 200


async def sample_tool(size: int) -> int:
    return size


async def test_the_name_of_a_tool_finds_it_first() -> None:
    server = zoo()
    for number in range(5):
        server.add_tool(sample_tool, name=f"feed_animal_{number}", description="feed_animal feed_animal")
    async with connected(server, "modern") as client:
        assert (await found(client, "feed_animal"))[0] == "feed_animal"


async def test_a_tool_with_a_name_of_the_search_is_refused() -> None:
    server = zoo()
    server.add_tool(sample_tool, name="call_tool")
    with pytest.raises(ValueError, match="call_tool"):
        async with server.open_service():
            raise AssertionError("it is not opened")
    with pytest.raises(ValueError, match="both"):
        ToolSearch(search_name="find", call_name="find")
    async with connected(server.copy(tool_search=ToolSearch(call_name="run_tool")), "modern") as client:
        assert [tool.name for tool in await client.list_tools()] == ["search_tools", "run_tool"]


async def test_a_pinned_name_that_no_tool_has_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "trio_mcp.tool"):
        async with connected(zoo(pinned=["sell_tickets"]), "modern"):
            pass
    assert "do you mean 'sell_ticket'" in caplog.text


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"pinned": "sell"}, TypeError),
        ({"results": 0}, ValueError),
        ({"results": 30}, ValueError),
        ({"max_query": 1.5}, TypeError),
        ({"search_name": "find tools"}, ValueError),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ToolSearch(**options)
    with pytest.raises(TypeError, match="tool_search"):
        Server("zoo", tool_search=True)  # type: ignore[arg-type]


async def test_a_copy_with_a_tool_search_leaves_the_server_as_it_is() -> None:
    server = Server("zoo")
    server.add_tool(sample_tool)
    searched = server.copy(tool_search=ToolSearch())
    async with connected(server, "modern") as plain, connected(searched, "modern") as client:
        assert [tool.name for tool in await plain.list_tools()] == ["sample_tool"]
        assert len(await client.list_tools()) == 2
        server.add_tool(sample_tool, name="late_comer")
        assert await found(client, "late") == ["late_comer"]


async def test_call_tool_may_run_as_a_task_in_a_legacy_session() -> None:
    server = zoo()
    async with connected(server, "legacy") as client:
        (_, call) = await client.list_tools()
        assert call.execution is None

    @server.tool(task=True)
    async def paint_fence() -> str:
        return "painted"

    async with connected(server, "legacy") as client:
        (_, call) = await client.list_tools()
        assert call.execution.task_support == "optional"
        task = await client.start_tool("call_tool", {"name": "paint_fence"})
        assert (await task.result()).text == "painted"


# mounted servers


def searched(name: str, pinned: str) -> Server:
    server = Server(name, tool_search=ToolSearch(pinned=[pinned]))
    for number in range(3):

        @server.tool(name=f"tool{number}")
        async def tool() -> str:
            """Return nothing of interest."""
            return name

    return server


def test_a_server_with_a_search_is_not_mounted_where_all_of_its_tools_would_be_listed() -> None:
    with pytest.raises(ValueError, match=r"many.*tool search.*plain.*tool_search="):
        Server("plain").mount("m", searched("many", "tool0"))


async def test_the_search_of_the_outer_server_finds_what_is_mounted_and_keeps_what_is_pinned_there() -> None:
    outer = Server("outer", tool_search=ToolSearch())
    middle = Server("middle", tool_search=ToolSearch())
    middle.mount("deep", searched("deep", "tool1"))
    outer.mount("m", searched("many", "tool0"))
    outer.mount("mid", middle)
    outer.mount("plain", Server("plain"))
    async with Client.connect(outer) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert sorted(names) == ["call_tool", "m_tool0", "mid_deep_tool1", "search_tools"]
        assert (await client.call_tool("call_tool", {"name": "mid_deep_tool2", "arguments": {}})).text == "deep"
