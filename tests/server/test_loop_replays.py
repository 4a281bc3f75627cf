"""Tool loops in a replay that takes another way than the run before: what was recorded belongs to the calls that it was for."""

from __future__ import annotations

from collections.abc import Mapping

import trio
from scripted_model import answer, results_in, texts_of, use
from talk import offering

from trio_mcp import Context, Server, accept
from trio_mcp.providers import ScriptedProvider
from trio_mcp.server import BreakToolLoop
from trio_mcp.testing import MockClient, SecondWorker, replay_tool, tool_use
from trio_mcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonValue,
    Tool,
)


def prompt_of(params: CreateMessageRequestParams) -> str:
    return params.messages[0].content.text


class Model:
    """Calls two tools with the text of the prompt."""

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        await trio.lowlevel.checkpoint()
        if results_in(request.messages):
            return answer("done")
        about = prompt_of(request)
        return answer([use("note", f"{about}-1", text=about), use("confirm", f"{about}-2", what=about)])


async def test_calls_of_another_answer_get_no_results_of_an_earlier_run() -> None:
    """The first runs ask about "old"; then the author's text changes, and the model answers the new question otherwise."""
    server = Server("s", sampling=Model())
    prompts = ["old", *["new"] * 10]
    effects: list[str] = []

    @server.tool
    async def note(text: str, ctx: Context) -> str:
        price = await ctx.step("price", lambda: f"price of {text}")
        effects.append(text)
        return f"noted {text} at the {price}"

    @server.tool
    async def confirm(what: str, ctx: Context) -> str:
        price = await ctx.step("price", lambda: f"price of {what}")
        given = await ctx.elicit(f"{what} at the {price}?", bool)
        return f"{what} at the {price}: {given.action}"

    @server.tool(resume="replay")
    async def lead(ctx: Context) -> list[str]:
        result = await ctx.run_tool_loop(prompts.pop(0), [note, confirm])
        return texts_of(results_in(result.messages))

    report = await replay_tool(server, "lead", on_elicit=lambda _params: accept(value=True))
    assert report.result.structured_content == {
        "result": ["noted new at the price of new", "new at the price of new: accept"]
    }
    assert report.divergences
    assert effects == ["old", "new"]


async def test_another_answer_is_not_ended_by_a_break_of_an_earlier_run() -> None:
    def answers(params: CreateMessageRequestParams) -> CreateMessageResult:
        return answer(use("stop" if prompt_of(params) == "old" else "note"))

    server = Server("s", sampling=ScriptedProvider([answers, answers, "done"]))
    prompts = ["old", *["new"] * 10]

    @server.tool
    async def stop() -> str:
        raise BreakToolLoop("stopped")

    @server.tool
    async def note() -> str:
        return "noted"

    @server.tool(resume="replay")
    async def lead(ctx: Context) -> str:
        result = await ctx.run_tool_loop(prompts.pop(0), [stop, note])
        await ctx.elicit("Done?", bool)
        return f"{result.ended_by} {result.text}"

    report = await replay_tool(server, "lead", on_elicit=lambda _params: accept(value=True))
    assert report.result.text == "answer done"


async def test_a_replay_offers_the_tools_that_another_server_had_when_the_model_was_asked() -> None:
    class Changing:
        """A client of a server whose list is another one each time that it is read."""

        lists = 0

        async def list_tools(self) -> list[Tool]:
            await trio.lowlevel.checkpoint()
            self.lists += 1
            return [Tool(name="lend", description=f"list {self.lists}", input_schema={"type": "object"})]

        async def call_tool(self, name: str, arguments: Mapping[str, JsonValue] | None = None) -> CallToolResult:
            raise AssertionError("the model calls another tool")

    provider = ScriptedProvider([tool_use("confirm"), "done"])
    server, remote = Server("s", sampling=provider), Changing()

    @server.tool
    async def confirm(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    @server.tool(resume="replay")
    async def lead(ctx: Context) -> str:
        return (await ctx.run_tool_loop("Go.", [remote, confirm])).text

    report = await replay_tool(server, "lead", on_elicit=lambda _params: accept(value=True))
    report.check()
    assert remote.lists == 1
    assert [(request.tools or [])[0].description for request in provider.requests] == ["list 1"] * 2


async def test_a_loop_whose_results_are_too_large_to_travel_goes_on_only_where_it_runs() -> None:
    calls = 0

    async def much() -> str:
        nonlocal calls
        calls += 1
        return "x" * 40_000

    server = offering(much)

    @server.tool(resume="replay")
    async def lead(ctx: Context) -> str:
        return (await ctx.run_tool_loop("Go.", [much])).text

    use = tool_use("much")
    assert (await MockClient(samples=[use, use, "done"]).call((server, "lead"))).text == "done"
    lost = await MockClient(samples=[use, SecondWorker("done")]).call((server, "lead"))
    assert lost.is_error
    assert "Start it again" in lost.text
    assert calls == 3
