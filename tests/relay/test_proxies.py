"""`proxy(target)`, served by itself, mounted in a server, and in a chain: what flows through it, between all eras."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio
from ends import LineEnd
from naming import naming, unnamed
from one_era import one_era
from principals import behind_a_proxy
from relaying import SECONDS
from talk import ERAS as TALK_ERAS, Legacy, Modern, play
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from trio_mcp import Client, Context, PeerError, Server, ToolError, accept, proxy
from trio_mcp.client import ClientOptions
from trio_mcp.errors import ConfigurationError, LimitExceeded, RemoteProtocolError
from trio_mcp.relay import host_links
from trio_mcp.relay.host_links import IDLE_SECONDS, Followed
from trio_mcp.relay.mirroring import PAUSES, READ_AT_ONCE, Mirror
from trio_mcp.relay.proxies import START_SECONDS
from trio_mcp.relay.server_client import STEP
from trio_mcp.session import MessageFacts, Peer, serve_channel
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import (
    CallToolResult,
    Icon,
    Implementation,
    LoggingMessageNotificationParams,
    ProgressNotificationParams,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
    Root,
    TextContent,
    TextResourceContents,
    Tool as ToolModel,
    ToolAnnotations,
)

ERAS = ("legacy", "modern")
WAYS = ("alone", "mounted", "chain")

CASES = [(way, host, server) for way in WAYS for host in ERAS for server in ERAS if way != "chain" or host != server]
"""A chain only between two eras, where every link of it does something else."""

all_ways = pytest.mark.parametrize(("way", "host", "server"), CASES)
host_eras = pytest.mark.parametrize("host", ERAS)
server_eras = pytest.mark.parametrize("server", ERAS)


class Far:
    """A server of one era, behind a proxy."""

    def __init__(self, era: str) -> None:
        self.server = one_era(Server("far", version="7"), era)
        self.began, self.cancelled = trio.Event(), trio.Event()
        self.hosts: list[tuple[Any, Any]] = []

        for each in (ask, report, fail, rich, self.hold, self.change, self.meet, links):
            self.server.add_tool(each)
        self.server.add_tool(decorated, annotations=ToolAnnotations(idempotent_hint=True), icons=[ICON], meta={"m": 1})
        self.server.add_tool(big, max_result=2048)
        self.server.add_prompt(greet)
        self.server.add_resource("note://one", lambda: "one", mime_type="text/x-note")
        self.server.add_resource("note://of/{day}", lambda day: f"of {day}")
        self.server.complete(prompt="greet", argument="name")(lambda value, arguments: [f"{value}ob", *arguments])
        self.server.complete(resource="note://of/{day}", argument="day")(lambda value: [f"{value}day"])

    async def hold(self) -> str:
        self.began.set()
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled.set()
        return "never"

    async def change(self) -> str:
        self.server.resource_updated("note://one")
        self.server.add_tool(lambda: "", name="another")
        return "changed"

    async def meet(self, ctx: Context) -> str:
        """Remember who calls."""
        info = ctx.request.client_info
        self.hosts.append((info and info.name, ctx.request.client_capabilities.wire()))
        return "met"


ICON = Icon(src="https://example.com/x.png")


async def ask(ctx: Context) -> str:
    async def name(child: Context) -> str:
        return str((await child.elicit("Your name?", str)).content)

    async def line(child: Context) -> str:
        return (await child.sample("say hello")).text

    found = await ctx.branch_all(name, line)
    return " ".join([*found, *[str(root.path) for root in await ctx.roots()]])


async def report(ctx: Context) -> str:
    await ctx.progress(1, 2, "half")
    await ctx.log("warning", "careful", logger="far")
    return "reported"


async def fail(how: str) -> str:
    if how == "tool":
        raise ToolError("not today")
    raise RemoteProtocolError("not like this", code=-32602, data={"x": 1})


async def rich() -> CallToolResult:
    return CallToolResult(content=[TextContent(text="t")], structured_content={"a": [1.5]}, meta={"own": {"b": 2}})


async def big() -> str:
    return "large " * 2000


async def decorated() -> dict[str, int]:
    return {"a": 1}


async def links() -> ResourceLink:
    return ResourceLink(uri="note://of/monday", name="monday")


async def greet(name: str, mood: str = "glad") -> str:
    return f"Greet {name}, {mood}."


ANSWERS: dict[str, Any] = {
    "on_elicit": lambda _question: accept(value="Bob"),
    "on_sample": lambda _request: "hello",
    "on_roots": lambda: [Root(uri="file:///work")],
}


class Near:
    """A host, and how it names what is behind the proxy."""

    def __init__(self, way: str, client: Client) -> None:
        self.client = client
        self._mounted = way != "alone"

    def name(self, name: str) -> str:
        return f"f_{name}" if self._mounted else name

    def uri(self, uri: str) -> str:
        return uri.replace("://", "://f/") if self._mounted else uri

    async def call(self, name: str, arguments: Any = None, **options: Any) -> CallToolResult:
        return await self.client.call_tool(self.name(name), arguments, **options)


def by(way: str, server: Any, **options: Any) -> Any:
    target = proxy(server, **options)
    if way == "alone":
        return target
    outer = Server("outer")
    outer.mount("f", target if way == "mounted" else proxy(proxy(target)))
    return outer


@asynccontextmanager
async def near(way: str, host: str, far: Far, **options: Any) -> AsyncIterator[Near]:
    """A host of this era, connected to a server in this way."""
    with trio.fail_after(SECONDS):
        async with Client.connect(by(way, far.server), mode=host, **options) as client:
            yield Near(way, client)


# what flows through


@all_ways
async def test_everything_that_the_server_offers_is_there(way: str, host: str, server: str) -> None:
    far = Far(server)
    async with near(way, host, far) as found:
        client = found.client
        own = {found.name(tool.name) for tool in far.server.tools}
        assert {tool.name for tool in await client.list_tools()} == own
        (prompt,) = await client.list_prompts()
        assert prompt.name == found.name("greet")
        assert [argument.name for argument in prompt.arguments or ()] == ["name", "mood"]
        messages = (await client.get_prompt(prompt.name, {"name": "Bob"})).messages
        assert messages[0].content == TextContent(text="Greet Bob, glad.")
        (resource,) = await client.list_resources()
        assert (resource.uri, resource.mime_type) == (found.uri("note://one"), "text/x-note")
        (template,) = await client.list_resource_templates()
        assert template.uri_template == found.uri("note://of/{day}")
        for uri, text in (("note://one", "one"), ("note://of/monday", "of monday")):
            (contents,) = (await client.read_resource(found.uri(uri))).contents
            assert isinstance(contents, TextResourceContents)
            assert (contents.uri, contents.text) == (found.uri(uri), text)
        completed = await client.complete(PromptReference(name=prompt.name), "name", "B", context={"mood": "x"})
        assert completed.values == ["Bob", "mood"]
        ref = ResourceTemplateReference(uri=template.uri_template)
        assert (await client.complete(ref, "day", "mon")).values == ["monday"]


@all_ways
async def test_the_user_the_model_and_the_folders_of_the_host_are_asked(way: str, host: str, server: str) -> None:
    async with near(way, host, Far(server), **ANSWERS) as found:
        assert (await found.call("ask")).text == "Bob hello /work"


@all_ways
async def test_progress_and_log_messages_reach_the_host(way: str, host: str, server: str) -> None:
    reports: list[ProgressNotificationParams] = []
    entries: list[LoggingMessageNotificationParams] = []
    async with near(way, host, Far(server), on_log=entries.append) as found:
        assert (await found.call("report", on_progress=reports.append)).text == "reported"
    assert [(each.progress, each.total, each.message) for each in reports] == [(1, 2, "half")]
    assert [(each.level, each.data, each.logger) for each in entries] == [("warning", "careful", "far")]


@all_ways
async def test_a_cancel_ends_the_call_at_the_server(way: str, host: str, server: str) -> None:
    far = Far(server)
    async with near(way, host, far) as found, trio.open_nursery() as nursery:
        nursery.start_soon(found.call, "hold")
        await far.began.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await far.cancelled.wait()


@all_ways
async def test_what_a_result_and_a_tool_say_of_themselves_survives(way: str, host: str, server: str) -> None:
    async with near(way, host, Far(server)) as found:
        result = await found.call("rich")
        assert (result.structured_content, (result.meta or {})["own"]) == ({"a": [1.5]}, {"b": 2})
        listed = {tool.name: tool for tool in await found.client.list_tools()}
        tool = listed[found.name("decorated")]
        assert tool.annotations == ToolAnnotations(idempotent_hint=True)
        assert tool.icons == [ICON]
        assert (tool.meta or {})["m"] == 1
        assert (tool.output_schema or {})["additionalProperties"] == {"type": "integer"}
        assert (await found.call("decorated")).structured_content == {"a": 1}


@all_ways
async def test_errors_of_the_server_survive(way: str, host: str, server: str) -> None:
    async with near(way, host, Far(server)) as found:
        result = await found.call("fail", {"how": "tool"})
        assert (result.is_error, result.text) == (True, "not today")
        with pytest.raises(PeerError, match="not like this") as caught:
            await found.call("fail", {"how": "protocol"})
        assert (caught.value.code, caught.value.data) == (-32602, {"x": 1})
        assert (await found.call("fail", {})).is_error


@all_ways
async def test_changes_of_lists_and_of_resources_reach_the_host(way: str, host: str, server: str) -> None:
    async with near(way, host, Far(server)) as found:
        uri = found.uri("note://one")
        async with found.client.listen(tools=True, uris=[uri]) as changes:
            if way == "alone":
                await wait_all_tasks_blocked()  # a host's subscription goes on without holding it up
            await found.call("change")
            assert {(each.kind, each.uri) for each in [await anext(changes), await anext(changes)]} == {
                ("tools", None),
                ("updated", uri),
            }
        assert found.name("another") in [tool.name for tool in await found.client.list_tools()]


@host_eras
@server_eras
async def test_the_server_receives_the_info_and_capabilities_of_the_host(host: str, server: str) -> None:
    for way in ("alone", "mounted"):
        far = Far(server)
        async with near(way, host, far, name="me", on_roots=list) as found:
            await found.call("meet")
        ((name, declared),) = far.hosts
        assert name == "me"
        assert "roots" in declared
        assert not declared.keys() & {"sampling", "elicitation"}


# mounted


@host_eras
async def test_a_link_of_the_server_can_be_read_at_the_outer_one(host: str) -> None:
    async with near("mounted", host, Far("modern")) as found:
        (link,) = (await found.call("links")).content
        assert isinstance(link, ResourceLink)
        assert link.uri == "note://f/of/monday"
        (contents,) = (await found.client.read_resource(link.uri)).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "of monday"


@host_eras
@server_eras
async def test_a_handler_of_the_outer_server_uses_what_is_behind_the_proxy(host: str, server: str) -> None:
    outer = by("mounted", Far(server).server)
    samples = [tool_use("f_decorated"), "done"]

    @outer.tool
    async def use(ctx: Context) -> str:
        (contents,) = (await ctx.read_resource("note://f/one")).contents
        assert isinstance(contents, TextResourceContents)
        return f"{contents.text} {(await ctx.run_tool_loop('Go.', ['f_decorated'])).text}"

    client = MockClient(era=host, samples=samples)
    assert (await client.call((outer, "use"))).text == "one done"


@host_eras
@server_eras
async def test_each_host_is_asked_for_its_own_calls(host: str, server: str) -> None:
    outer = by("mounted", Far(server).server)
    async with outer.open_service() as service, trio.open_nursery() as nursery:
        both = trio.Event()
        asked: list[str] = []

        async def call(name: str) -> None:
            async def answer(_question: Any) -> Any:
                asked.append(name)
                if len(asked) == 2:
                    both.set()
                await both.wait()
                return accept(value=name)

            options: dict[str, Any] = {"on_elicit": answer, "on_sample": lambda _r: "x", "on_roots": list}
            with trio.fail_after(SECONDS):
                async with Client.connect(Sharing(service), mode=host, **options) as client:
                    assert (await client.call_tool("f_ask")).text == f"{name} x"

        nursery.start_soon(call, "Ann")
        nursery.start_soon(call, "Bob")
    assert sorted(asked) == ["Ann", "Bob"]


class Sharing:
    """Serves further connections over one service, as a transport with several does."""

    def __init__(self, service: Any) -> None:
        self._service = service

    async def serve_channel(self, channel: Any) -> None:
        await serve_channel(self._service, channel)


@pytest.mark.parametrize("era", TALK_ERAS, ids=lambda era: era.era)
async def test_principals_share_no_connection(era: type[Legacy]) -> None:
    far = Far("modern")
    outer = by("mounted", far.server)
    async with play(outer, era) as player:
        for name in ("ann", "bob", "ann"):
            player.talk.peer = Peer(name)
            await player.call("f_rich")
            assert await player.text() == "t"
        assert len(far.server.services) == 3  # for the lists, for ann, and for bob


@server_eras
async def test_a_name_that_is_taken_is_left_out_and_logged(server: str, caplog: pytest.LogCaptureFixture) -> None:
    far = Far(server)
    outer = by("mounted", far.server)
    outer.add_tool(lambda: "mine", name="f_ask")
    outer.add_tool(lambda: "mine", name="f_another")
    with trio.fail_after(SECONDS):
        async with Client.connect(outer) as client:
            names = [tool.name for tool in await client.list_tools()]
            assert names.count("f_ask") == 1
            assert "f_report" in names
            assert (await client.call_tool("f_ask")).text == "mine"
            await client.call_tool("f_change")
            await wait_all_tasks_blocked()
            assert (await client.call_tool("f_another")).text == "mine"
    left_out = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text for text in left_out if not unnamed(text, "ask", "far", "outer")]
    assert [text for text in left_out if not unnamed(text, "another", "far", "outer")]


@host_eras
async def test_what_the_server_removes_and_changes_is_removed_and_changed(host: str) -> None:
    far = Far("modern")
    async with near("mounted", host, far) as found:
        far.server.remove_tool("rich")
        far.server.remove_tool("report")
        far.server.add_tool(lambda: "", name="report", description="another")
        far.server.remove_resource("note://one")
        far.server.remove_resource("note://of/{day}")
        far.server.remove_prompt("greet")
        await wait_all_tasks_blocked()
        tools = {tool.name: tool for tool in await found.client.list_tools()}
        assert "f_rich" not in tools
        assert tools["f_report"].description == "another"
        assert await found.client.list_prompts() == await found.client.list_resources() == []
        assert await found.client.list_resource_templates() == []


async def test_a_list_that_changes_after_each_reading_is_read_ever_more_seldom(autojump_clock: MockClock) -> None:
    far, readings = Far("modern"), list[float]()

    @far.server.message_middleware
    def change(message: MessageFacts) -> None:
        if message.method == "tools/list":
            readings.append(trio.current_time())
            far.server.add_tool(lambda: "", name=f"tool_{len(readings)}")

    async with Client.connect(by("mounted", far.server), mode="modern") as client:
        await trio.sleep(60)
        assert 3 <= len(readings) <= 12
        pauses = [later - earlier for earlier, later in itertools.pairwise(readings)][READ_AT_ONCE:]
        assert pauses == sorted(pauses)
        assert min(pauses) >= 1
        # The last change is read, too, and after a while without one the next is read at once.
        far.server.remove_tool("report")
        await trio.sleep(PAUSES.longest + 1)
        assert "f_report" not in {tool.name for tool in await client.list_tools()}


async def test_a_long_list_holds_up_no_other_task_while_it_is_taken_in() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    mirror = Mirror("far", unused)
    tools = [ToolModel(name=f"t{number}", input_schema={"type": "object"}) for number in range(10 * STEP)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await mirror.registry.tools.peer_list.update(tools)  # type: ignore[union-attr]
        nursery.cancel_scope.cancel()
    assert turns >= 9
    assert len(mirror.registry.tools.by_key) == len(tools)


async def unused(*_arguments: object) -> Any:
    raise AssertionError("nothing is called")


@host_eras
@server_eras
@pytest.mark.parametrize("way", ["alone", "mounted"])
async def test_a_resource_over_the_limit_is_refused_and_those_before_it_stay(
    way: str, host: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "alone" and host == server:
        pytest.skip("messages pass as they are, and the server has its own limits")
    monkeypatch.setattr(host_links, "FOLLOWED_RESOURCES", host_links.FOLLOWED_RESOURCES._replace(limit=2))
    far, prefix = Far(server), "note://f/of/" if way == "mounted" else "note://of/"
    async with near(way, host, far) as found:
        async with found.client.listen(uris=[f"{prefix}monday", f"{prefix}tuesday"]) as changes:
            further = found.client.listen(uris=[f"{prefix}wednesday"])
            if host == "legacy":
                async with further:
                    assert not further.honoured.resource_subscriptions
            else:
                with pytest.raises(PeerError) as refused:
                    await further.__aenter__()
                assert refused.value.code == -32000
                assert unnamed(str(refused.value), host_links.FOLLOWED_RESOURCES.what) == []
            await found.call("report")
            far.server.resource_updated("note://of/monday")
            assert (await anext(changes)).uri == f"{prefix}monday"
        await wait_all_tasks_blocked()
        async with found.client.listen(uris=[f"{prefix}wednesday"]) as changes:
            await found.call("report")
            far.server.resource_updated("note://of/wednesday")
            assert (await anext(changes)).uri == f"{prefix}wednesday"


def test_a_resource_is_followed_while_a_host_subscribes_to_it_and_counts_for_the_first_of_those() -> None:
    client = WatchingClient()
    followed = Followed(lambda: [client])
    for caller in ("alice", "bob", "bob"):
        followed.watch("a:1", caller)
    assert client.uris == ["a:1"]
    followed.unwatch("a:1", "alice")
    followed.unwatch("a:1", "bob")
    followed.unwatch("a:1", "carl")
    assert (client.uris, list(followed)) == (["a:1"], ["a:1"])
    for number in range(2, host_links.FOLLOWED_RESOURCES.limit // 2 + 1):
        followed.watch(f"a:{number}", "bob")
    with pytest.raises(LimitExceeded):
        followed.watch("a:0", "bob")
    followed.unwatch("a:1", "bob")
    assert "a:1" not in client.uris
    followed.watch("a:0", "bob")


class WatchingClient:
    def __init__(self) -> None:
        self.uris: list[str] = []
        self.watch, self.unwatch = self.uris.append, self.uris.remove


# servers that end


class Ending:
    """A server on a wire in memory, which can be cut; each connection is another one."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.wires: list[trio.CancelScope] = []
        self.away = False

    async def serve_channel(self, channel: Any) -> None:
        if self.away:
            raise OSError("nobody is at home")
        with trio.CancelScope() as scope:
            self.wires.append(scope)
            await self.server.serve_channel(channel)

    def cut(self) -> None:
        for scope in self.wires:
            scope.cancel()
        self.wires.clear()


