"""The code of docs/clients.md does what the page says."""

from __future__ import annotations

from functools import partial

import pytest
import trio
import trio.testing
from pages import Page
from pydantic import BaseModel
from trio.testing import MockClock

from trio_mcp import Client, Context, Elicit, Server
from trio_mcp.providers import ScriptedProvider
from trio_mcp.session import Envelope, Service, serve_channel
from trio_mcp.session.server_requests import MAX_HANDLERS
from trio_mcp.types import CreateMessageRequestParams, SamplingMessage, TextContent, Tool, ToolUseContent

PAGE = Page("clients")
BOUND = 10.0


class Seat(BaseModel):
    seat: str


class Silent:
    """A server that never answers."""

    async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
        async for _ in channel:
            pass


class Shared:
    """A server that several clients connect to, one after another."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def serve_channel(self, channel: trio.abc.Channel[Envelope]) -> None:
        await serve_channel(self._service, channel)


def library(read: list[str]) -> Server:
    server = Server("library")

    @server.resource("library://catalogue", ttl=60)
    async def catalogue() -> str:
        read.append("catalogue")
        return "Emma"

    @server.tool
    async def donate(title: str) -> str:
        return f"thanks for {title}"

    @server.tool
    async def borrow(title: str, ctx: Context) -> str:
        await ctx.progress(1, total=2, message="on the shelf")
        await ctx.log("info", "not heard")
        await ctx.log("warning", f"{title} is old")
        return title

    @server.prompt
    async def recommend(taste: str, ctx: Context) -> str:
        return taste

    @server.complete(prompt="recommend", argument="taste")
    async def tastes(value: str) -> list[str]:
        return [taste for taste in ("dark", "funny") if taste.startswith(value)]

    return server


async def test_a_visit_prints_what_it_finds(capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await PAGE.run()["visit"](library([]))
    assert capsys.readouterr().out.splitlines() == [
        "donate",
        "borrow",
        "done: thanks for Emma",
        "Emma",
        "user funny",
        "['dark']",
    ]


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_what_a_tool_says_on_the_way_is_printed(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = PAGE.run()
    names["Client"] = type("InMode", (), {"connect": staticmethod(partial(Client.connect, mode=mode))})
    with trio.fail_after(BOUND):
        await names["borrow"](library([]))
    assert sorted(capsys.readouterr().out.splitlines()) == ["1 2 on the shelf", "warning None Emma is old"]


async def test_a_command_that_says_nothing_is_given_up_soon(autojump_clock: MockClock) -> None:
    with pytest.raises(trio.TooSlowError):
        await PAGE.run()["connect_soon"](Silent())
    assert trio.current_time() < BOUND


async def test_what_is_kept_is_read_once() -> None:
    read: list[str] = []
    with trio.fail_after(BOUND):
        await PAGE.run()["read_often"](library(read))
    assert read == ["catalogue"]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_watcher_prints_what_changes(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = library([])
    printed = ""
    with trio.fail_after(BOUND):
        async with Client.connect(server, mode=mode) as client, trio.open_nursery() as nursery:
            nursery.start_soon(PAGE.run()["watch"], client)
            while "catalogue" not in printed:
                server.resource_updated("library://catalogue")
                await trio.testing.wait_all_tasks_blocked()
                printed += capsys.readouterr().out
            nursery.cancel_scope.cancel()
    assert set(printed.splitlines()) == {"updated library://catalogue"}


async def test_a_declared_question_is_answered_by_its_handler() -> None:
    names, server, seats = PAGE.run(), Server("travel"), list[str]()

    @server.tool(elicits=[Elicit("seat", Seat)])
    async def book_flight(destination: str, ctx: Context) -> str:
        choice = await ctx.elicit(f"Which seat to {destination}?", Elicit("seat", Seat))
        assert choice.action == "accept"
        seats.append(choice.content.seat)
        return "booked"

    with trio.fail_after(BOUND):
        await names["book"](server)
    assert seats == ["aisle"]


def researcher() -> Server:
    server = Server("library")

    @server.tool
    async def research(topic: str, ctx: Context) -> str:
        return (await ctx.sample(topic, max_tokens=1000)).text

    return server


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_samples_are_answered_by_a_function_or_by_a_provider_within_what_is_allowed(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names, provider = PAGE.run(), ScriptedProvider(["Persuasion."])
    names["Client"] = type("InMode", (), {"connect": staticmethod(partial(Client.connect, mode=mode))})
    with trio.fail_after(BOUND):
        await names["research"](researcher())
        await names["research_with"](provider, researcher())
    assert capsys.readouterr().out.splitlines() == ["Emma.", "Persuasion."]
    assert [request.max_tokens for request in provider.requests] == [500]


async def test_an_answer_may_call_a_tool() -> None:
    asked = SamplingMessage(role="user", content=TextContent(text="rain"))
    tool = Tool(name="find", input_schema={"type": "object"})
    request = CreateMessageRequestParams(messages=[asked], max_tokens=5, tools=[tool])
    answer = await PAGE.run()["on_sample"](request)
    assert answer.content == [ToolUseContent(id="1", name="find", input={"topic": "rain"})]


def test_the_page_has_the_number_of_handlers() -> None:
    assert f"for this server ({MAX_HANDLERS})" in PAGE.prose


async def test_a_task_is_started_by_one_client_and_picked_up_by_another() -> None:
    server = Server("library")

    @server.tool(task=True)
    async def report(year: int, ctx: Context) -> str:
        await ctx.status("reading")
        await never.wait()
        return f"{year}"

    never = trio.Event()
    names = PAGE.run()
    with trio.fail_after(BOUND):
        async with server.open_service() as service:
            shared = Shared(service)
            task_id = await names["start"](shared)
            never.set()
            assert await names["pick_up"](shared, task_id) == "2026"
