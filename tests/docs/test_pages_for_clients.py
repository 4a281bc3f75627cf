"""What the code of the pages for users of clients, groups and proxies does."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from connected import connected
from pages import Names, Page, run
from programs import Programs, programs
from pydantic import BaseModel
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Client, ClientGroup, Context, Elicit, RelayServer, Server, accept
from trio_mcp.errors import ConfigurationError
from trio_mcp.providers import ScriptedProvider
from trio_mcp.session import Envelope, Service, serve_channel
from trio_mcp.types import CreateMessageRequestParams, SamplingMessage, TextContent, Tool, ToolUseContent
from trio_mcp_transports.http import asgi_app

__all__ = ["programs"]

BOUND = 20.0


def in_mode(names: Names, mode: str) -> Names:
    """Let the program of a page connect in this mode."""
    names["Client"] = type("InMode", (), {"connect": staticmethod(partial(Client.connect, mode=mode))})
    return names


# clients.md


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

    @server.tool
    async def research(topic: str, ctx: Context) -> str:
        return (await ctx.sample(topic, max_tokens=1000)).text

    @server.prompt
    async def recommend(taste: str, ctx: Context) -> str:
        return taste

    @server.complete(prompt="recommend", argument="taste")
    async def tastes(value: str) -> list[str]:
        return [taste for taste in ("dark", "funny") if taste.startswith(value)]

    return server


async def test_a_visit_prints_what_it_finds(capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await run("clients")["visit"](library([]))
    names, said = ["donate", "borrow", "research"], ["done: thanks for Emma", "Emma", "user funny", "['dark']"]
    assert capsys.readouterr().out.splitlines() == [*names, *said]


async def test_what_a_tool_says_on_the_way_is_printed(mcp_era: str, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await in_mode(run("clients"), mcp_era)["borrow"](library([]))
    assert sorted(capsys.readouterr().out.splitlines()) == ["1 2 on the shelf", "warning None Emma is old"]


async def test_a_command_that_says_nothing_is_given_up_soon(autojump_clock: MockClock) -> None:
    with pytest.raises(trio.TooSlowError):
        await run("clients")["connect_soon"](Silent())
    assert trio.current_time() < BOUND


async def test_what_is_kept_is_read_once() -> None:
    read: list[str] = []
    with trio.fail_after(BOUND):
        await run("clients")["read_often"](library(read))
    assert read == ["catalogue"]


async def printed_by(watch: Any, opened: object, change: Any, until: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a program of a page prints that watches for changes, of which there is one again and again."""
    printed = ""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, opened)
        while until not in printed:
            change()
            await wait_all_tasks_blocked()
            printed += capsys.readouterr().out
        nursery.cancel_scope.cancel()
    return printed


async def test_a_watcher_prints_what_changes(mcp_era: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = library([])
    change = partial(server.resource_updated, "library://catalogue")
    async with connected(server, mode=mcp_era) as client:
        printed = await printed_by(run("clients")["watch"], client, change, "catalogue", capsys)
    assert set(printed.splitlines()) == {"updated library://catalogue"}


async def test_a_declared_question_is_answered_by_its_handler() -> None:
    class Seat(BaseModel):
        seat: str

    server, seats = Server("travel"), list[str]()

    @server.tool(elicits=[Elicit("seat", Seat)])
    async def book_flight(destination: str, ctx: Context) -> str:
        choice = await ctx.elicit(f"Which seat to {destination}?", Elicit("seat", Seat))
        assert choice.action == "accept"
        seats.append(choice.content.seat)
        return "booked"

    with trio.fail_after(BOUND):
        await run("clients")["book"](server)
    assert seats == ["aisle"]


async def test_samples_are_answered_by_a_function_or_by_a_provider_within_what_is_allowed(
    mcp_era: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names, provider = in_mode(run("clients"), mcp_era), ScriptedProvider(["Persuasion."])
    with trio.fail_after(BOUND):
        await names["research"](library([]))
        await names["research_with"](provider, library([]))
    assert capsys.readouterr().out.splitlines() == ["Emma.", "Persuasion."]
    assert [request.max_tokens for request in provider.requests] == [500]


async def test_an_answer_may_call_a_tool() -> None:
    asked = SamplingMessage(role="user", content=TextContent(text="rain"))
    tool = Tool(name="find", input_schema={"type": "object"})
    answer = await run("clients")["on_sample"](CreateMessageRequestParams(messages=[asked], max_tokens=5, tools=[tool]))
    assert answer.content == [ToolUseContent(id="1", name="find", input={"topic": "rain"})]


async def test_a_task_is_started_by_one_client_and_picked_up_by_another() -> None:
    server, go_on, names = Server("library"), trio.Event(), run("clients")

    @server.tool(task=True)
    async def report(year: int, ctx: Context) -> str:
        await ctx.status("reading")
        await go_on.wait()
        return f"{year}"

    with trio.fail_after(BOUND):
        async with server.open_service() as service:
            shared = Shared(service)
            task_id = await names["start"](shared)
            go_on.set()
            assert await names["pick_up"](shared, task_id) == "2026"


# tasks.md


async def test_a_legacy_client_asks_for_the_task() -> None:
    async with connected(run("tasks")["server"], mode="legacy", on_elicit=lambda _: accept(value=False)) as client:
        result = await client.call_tool("report", {"topic": "ants"}, task=True)
    assert result.text == "ants: 4 sources, internal"


async def test_a_tool_that_asks_first_becomes_a_task() -> None:
    names = run("tasks")
    assert names["options"].tasks.open_per_owner == 20
    async with connected(names["server"], on_elicit=lambda _: accept(value=1990)) as client:
        task = await client.start_tool("archive")
        assert task.id
        assert (await task.result()).text == "archived 1990"
        assert (await client.call_tool("archive")).text == "archived 1990"


# groups.md


@pytest.fixture
def path(tmp_path: Path, programs: Programs) -> str:
    """A file with the two servers of the page, both as commands."""
    files, weather = Server("files"), Server("weather")

    @files.tool
    async def read(path: str, ctx: Context) -> str:
        await ctx.warning("it is old")
        return f"content of {path}"

    @files.tool
    async def delete(path: str) -> str:
        return f"deleted {path}"

    @files.resource("config://app")
    async def config() -> str:
        return "x"

    @weather.tool
    async def forecast() -> str:
        return "rain"

    programs.servers = {"files": files, "weather": weather}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {name: {"command": name} for name in programs.servers}}))
    return str(file)