@pytest.mark.parametrize("way", ["alone", "mounted"])
@host_eras
@server_eras
async def test_the_end_of_the_server_is_an_error_of_the_call_that_names_it(way: str, host: str, server: str) -> None:
    far = Far(server)
    ending = Ending(far.server)
    outer = by(way, ending, name="weather")
    errors: list[PeerError] = []

    async def hold(found: Near) -> None:
        try:
            await found.call("hold")
        except PeerError as error:
            errors.append(error)

    with trio.fail_after(SECONDS):
        async with Client.connect(outer, mode=host) as client, trio.open_nursery() as nursery:
            found = Near(way, client)
            nursery.start_soon(hold, found)
            await far.began.wait()
            ending.cut()
    assert [error.code for error in errors] == [-32603]
    assert not unnamed(str(errors[0]), "weather")


@host_eras
@server_eras
async def test_a_mounted_proxy_connects_again_for_the_next_call(host: str, server: str) -> None:
    far = Far(server)
    ending = Ending(far.server)
    outer = by("mounted", ending, name="weather")
    with trio.fail_after(SECONDS):
        async with Client.connect(outer, mode=host) as client:
            assert (await client.call_tool("f_report")).text == "reported"
            ending.away = True
            ending.cut()
            await wait_all_tasks_blocked()
            with pytest.raises(PeerError, match=naming("weather")):
                await client.call_tool("f_report")
            assert "f_report" in [tool.name for tool in await client.list_tools()]
            ending.away = False
            assert (await client.call_tool("f_report")).text == "reported"


