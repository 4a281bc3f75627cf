"""A model that works with the tools of a group of servers, in `run_agent` and in a loop of the program's own."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from connected import connected
from naming import unnamed
from programs import Programs, programs
from scripted_model import ScriptedModel, results_in, use

from trio_mcp import Client, ClientGroup, Context, Server, ServerState, ServerStatus, list_model_tools, run_agent
from trio_mcp.compose import AgentCall, ModelTools
from trio_mcp.types import ProgressNotificationParams, TextContent, Tool, ToolResultContent

__all__ = ["programs"]

BOUND = 1000.0


def files() -> Server:
    server = Server("files")

    @server.tool
    async def read(path: str, ctx: Context) -> str:
        await ctx.progress(1, 2, f"opening {path}")
        return f"content of {path}"

    @server.tool
    async def delete(path: str) -> str:
        return f"deleted {path}"

    @server.tool(name="dotted.name")
    async def dotted() -> str:
        return "dotted"

    return server


def weather() -> Server:
    server = Server("weather")

    @server.tool
    async def read() -> str:
        return "rain"

    return server


def group_of(mode: str = "auto") -> ClientGroup:
    return ClientGroup({"files": files(), "weather": weather()}, mode=mode)


def names(tools: Any) -> list[str]:
    return [tool.name for tool in tools or ()]


def texts(results: list[ToolResultContent]) -> list[str]:
    return [block.text for result in results for block in result.content if isinstance(block, TextContent)]


async def test_an_agent_has_the_tools_of_all_servers_of_a_group(mode: str) -> None:
    model = ScriptedModel([use("files_read", "1", path="a"), use("weather_read", "2")], "done")
    with trio.fail_after(BOUND):
        async with group_of(mode) as group:
            result = await run_agent(model, "?", group)
    offered = names(model.asked[0].tools)
    assert offered[:2] == ["files_read", "files_delete"]
    assert offered[2].startswith("files_dotted_name_")
    assert offered[3] == "weather_read"
    assert texts(results_in(result.messages)) == ["content of a", "rain"]


async def test_an_agent_may_have_clients_and_groups_at_once(mode: str) -> None:
    model = ScriptedModel([use("read", "1"), use("files_delete", "2", path="b")], "done")
    with trio.fail_after(BOUND):
        async with group_of(mode) as group, Client.connect(weather(), mode=mode) as client:
            result = await run_agent(model, "?", [client, group])
    assert texts(results_in(result.messages)) == ["rain", "deleted b"]


async def test_a_filter_leaves_tools_out_of_the_run(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel(use("files_delete", path="a"), "done")
    with trio.fail_after(BOUND):
        async with group_of(mode) as group:
            result = await run_agent(model, "?", group, only=["files_*"], without=["files_d*", "files_wriet"])
    assert names(model.asked[0].tools) == ["files_read"]
    (refused,) = results_in(result.messages)
    assert refused.is_error
    assert unnamed(texts([refused])[0], "files_delete") == []
    assert unnamed(caplog.text, "files_wriet") == []


async def test_a_filter_goes_by_the_names_of_clients_too() -> None:
    def is_short(tool: Tool) -> bool:
        return len(tool.name) < 6

    model = ScriptedModel("done")
    async with connected(files(), bound=BOUND) as client:
        await run_agent(model, "?", client, only=is_short)
    assert names(model.asked[0].tools) == ["read"]


async def test_the_server_of_a_call_is_known_to_who_approves_it(mode: str) -> None:
    asked: list[tuple[str, str, str]] = []

    def approve(call: AgentCall) -> bool:
        asked.append((call.server, call.name, call.tool.name))
        assert call.client is group["files"]
        return True

    model = ScriptedModel(use("files_read", path="a"), "done")
    with trio.fail_after(BOUND):
        async with group_of(mode) as group:
            await run_agent(model, "?", group, approve=approve)
    assert asked == [("files", "files_read", "read")]


async def test_the_progress_of_all_calls_is_reported_with_the_call(mode: str) -> None:
    seen: list[tuple[str, float, str | None]] = []

    def show(call: AgentCall, report: ProgressNotificationParams) -> None:
        seen.append((call.id, report.progress, report.message))

    model = ScriptedModel([use("files_read", "1", path="a"), use("files_read", "2", path="b")], "done")
    with trio.fail_after(BOUND):
        async with group_of(mode) as group:
            await run_agent(model, "?", group, on_progress=show)
    assert sorted(seen) == [("1", 1, "opening a"), ("2", 1, "opening b")]


async def test_a_server_that_is_down_takes_no_run_down_and_its_calls_are_error_results(programs: Programs) -> None:
    programs.servers = {"files": files(), "weather": weather()}
    unavailable = trio.Event()

    def follow(state: ServerState) -> None:
        if state.status is ServerStatus.UNAVAILABLE:
            unavailable.set()

    async def break_files() -> None:
        programs.broken["files"] = OSError("gone")
        await programs.kill("files")
        await unavailable.wait()

    class Model(ScriptedModel):
        async def sample(self, request: Any) -> Any:
            if len(self.asked) == 1:
                await break_files()
            return await super().sample(request)

    model = Model(use("files_read", path="a"), [use("files_read", "1", path="a"), use("weather_read", "2")], "done")
    with trio.fail_after(BOUND):
        async with ClientGroup({"files": ["files"], "weather": ["weather"]}, on_state=follow) as group:
            result = await run_agent(model, "?", group)
            again = ScriptedModel("done")
            await run_agent(again, "?", group)
    said = texts(results_in(result.messages))
    assert said[0] == "content of a"
    assert unnamed(said[1], "files", "gone") == []
    assert said[2] == "rain"
    assert names(again.asked[0].tools) == ["weather_read"]


async def test_a_custom_loop_gets_tools_for_an_api_and_results_for_it(mode: str) -> None:
    with trio.fail_after(BOUND):
        async with group_of(mode) as group:
            tools = await list_model_tools(group, without=["*_delete"])
            assert isinstance(tools, ModelTools)
            assert [tool["name"] for tool in tools.to_anthropic()] == names(tools.tools)
            assert [tool["function"]["name"] for tool in tools.to_openai()] == names(tools.tools)
            dotted = names(tools.tools)[1]

            call = {"type": "tool_use", "id": "1", "name": dotted, "input": {}}
            further: Any = await tools.run_anthropic({"id": "m", "role": "assistant", "content": [call]})
            result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "dotted"}]}
            assert further == [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
            assert await tools.run_anthropic({"role": "assistant", "content": "done"}) == []

            function = {"name": "weather_read", "arguments": "{}"}
            asked = {"role": "assistant", "tool_calls": [{"id": "2", "type": "function", "function": function}]}
            assert await tools.run_openai(asked) == [asked, {"role": "tool", "tool_call_id": "2", "content": "rain"}]
            assert await tools.run_openai({"role": "assistant", "content": "done"}) == []


async def test_calls_are_run_in_the_order_of_the_answer_and_those_that_fail_are_errors() -> None:
    with trio.fail_after(BOUND):
        async with group_of() as group:
            tools = await list_model_tools([group], approve=lambda call: call.name != "files_delete")
            results = await tools.run(
                [use("files_read", "1"), use("files_delete", "2", path="a"), use("none", "3"), use("weather_read", "4")]
            )
    assert [result.tool_use_id for result in results] == ["1", "2", "3", "4"]
    assert [bool(result.is_error) for result in results] == [True, True, True, False]


@pytest.mark.parametrize("option", [{"only": "x"}, {"approve": 7}, {"list_timeout": 0}, {"max_parallel": 0}])
async def test_a_wrong_option_is_an_error(option: dict[str, Any]) -> None:
    async with group_of() as group:
        with pytest.raises((TypeError, ValueError), match=next(iter(option))):
            await list_model_tools(group, **option)