@pytest.mark.parametrize(
    ("function", "printed"),
    [
        ("main", ["files_read", "files_delete", "weather_forecast", "content of notes.txt"]),
        ("call_with_logs", ["files warning it is old"]),
    ],
)
async def test_a_program_over_a_file_prints(
    function: str, printed: list[str], path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with trio.fail_after(BOUND):
        await run("groups")[function](path)
    assert capsys.readouterr().out.splitlines() == printed


async def test_a_filter_leaves_tools_out(path: str) -> None:
    with trio.fail_after(BOUND):
        assert await run("groups")["read_only"](path) == ["files_read", "weather_forecast"]


async def test_a_server_that_is_lost_is_named(
    path: str, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = run("groups")["ask"]
    with trio.fail_after(BOUND):
        assert await ask(path) == "rain"
        programs.broken["weather"] = OSError("no power")
        assert await ask(path) == "without weather"
    assert "weather unavailable no power" in capsys.readouterr().out.splitlines()


async def test_changes_in_a_group_are_followed(
    path: str, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    change = partial(programs.servers["files"].resource_updated, "config://app")
    with trio.fail_after(BOUND):
        async with ClientGroup.from_file(path) as opened:
            printed = await printed_by(run("groups")["follow"], opened, change, "config", capsys)
    assert "updated config://files/app" in printed


def test_a_group_is_made_of_targets_and_a_file_is_read(path: str) -> None:
    names = run("groups")
    assert [*names["make_group"](Server("notes"))] == ["notes", "files", "weather"]
    assert names["commands"](path) == {"files": ("files",), "weather": ("weather",)}


def test_the_example_of_a_file_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FILES_TOKEN", "a")
    monkeypatch.setenv("WEATHER_TOKEN", "b")
    file = tmp_path / "mcp.json"
    file.write_text(Page("groups").text.split("```json\n")[1].split("```")[0])
    assert [*ClientGroup.from_file(file)] == ["files", "weather"]


# composition.md, backfill.md


async def test_the_desk_has_what_the_table_says(mcp_era: str) -> None:
    async with connected(run("composition")["desk"], mode=mcp_era, on_elicit=lambda _q: accept(value="x")) as client:
        assert [tool.name for tool in await client.list_tools()] == ["my_write"]
        assert [each.uri_template for each in await client.list_resource_templates()] == ["notes://my/{title}"]
        assert (await client.call_tool("my_write", {"text": "a"})).text == "There are 2 notes."
        assert (await client.read_resource("notes://my/x")).contents[0].uri == "notes://my/x"


def test_a_server_in_itself_is_refused_and_servers_by_path_are_where_the_page_says() -> None:
    names = run("composition")
    with pytest.raises(ValueError, match="desk"):
        names["notes"].mount("x", names["desk"])
    with pytest.raises(ValueError, match="my"):
        names["desk"].mount("my", Server("other"))
    assert [endpoint for endpoint, _ in names["app"].endpoints()] == ["/notes/mcp", "/desk/mcp"]
    assert [endpoint for endpoint, _ in asgi_app({"/public": names["public"]}).endpoints()] == ["/public"]


def test_a_hub_that_authenticates_is_served_with_what_sends_credentials() -> None:
    names = run("composition")
    assert asgi_app(names["guarded_hub"]).options.authenticate is names["authenticate"]
    with pytest.raises(ConfigurationError):
        asgi_app(names["shared"])


async def test_a_proxy_gives_its_server_a_model(mcp_era: str) -> None:
    proxy = run("backfill")["proxy"]
    assert isinstance(proxy, RelayServer)
    async with connected(proxy, mode=mcp_era) as client:
        assert (await client.call_tool("think")).text == "No."