async def test_a_server_that_is_away_at_first_is_offered_when_it_comes(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ending = Ending(Far("modern").server)
    ending.away = True
    outer = by("mounted", ending, name="weather")
    mock_clock.autojump_threshold = 0
    started = trio.current_time()
    async with Client.connect(outer, mode="modern") as client:
        assert trio.current_time() - started <= START_SECONDS + 1
        assert await client.list_tools() == []
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert [unnamed(text, "weather", "mounted as 'f'") for text in said] == [[]]
        async with client.listen(tools=True) as changes:
            ending.away = False
            assert (await anext(changes)).kind == "tools"
        assert "f_ask" in [tool.name for tool in await client.list_tools()]


async def test_two_slow_servers_are_waited_for_together(autojump_clock: MockClock) -> None:
    outer = Server("outer")
    for name in "ab":
        ending = Ending(Server(name))
        ending.away = True
        outer.mount(name, proxy(ending))
    started = trio.current_time()
    async with outer.open_service():
        assert trio.current_time() - started <= START_SECONDS + 1


@host_eras
async def test_an_unused_connection_is_closed_unless_its_session_goes_on(host: str, mock_clock: MockClock) -> None:
    ending = Ending(Far("modern").server)
    outer = by("mounted", ending)
    async with Client.connect(outer, mode=host) as client:
        await client.call_tool("f_report")
        assert len(ending.server.services) == 2  # for the lists, and for the host
        mock_clock.jump(IDLE_SECONDS + 1)
        await wait_all_tasks_blocked()
        assert len(ending.server.services) == (2 if host == "legacy" else 1)
        assert (await client.call_tool("f_report")).text == "reported"
    assert not ending.server.services


async def test_the_connection_of_a_session_is_closed_some_time_after_the_session(mock_clock: MockClock) -> None:
    ending = Ending(Far("modern").server)
    outer = by("mounted", ending)
    async with outer.open_service() as service:
        with trio.fail_after(SECONDS):
            async with Client.connect(Sharing(service), mode="legacy") as client:
                assert (await client.call_tool("f_report")).text == "reported"
        assert len(ending.server.services) == 2
        mock_clock.jump(IDLE_SECONDS + 1)
        await wait_all_tasks_blocked()
        assert len(ending.server.services) == 1


async def test_a_call_that_is_cancelled_at_any_step_leaves_no_connection(mock_clock: MockClock) -> None:
    far = Far("modern")
    outer = by("mounted", far.server)
    async with outer.open_service() as service:
        for steps in range(25):
            async with Client.connect(Sharing(service), mode="legacy") as client, trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "f_rich")
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        mock_clock.jump(IDLE_SECONDS + 1)
        await wait_all_tasks_blocked()
        assert len(far.server.services) == 1  # for the lists


