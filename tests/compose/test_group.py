"""Several servers in one client: their names, their lists, and what remains when one is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from naming import naming, unnamed
from programs import Programs, programs
from trio.testing import wait_all_tasks_blocked

from trio_mcp import (
    Client,
    ClientGroup,
    Context,
    GroupServer,
    PeerError,
    RequestTimeout,
    Server,
    ServerState,
    ServerStatus,
    ServiceOptions,
    TaskOptions,
    accept,
)
from trio_mcp.client import Change, ConnectKeywords
from trio_mcp.compose import agent_tools
from trio_mcp.compose.connection import ATTEMPTS
from trio_mcp.errors import ConfigurationError, Disconnected, OutcomeUnknown, ServerUnavailable
from trio_mcp.types import PromptReference, ResourceTemplateReference, TextContent, Tool

__all__ = ["programs"]

BOUND = 1000.0
CONNECTED, CONNECTING, UNAVAILABLE = ServerStatus.CONNECTED, ServerStatus.CONNECTING, ServerStatus.UNAVAILABLE


def files() -> Server:
    server = Server("files")

    @server.tool(annotations={"readOnlyHint": True})
    async def read(path: str) -> str:
        return f"content of {path}"

    @server.tool
    async def delete(path: str) -> str:
        return f"deleted {path}"

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    @server.tool
    async def hang() -> None:
        await trio.sleep_forever()

    @server.resource("config://app")
    async def config() -> str:
        return "the configuration"

    @server.resource("notes://{day}")
    async def notes(day: str) -> str:
        return f"notes of {day}"

    @server.prompt
    async def review(path: str) -> str:
        return f"Review {path}"

    @server.complete(prompt="review", argument="path")
    async def paths(value: str) -> list[str]:
        return [f"{value}.txt"]

    return server


def weather() -> Server:
    server = Server("weather")

    @server.tool
    async def forecast() -> str:
        return "rain"

    @server.resource("config://app")
    async def config() -> str:
        return "another configuration"

    return server


def add(server: Server, name: str, text: str = "") -> None:
    """Add a tool that returns a text; a function that is not async would run in a thread, out of this clock."""

    async def say() -> str:
        return text

    server.add_tool(say, name=name)


@asynccontextmanager
async def opened(group: ClientGroup) -> AsyncIterator[ClientGroup]:
    before = trio.lowlevel.current_statistics().tasks_living
    with trio.fail_after(BOUND):
        async with group:
            yield group
        await wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before


@asynccontextmanager
async def two(programs: Programs, mode: str = "auto", **options: Any) -> AsyncIterator[ClientGroup]:
    """Two servers that run as commands."""
    programs.servers = {"files": files(), "weather": weather()}
    async with opened(ClientGroup({"files": ["files"], "weather": ["weather"]}, mode=mode, **options)) as group:
        yield group


async def lose(programs: Programs, why: Exception) -> None:
    """Lose a server that was stable, and that cannot be started again for this reason."""
    await trio.sleep(60)
    programs.broken["files"] = why
    await programs.kill("files")


def names(tools: list[Tool]) -> list[str]:
    return [tool.name for tool in tools]


def statuses(group: ClientGroup) -> dict[str, ServerStatus]:
    return {name: state.status for name, state in group.states.items()}


# names


async def test_tools_have_the_names_of_their_servers_and_are_called_by_them(mode: str) -> None:
    async with opened(ClientGroup({"files": files(), "weather": weather()}, mode=mode)) as group:
        assert names(await group.list_tools()) == [
            "files_read", "files_delete", "files_ask", "files_hang", "weather_forecast",
        ]  # fmt: skip
        assert (await group.call_tool("files_read", {"path": "a"})).text == "content of a"
        assert await group.call_tool("weather_forecast", returns=str) == "rain"


async def test_prompts_resources_templates_and_completions_go_to_their_servers(mode: str) -> None:
    async with opened(ClientGroup({"files": files(), "weather": weather()}, mode=mode)) as group:
        assert [prompt.name for prompt in await group.list_prompts()] == ["files_review"]
        prompt = await group.get_prompt("files_review", {"path": "a"})
        assert prompt.messages[0].content == TextContent(text="Review a")
        assert [each.uri for each in await group.list_resources()] == ["config://files/app", "config://weather/app"]
        assert (await group.read_resource("config://weather/app")).text == "another configuration"
        assert [each.uri_template for each in await group.list_resource_templates()] == ["notes://files/{day}"]
        assert (await group.read_resource("notes://files/monday")).text == "notes of monday"
        assert (await group.complete(PromptReference(name="files_review"), "path", "a")).values == ["a.txt"]
        with pytest.raises(LookupError, match=naming("notes://monday")):
            await group.complete(ResourceTemplateReference(uri="notes://monday"), "day", "m")


async def test_arguments_as_keywords_are_answered_with_the_mapping_for_the_name_in_the_group() -> None:
    arguments: Any = {"path": "a"}
    async with opened(ClientGroup({"files": files()})) as group:
        with pytest.raises(TypeError, match=naming("'path'", "call_tool('files_read', {'path': ...})")):
            await group.call_tool("files_read", **arguments)
        with pytest.raises(TypeError, match=naming("'path'", "get_prompt('files_review', {'path': ...})")):
            await group.get_prompt("files_review", **arguments)


async def test_a_name_of_no_server_is_an_error_that_names_the_servers() -> None:
    async with opened(ClientGroup({"files": files(), "weather": weather()})) as group:
        with pytest.raises(LookupError, match=naming("read", "files", "weather")):
            await group.call_tool("read", {"path": "a"})
        with pytest.raises(LookupError, match=naming("file_read", "files_")):
            await group.call_tool("file_read", {"path": "a"})
        with pytest.raises(LookupError, match=naming("config://app", "config://files/app")):
            await group.read_resource("config://app")
        with pytest.raises(KeyError, match=naming("file", "files")):
            group["file"]
        with pytest.raises(TypeError, match="URI"):
            await group.read_resource(7)  # type: ignore[arg-type]


async def test_a_prefix_may_be_chosen_or_left_out() -> None:
    servers = {"files": GroupServer(files(), prefix=""), "weather": GroupServer(weather(), prefix="w.x")}
    async with opened(ClientGroup(servers)) as group:
        assert names(await group.list_tools()) == ["read", "delete", "ask", "hang", "w.x_forecast"]
        assert (await group.call_tool("read", {"path": "a"})).text == "content of a"
        assert (await group.call_tool("w.x_forecast")).text == "rain"
        assert (await group.read_resource("config://app")).text == "the configuration"
        assert (await group.read_resource("config://w.x/app")).text == "another configuration"


async def test_a_name_is_made_of_what_models_accept() -> None:
    async with opened(ClientGroup({"My files@home": files()})) as group:
        assert names(await group.list_tools())[0] == "My_files_home_read"
        assert (await group.call_tool("My_files_home_read", {"path": "a"})).text == "content of a"
        assert group.name_of("My files@home", "read") == "My_files_home_read"
        assert group.uri_of("My files@home", "urn:isbn:1") == "urn:My_files_home/isbn:1"


def test_two_servers_with_one_prefix_are_refused_with_both_names() -> None:
    with pytest.raises(ConfigurationError, match=naming("a b", "a_b")):
        ClientGroup({"a b": files(), "a_b": files()})


@pytest.mark.parametrize("prefix", ["a/b", "-a", "a" * 65])
def test_a_prefix_that_no_name_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        ClientGroup({"a": GroupServer(files(), prefix=prefix)})


async def test_a_server_cannot_pass_its_tool_off_as_that_of_another(caplog: pytest.LogCaptureFixture) -> None:
    posing, posed = Server("git"), Server("git_hub")
    add(posing, "hub_read", "the impostor")
    add(posed, "read", "the real one")
    async with opened(ClientGroup({"git": posing, "git_hub": posed})) as group:
        assert names(await group.list_tools()) == ["git_hub_read"]
        assert (await group.call_tool("git_hub_read")).text == "the real one"
    assert unnamed(caplog.text, "git_hub_read", "git", "git_hub") == []


async def test_the_client_of_a_server_takes_the_names_of_the_server() -> None:
    async with opened(ClientGroup({"files": files()})) as group:
        client = group["files"]
        assert isinstance(client, Client)
        assert (await client.call_tool("read", {"path": "a"})).text == "content of a"
        assert [*group] == ["files"]
        assert len(group) == 1
        assert "files" in group


# filters


def is_harmless(tool: Tool) -> bool:
    return tool.annotations is not None and tool.annotations.read_only_hint is True


@pytest.mark.parametrize(
    ("of_files", "options", "listed", "refused"),
    [
        ({}, {"only": ["files_r*"], "without": ["files_delete"]}, ["files_read"], ["files_delete", "weather_forecast"]),
        ({"only": ["read"]}, {}, ["files_read", "weather_forecast"], ["files_delete"]),
        ({}, {"only": is_harmless}, ["files_read"], ["files_delete", "files_unlisted"]),
    ],
    ids=["names in the group", "own names of one server", "a function of the tool"],
)
async def test_a_filter_hides_and_refuses_the_others(
    of_files: Any, options: Any, listed: list[str], refused: list[str]
) -> None:
    async with opened(
        ClientGroup({"files": GroupServer(files(), **of_files), "weather": weather()}, **options)
    ) as group:
        assert (await group.call_tool("files_read", {"path": "a"})).text == "content of a"
        for name in refused:
            with pytest.raises(LookupError, match=naming(name)):
                await group.call_tool(name)
        assert names(await group.list_tools()) == listed
        assert names(await group.list_tools(without=["*_read"])) == listed[1:]


async def test_a_name_in_a_filter_that_no_tool_has_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with opened(ClientGroup({"files": files()}, without=["files_delte", "*_nothing"])) as group:
        await group.list_tools()
    assert unnamed(caplog.text, "files_delte") == []
    assert "nothing" not in caplog.text


@pytest.mark.parametrize("filter", ["files_read", 7, [7]])
def test_a_filter_that_is_none_is_refused(filter: Any) -> None:
    with pytest.raises(TypeError, match="only"):
        ClientGroup({"files": files()}, only=filter)


# options


async def test_options_are_for_all_servers_and_may_differ_for_each() -> None:
    asked: list[str] = []

    def for_server(server: str) -> ConnectKeywords:
        def answer(_asked: object) -> Any:
            asked.append(server)
            return accept(value=True)

        return {"on_elicit": answer} if server == "one" else {}

    servers = {"one": files(), "two": GroupServer(files(), options={"mode": "legacy"})}
    async with opened(ClientGroup(servers, for_server=for_server, mode="modern")) as group:
        assert (await group.call_tool("one_ask")).text == "accept"
        assert asked == ["one"]
        assert group["one"].protocol_version == "2026-07-28"
        assert group["two"].protocol_version == "2025-11-25"
        assert group["two"].capabilities.elicitation is None


@pytest.mark.parametrize(
    ("servers", "options", "named"),
    [
        ({"a": "python server.py"}, {}, ["python"]),
        ({"a": "http://localhost/mcp"}, {"headres": {}}, ["headres", "headers"]),
        ([("a", "http://localhost/mcp")], {}, ["servers"]),
        ({7: "http://localhost/mcp"}, {}, ["name of a server"]),
        ({"a": ["x"]}, {"on_state": trio.sleep}, ["on_state"]),
        ({"a": ["x"]}, {"for_server": 7}, ["for_server"]),
        ({"a": ["x"]}, {"open_timeout": 0}, ["open_timeout"]),
    ],
)
def test_a_wrong_argument_is_an_error_before_a_start(servers: Any, options: dict[str, Any], named: list[str]) -> None:
    with pytest.raises((TypeError, ValueError), match=naming(*named)):
        ClientGroup(servers, **options)


# life


async def test_a_group_may_be_opened_in_one_task_and_closed_in_another() -> None:
    group = ClientGroup({"files": files()})
    await group.open()
    with pytest.raises(RuntimeError):
        await group.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(group.aclose)
    await group.aclose()
    assert statuses(group) == {"files": ServerStatus.CLOSED}
    with pytest.raises(Disconnected):
        await group.call_tool("files_read", {"path": "a"})


async def test_a_group_that_is_not_open_raises_an_error() -> None:
    group = ClientGroup({"files": files()})
    for use in (
        group.call_tool("files_read"),
        group.read_resource("config://files/app"),
        group.wait_connected("files"),
    ):
        with pytest.raises(Disconnected, match="not open"):
            await use
    with pytest.raises(Disconnected, match="not open"):
        async with group.listen(tools=True):
            raise AssertionError("it is not open")
    with pytest.raises(ServerUnavailable, match="files"):
        group["files"]


async def test_a_cancel_while_it_opens_leaves_nothing(programs: Programs) -> None:
    programs.servers = {"files": files()}
    before = trio.lowlevel.current_statistics().tasks_living
    with trio.move_on_after(0) as scope:
        async with ClientGroup({"files": ["files"]}):
            raise AssertionError("it is open")
    assert scope.cancelled_caught
    await wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before
    assert not programs.is_running("files")


async def test_what_the_block_raises_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with ClientGroup({"files": files()}):
            raise ZeroDivisionError


async def test_a_group_without_servers_is_empty() -> None:
    async with opened(ClientGroup({})) as group:
        assert await group.list_tools() == []
        with pytest.raises(LookupError):
            await group.call_tool("a_b")
        with pytest.raises(LookupError):
            await group.read_resource("a://b")


# servers that are down


async def test_a_server_that_cannot_start_takes_no_other_down(programs: Programs, mode: str) -> None:
    programs.broken["files"] = FileNotFoundError("no such executable")
    async with two(programs, mode) as group:
        state = group.states["files"]
        assert (state.status, state.failures, str(state.error)) == (UNAVAILABLE, 1, "no such executable")
        assert group.states["weather"] == ServerState("weather", CONNECTED)
        assert names(await group.list_tools()) == ["weather_forecast"]
        assert (await group.call_tool("weather_forecast")).text == "rain"
        for call in (group.call_tool("files_read", {"path": "a"}), group.read_resource("config://files/app")):
            with pytest.raises(ServerUnavailable, match=naming("files", "no such executable")) as raised:
                await call
            assert raised.value.server == "files"


async def test_a_server_that_does_not_open_a_session_is_given_up_after_a_while(programs: Programs) -> None:
    class Silent(Server):
        async def serve_channel(self, *_: Any, **__: Any) -> None:
            await trio.sleep_forever()

    programs.servers = {"files": Silent("files"), "weather": weather()}
    group = ClientGroup({"files": ["files"], "weather": ["weather"]}, open_timeout=3)
    async with opened(group):
        assert trio.current_time() - programs.started_at["files"][0] == pytest.approx(3)
        assert statuses(group) == {"files": UNAVAILABLE, "weather": CONNECTED}
        assert isinstance(group.states["files"].error, RequestTimeout)


# servers that are lost


async def test_a_command_that_died_is_started_again_without_a_request(programs: Programs, mode: str) -> None:
    states: list[ServerState] = []
    async with two(programs, mode, on_state=states.append) as group:
        client = group["files"]
        await trio.sleep(60)
        del states[:]
        await programs.kill("files")
        await group.wait_connected("files")
        assert [(state.server, state.status) for state in states] == [("files", CONNECTING), ("files", CONNECTED)]
        assert programs.starts["files"] == 2
        assert group["files"] is client
        assert (await group.call_tool("files_read", {"path": "a"})).text == "content of a"
        assert programs.starts == {"files": 2, "weather": 1}


async def test_a_call_waits_while_a_server_restarts(programs: Programs, mode: str) -> None:
    async with two(programs, mode) as group:
        await lose(programs, OSError("restarting"))
        async with trio.open_nursery() as nursery:
            texts: list[str] = []

            async def call() -> None:
                texts.append((await group.call_tool("files_delete", {"path": "a"})).text)

            nursery.start_soon(call)
            await trio.sleep(1)
            assert statuses(group)["files"] is CONNECTING
            assert len(await group.list_prompts(timeout=0.1)) == 0
            del programs.broken["files"]
        assert texts == ["deleted a"]


async def test_the_timeout_of_a_call_counts_the_wait_for_its_server(programs: Programs) -> None:
    async with two(programs) as group:
        await lose(programs, OSError("restarting"))
        with pytest.raises(RequestTimeout, match=naming("files_read", "0.5")):
            await group.call_tool("files_read", {"path": "a"}, timeout=0.5)


async def test_waiting_calls_get_an_error_with_the_server_that_stays_away(programs: Programs, mode: str) -> None:
    seen: list[Change] = []
    async with two(programs, mode, on_change=seen.append) as group:
        await lose(programs, OSError("gone for good"))
        with pytest.raises(ServerUnavailable, match=naming("files", "gone for good")):
            await group.call_tool("files_read", {"path": "a"})
        assert statuses(group)["files"] is UNAVAILABLE
        assert group.states["files"].failures >= ATTEMPTS
        assert names(await group.list_tools()) == ["weather_forecast"]
        assert Change("tools") in seen
        await trio.sleep(100)
        del seen[:], programs.broken["files"]
        assert await group.wait_connected("files", timeout=40) is group["files"]
        assert len(await group.list_tools()) == 5
        assert {change.kind for change in seen} == {"tools", "prompts", "resources"}


async def test_a_tool_that_was_running_is_not_repeated_and_its_server_is_named(programs: Programs, mode: str) -> None:
    programs.servers = {}
    async with two(programs, mode) as group:

        async def kill() -> None:
            await wait_all_tasks_blocked()
            await programs.kill("files")

        # In one process both have one instance, which the key of the call would find.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill)
            with pytest.raises((OutcomeUnknown, PeerError)) as raised:
                await group.call_tool("files_hang", timeout=20)
            assert unnamed(" ".join(raised.value.__notes__), "files") == []
        assert (await group.call_tool("files_read", {"path": "a"})).text == "content of a"


async def test_a_call_that_has_asked_is_not_begun_again_when_its_server_is_lost(programs: Programs) -> None:
    begun: list[str] = []

    async def lose_and_answer(_: object) -> Any:
        programs.broken["files"] = OSError("gone")
        await programs.kill("files")
        return accept(value=True)

    async with two(programs, "modern", on_elicit=lose_and_answer) as group:

        @programs.servers["files"].tool
        async def book(ctx: Context) -> str:
            begun.append("book")
            return (await ctx.elicit("Sure?", bool)).action

        with pytest.raises(OutcomeUnknown, match=naming("files_book", "gone")):
            await group.call_tool("files_book")
        del programs.broken["files"]
        await group.wait_connected("files")
    assert begun == ["book"]


async def test_a_tool_that_became_a_task_is_not_begun_again_by_a_new_server(programs: Programs, mode: str) -> None:
    begun = trio.Event()
    starts: list[str] = []
    server = Server("files", options=ServiceOptions(tasks=TaskOptions()))

    @server.tool(task="required")
    async def report() -> str:
        starts.append("report")
        begun.set()
        await trio.sleep_forever()
        return ""

    programs.servers = {"files": server}

    async def lose() -> None:
        await begun.wait()
        await wait_all_tasks_blocked()
        programs.broken["files"] = OSError("gone")
        await programs.kill("files")

    async with opened(ClientGroup({"files": ["files"]}, mode=mode)) as group, trio.open_nursery() as nursery:
        nursery.start_soon(lose)
        with pytest.raises(OutcomeUnknown, match=naming("files_report", "gone")):
            await group.call_tool("files_report")
        del programs.broken["files"]
        await group.wait_connected("files")
    assert starts == ["report"]


async def test_a_server_that_crashes_again_and_again_is_started_less_and_less_often(programs: Programs) -> None:
    async with two(programs) as group:
        for _ in range(ATTEMPTS + 1):
            await group.wait_connected("files")
            await programs.kill("files")
        assert statuses(group)["files"] is UNAVAILABLE
        assert statuses(group)["weather"] is CONNECTED


async def test_a_server_in_this_process_that_fails_is_connected_to_again(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Server):
        fails = trio.Event()

        async def serve_channel(self, *args: Any, **options: Any) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._fail)
                await super().serve_channel(*args, **options)
                nursery.cancel_scope.cancel()

        async def _fail(self) -> None:
            fails, self.fails = self.fails, trio.Event()
            await fails.wait()
            raise ZeroDivisionError

    server = Failing("files")
    server.fails = trio.Event()
    add(server, "be", "well")
    fails = server.fails
    async with opened(ClientGroup({"files": server})) as group:
        await trio.sleep(60)
        first = group["files"]
        fails.set()
        await wait_all_tasks_blocked()
        assert (await group.call_tool("files_be")).text == "well"
        assert group["files"] is not first
    assert "ZeroDivisionError" in caplog.text


async def test_a_client_that_does_not_reconnect_is_replaced(programs: Programs, mode: str) -> None:
    async with two(programs, mode, reconnect=False) as group:
        await trio.sleep(60)
        first = group["files"]
        await programs.kill("files")
        assert (await group.call_tool("files_read", {"path": "a"})).text == "content of a"
        assert group["files"] is not first
        assert not first.is_open


async def test_an_exit_in_a_handler_is_raised_when_the_group_is_closed() -> None:
    def leave(_: object) -> Any:
        raise SystemExit(3)

    group = ClientGroup({"files": files()}, mode="legacy", on_elicit=leave)
    await group.open()
    with pytest.raises(Disconnected):
        await group.call_tool("files_ask")
    with pytest.raises(SystemExit):
        await group.aclose()


async def test_a_failing_callback_is_only_logged(programs: Programs, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    async with two(programs, on_state=fail, on_change=fail) as group:
        await programs.kill("files")
        await group.wait_connected("files")
        assert len(await group.list_tools()) == 5
    assert unnamed(caplog.text, "on_state", "on_change") == []


async def test_a_server_whose_list_fails_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agent_tools, "MAX_TOOLS", 3)
    async with opened(ClientGroup({"files": files(), "weather": weather()})) as group:
        assert names(await group.list_tools()) == ["weather_forecast"]
    assert unnamed(caplog.text, "tools", "files", "3") == []


# changes


async def test_changes_of_the_lists_of_all_servers_come_in_one_iteration(mode: str) -> None:
    one, other = files(), weather()
    async with opened(ClientGroup({"files": one, "weather": other}, mode=mode)) as group:
        await wait_all_tasks_blocked()
        async with group.listen(tools=True, prompts=True) as changes:
            add(other, "new", "")
            assert await changes.__anext__() == Change("tools")
            assert "weather_new" in names(await group.list_tools())
            one.remove_tool("read")
            assert await changes.__anext__() == Change("tools")
            assert "files_read" not in names(await group.list_tools())


async def test_changes_of_a_resource_have_its_uri_in_the_group(mode: str) -> None:
    server = files()
    async with opened(ClientGroup({"files": server, "weather": weather()}, mode=mode)) as group:
        async with group.listen(uris=["config://files/app"]) as changes:
            assert changes.honoured.resource_subscriptions == ["config://files/app"]
            server.resource_updated("config://app")
            assert await changes.__anext__() == Change("updated", "config://files/app")
        with pytest.raises(LookupError, match="config://app"):
            async with group.listen(uris=["config://app"]):
                raise AssertionError("no server has it")


async def test_who_leaves_has_unsubscribed() -> None:
    server, received = files(), list[str | None]()
    server.message_middleware(lambda message: received.append(message.method))
    async with opened(ClientGroup({"files": server}, mode="legacy")) as group:
        async with group.listen(uris=["config://files/app"]):
            assert "resources/unsubscribe" not in received
        assert "resources/unsubscribe" in received


async def test_one_may_subscribe_to_a_server_that_is_not_there_yet(programs: Programs, mode: str) -> None:
    programs.broken["files"] = OSError("not yet")
    async with two(programs, mode) as group, group.listen(uris=["config://files/app"]) as changes:
        del programs.broken["files"]
        assert await changes.__anext__() == Change("updated", "config://files/app")


async def test_closing_the_group_ends_a_subscription_that_has_not_begun(programs: Programs) -> None:
    programs.servers = {"files": files()}
    group = ClientGroup({"files": ["files"]})
    with trio.fail_after(BOUND):
        await group.open()
        await lose(programs, OSError("restarting"))
        async with trio.open_nursery() as nursery:

            async def follow() -> None:
                async with group.listen(uris=["config://files/app"]) as changes:
                    with pytest.raises(Disconnected):
                        await changes.__anext__()

            nursery.start_soon(follow)
            await wait_all_tasks_blocked()
            await group.aclose()


async def test_the_iteration_ends_with_the_group(mode: str) -> None:
    group = ClientGroup({"files": files()}, mode=mode)
    await group.open()
    async with group.listen(tools=True) as changes:
        await group.aclose()
        with pytest.raises(Disconnected, match="closed"):
            await changes.__anext__()