@host_eras
@server_eras
async def test_a_tool_that_runs_as_a_task_is_followed_to_its_result(host: str, server: str) -> None:
    far = Far(server)
    far.server.add_tool(ask, name="slow", task="required")
    async with near("mounted", host, far, **ANSWERS) as found:
        listed = {tool.name: tool for tool in await found.client.list_tools()}
        assert listed["f_slow"].execution is None
        assert (await found.call("slow")).text == "Bob hello /work"


async def test_no_more_hosts_have_connections_than_may(mock_clock: MockClock) -> None:
    far = Far("modern")
    outer = by("mounted", far.server, max_sessions=1)
    async with outer.open_service() as service, trio.open_nursery() as nursery:
        with trio.fail_after(SECONDS):
            async with (
                Client.connect(Sharing(service), mode="legacy") as first,
                Client.connect(Sharing(service), mode="legacy") as second,
            ):
                nursery.start_soon(first.call_tool, "f_hold")
                await far.began.wait()
                result = await second.call_tool("f_report")
                assert result.is_error
                assert not unnamed(result.text, "far", "max_sessions")
                nursery.cancel_scope.cancel()


# targets


def test_a_target_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dir").mkdir()
    for file in ("dir/one.py", "dir/two.py", "three.py"):
        (tmp_path / file).touch()
    names = {
        "far": Server("far"),
        "weather.example.com": "https://weather.example.com:8000/mcp",
        "server.py": ["python", "dir/server.py"],
        "one.py": "dir/one.py",
        "two.py": Path("dir/two.py"),
        "three.py:app": "three.py:app",
    }
    for name, target in names.items():
        assert proxy(target).identity.name == name
    assert proxy(Client.connect("http://a.example/mcp")).identity.name == "a.example"
    assert proxy("http://a.example/mcp", name="mine").identity.name == "mine"


@pytest.mark.parametrize("target", ["weather", "ftp://a.example", [], None, Server, 3])
def test_what_nothing_connects_to_is_no_target(target: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        proxy(target)


def test_an_option_that_the_transport_does_not_have_is_named() -> None:
    with pytest.raises(TypeError, match=naming("env", "http")):
        proxy("http://a.example/mcp", env={})
    with pytest.raises(TypeError, match="client"):
        proxy(Client.connect("http://a.example/mcp"), headers={})


@pytest.mark.parametrize("target", ["http://a.example/mcp", ["python", "server.py"], Server("a"), "client"])
@pytest.mark.parametrize("option", ["authenticate", "http", "port"])
def test_an_option_of_serving_belongs_to_the_call_that_serves(option: str, target: Any) -> None:
    with pytest.raises(TypeError, match=naming(option, "run", "serve_http", "asgi_app")):
        proxy(Client.connect("http://a.example/mcp") if target == "client" else target, **{option: None})


async def test_a_client_that_is_not_open_is_a_target_with_its_transport_options() -> None:
    far = Far("modern")
    client = Client.connect(far.server)
    async with near("alone", "modern", Far("modern")):
        with trio.fail_after(SECONDS):
            async with Client.connect(proxy(client)) as host:
                assert (await host.call_tool("report")).text == "reported"


async def test_a_proxy_of_a_client_that_was_made_of_a_channel_is_refused() -> None:
    here, _there = memory_stream_pair()
    channel = nullcontext(LineEnd(here))
    options = ClientOptions(info=Implementation(name="x", version="1"))
    with pytest.raises(TypeError, match=naming("Client.connect")):
        proxy(Client(channel, options))


@all_ways
async def test_a_large_result_is_read_under_the_link_that_the_host_gets(way: str, host: str, server: str) -> None:
    async with near(way, host, Far(server)) as found:
        (*_, notice, link) = (await found.call("big")).content
        assert isinstance(link, ResourceLink)
        assert isinstance(notice, TextContent)
        assert link.uri in notice.text
        (contents,) = (await found.client.read_resource(link.uri)).contents
        assert isinstance(contents, TextResourceContents)
        assert (contents.uri, contents.text) == (link.uri, await big())
        with pytest.raises(PeerError, match="not found"):
            await found.client.read_resource(f"{link.uri}x")


@host_eras
@server_eras
async def test_a_large_result_is_read_through_every_mount_on_the_way_to_it(host: str, server: str) -> None:
    """The hub keeps its own as well, and a server that is mounted in it keeps its own with those of the hub."""
    far, hub, outer = Far(server), Server("hub"), Server("outer")
    hub.mount("results", proxy(far.server))
    hub.add_tool(big, name="own", max_result=2048)
    outer.mount("hub", hub)
    outer.mount("again", proxy(hub))
    with trio.fail_after(SECONDS):
        async with Client.connect(outer, mode=host) as client:
            for name in ("hub_results_big", "hub_own", "again_results_big", "again_own"):
                (*_, notice, link) = (await client.call_tool(name)).content
                assert isinstance(link, ResourceLink)
                assert isinstance(notice, TextContent)
                assert link.uri in notice.text
                (contents,) = (await client.read_resource(link.uri)).contents
                assert isinstance(contents, TextResourceContents)
                assert (contents.uri, contents.text) == (link.uri, await big())


@server_eras
async def test_a_large_result_behind_a_mounted_proxy_is_that_of_its_principal(server: str) -> None:
    far, outer = Far(server), Server("outer")
    async with far.server.open_service() as service:
        outer.mount("f", proxy(behind_a_proxy(service, "far")))
        async with play(outer, Modern) as player:
            player.talk.peer = Peer("ann")
            await player.call("f_big")
            (*_, link) = (await player.result())["content"]
            for name, is_hers in (("bob", False), ("ann", True)):
                player.talk.peer = Peer(name)
                player.talk.ask("resources/read", uri=link["uri"])
                reply = await player.talk.receive()
                assert ("result" in reply) is is_hers


async def test_wrong_keys_are_an_error_of_the_one_who_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_MCP_KEYS", "secret")
    far = proxy(Far("modern").server)
    for transport in ("stdio", "http"):
        with pytest.raises(ConfigurationError, match="TRIO_MCP_KEYS"), trio.fail_after(SECONDS):
            await far.serve(transport)
    with pytest.raises(ConfigurationError, match="TRIO_MCP_KEYS"), trio.fail_after(SECONDS):
        async with far.open_service():
            raise AssertionError("it is served")


def test_options_that_are_none_are_rejected() -> None:
    with pytest.raises(TypeError):
        proxy(Far("modern").server, options={"actors": 1})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        proxy(Far("modern").server).copy(options={"actors": 1})  # type: ignore[arg-type]
