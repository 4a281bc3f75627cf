"""A server whose code is replaced while it is served: clients stay, new calls use the new code, old calls keep the old one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from crashing_store import CrashingStore, Disk
from naming import naming
from peer import EVERYTHING
from talk import ERAS, Legacy, Talk, accept, play, talk_to
from task_talk import LegacyTask, ModernTask
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Client, Context, HttpOptions, HttpRequest, HttpResponse, Server, ServiceOptions, proxy
from trio_mcp.errors import ConfigurationError
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.runtime import MemoryBudget
from trio_mcp.server.lifespan import LIFESPAN_EXIT_SECONDS
from trio_mcp.server.replaceable import ReplaceableServer

BOUND = 20.0
KEYS = KeyRing.random()
eras = pytest.mark.parametrize("era", ERAS)


class Broken(Exception):
    pass


def version(text: str, **options: Any) -> Server:
    """A server with a tool that returns a text."""
    server = Server("tester", version="1", **options)

    @server.tool
    async def show() -> str:
        return text

    return server


def recorded(events: list[str], name: str) -> Callable[[Server], AbstractAsyncContextManager[str]]:
    """A lifespan that records when it is entered and left; its value is its name."""

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[str]:
        events.append(f"open {name}")
        try:
            yield name
        finally:
            events.append(f"close {name}")

    return lifespan


def asking(name: str, lifespan: Any = None, **options: Any) -> Server:
    """A server with a tool that asks the user, and then shows whose state it has."""
    server = Server("tester", version="1", lifespan=lifespan, options=ServiceOptions(**options))

    @server.tool
    async def ask(ctx: Context[str]) -> str:
        answer = await ctx.elicit("Go on?", str)
        return f"{name} {ctx.state} {answer.content if answer.action == 'accept' else '-'}"

    server.add_tool(ask, name="work", task=True)

    @server.tool
    async def state(ctx: Context[str]) -> str:
        return f"{name} {ctx.state}"

    return server


@eras
async def test_a_new_call_uses_the_new_code_on_the_same_connection(era: type[Legacy]) -> None:
    server = ReplaceableServer(version("old"))
    async with play(server, era) as player:
        await player.call("show")
        assert await player.text() == "old"
        assert (await server.replace(version("new"))).lists == ()
        await player.call("show")
        assert await player.text() == "new"


@eras
async def test_a_call_that_waits_for_its_user_keeps_its_code_and_its_lifespan(era: type[Legacy]) -> None:
    events: list[str] = []
    server = ReplaceableServer(asking("old", recorded(events, "1")))
    async with play(server, era) as player:
        await player.call("ask")
        await player.question()
        replacement = await server.replace(asking("new", recorded(events, "2")))
        assert replacement.old_calls == 1
        await wait_all_tasks_blocked()
        assert events == ["open 1", "open 2"]
        await player.answer(accept(value="yes"))
        assert await player.text() == "old 1 yes"
        await wait_all_tasks_blocked()
        assert events == ["open 1", "open 2", "close 1"]
        await player.call("state")
        assert await player.text() == "new 2"
    assert events == ["open 1", "open 2", "close 1", "close 2"]


@eras
async def test_each_of_several_versions_closes_after_its_own_last_call(era: type[Legacy]) -> None:
    events: list[str] = []
    server = ReplaceableServer(asking("a", recorded(events, "1")))
    async with talk_to(server) as talk:
        players = []
        for name, number in (("b", "2"), ("c", "3"), ("d", "4")):
            player = era(talk if not players else Talk(talk.service), EVERYTHING)
            await player.call("ask")
            await player.question()
            players.append(player)
            await server.replace(asking(name, recorded(events, number)))
        await wait_all_tasks_blocked()
        assert events == ["open 1", "open 2", "open 3", "open 4"]
        for player in reversed(players):
            await player.answer(accept(value="x"))
            await player.text()
            await wait_all_tasks_blocked()
    assert events[4:] == ["close 3", "close 2", "close 1", "close 4"]


@pytest.mark.parametrize("kind", [LegacyTask, ModernTask])
async def test_a_task_goes_on_with_its_code_and_its_lifespan(kind: Any) -> None:
    events: list[str] = []
    server = ReplaceableServer(asking("old", recorded(events, "1")))
    async with talk_to(server) as talk:
        task = kind(talk)
        await task.open()
        await task.start("work")
        assert await task.status() == "input_required"
        await server.replace(asking("new", recorded(events, "2")))
        assert events == ["open 1", "open 2"]
        await task.answer("yes")
        assert (await task.result())["content"][0]["text"] == "old 1 yes"
        await wait_all_tasks_blocked()
        assert events == ["open 1", "open 2", "close 1"]
        later = kind(talk)
        await later.start("work")
        await wait_all_tasks_blocked()
        await later.answer("no")
        assert (await later.result())["content"][0]["text"] == "new 2 no"


# what clients are notified of


def changed(kind: str) -> Server:
    """A server that differs from `version("same")` in one list."""
    server = version("same")
    match kind:
        case "tools":
            server.add_tool(lambda: "", name="more")
        case "prompts":
            server.add_prompt(lambda: "", name="more")
        case "resources":
            server.add_resource("more:x", lambda: "")
    return server


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_legacy_session_is_notified_of_the_lists_that_differ_and_of_no_others(kind: str) -> None:
    server = ReplaceableServer(version("same"))
    async with talk_to(server) as talk:
        await talk.initialize()
        await server.replace(version("same"))
        await wait_all_tasks_blocked()
        assert talk.waiting() == []
        assert (await server.replace(changed(kind))).lists == (kind,)
        await wait_all_tasks_blocked()
        assert [message["method"] for message in talk.waiting()] == [f"notifications/{kind}/list_changed"]


async def test_a_modern_subscription_stays_and_is_notified_of_the_lists_that_differ() -> None:
    server = ReplaceableServer(version("same"))
    async with talk_to(server) as talk:
        talk.ask("subscriptions/listen", notifications={"toolsListChanged": True})
        await wait_all_tasks_blocked()
        talk.waiting()
        for number in range(3):
            other = version("same")
            other.add_tool(lambda: "", name=f"tool_{number}")
            await server.replace(other)
            await wait_all_tasks_blocked()
            assert [message["method"] for message in talk.waiting()] == ["notifications/tools/list_changed"]
        await server.replace(version("same", instructions="Read this."))
        await wait_all_tasks_blocked()
        assert [message["method"] for message in talk.waiting()] == ["notifications/tools/list_changed"]


async def test_a_subscription_is_no_call_that_goes_on_with_the_old_code_and_keeps_no_lifespan_open() -> None:
    events: list[str] = []
    server = ReplaceableServer(asking("old", recorded(events, "1")))
    async with talk_to(server) as talk:
        talk.ask("subscriptions/listen", notifications={"toolsListChanged": True})
        await wait_all_tasks_blocked()
        assert (await server.replace(asking("new", recorded(events, "2")))).old_calls == 0
        await wait_all_tasks_blocked()
        assert events == ["open 1", "open 2", "close 1"]


async def test_a_description_or_a_schema_that_differs_is_a_difference_of_the_list() -> None:
    def described(text: str) -> Server:
        server = Server("tester", version="1")
        server.add_tool(lambda: "", name="show", description=text)
        return server

    server = ReplaceableServer(described("one"))
    async with server.open_service():
        assert (await server.replace(described("one"))).lists == ()
        assert (await server.replace(described("two"))).lists == ("tools",)


async def test_what_was_offered_once_stays_declared() -> None:
    server = ReplaceableServer(changed("prompts"))
    async with talk_to(server) as talk:
        await server.replace(version("same"))
        assert "prompts" in (await talk.result(talk.ask("server/discover")))["capabilities"]
        assert (await talk.result(talk.ask("prompts/list")))["prompts"] == []


async def test_changes_are_announced_of_the_server_in_service_and_not_of_the_one_before() -> None:
    old, new = version("same"), version("same")
    server = ReplaceableServer(old)
    async with talk_to(server) as talk:
        await talk.initialize()
        await server.replace(new)
        await wait_all_tasks_blocked()
        old.add_tool(lambda: "", name="late")
        await wait_all_tasks_blocked()
        assert talk.waiting() == []
        new.add_tool(lambda: "", name="late")
        await wait_all_tasks_blocked()
        assert [message["method"] for message in talk.waiting()] == ["notifications/tools/list_changed"]
    assert old.services == new.services == ()


async def test_a_call_of_the_old_code_still_announces_what_it_changes() -> None:
    old, release = Server("tester", version="1"), trio.Event()

    @old.tool
    async def write() -> str:
        await release.wait()
        old.resource_updated("note://x")
        return "written"

    old.add_resource("note://x", lambda: "")
    server = ReplaceableServer(old)
    async with talk_to(server) as talk:
        await talk.initialize()
        await talk.result(talk.request("resources/subscribe", {"uri": "note://x"}))
        call = talk.call("write")
        await wait_all_tasks_blocked()
        new = version("new")
        new.add_resource("note://x", lambda: "")
        await server.replace(new)
        await wait_all_tasks_blocked()
        assert [message["method"] for message in talk.waiting()] == ["notifications/tools/list_changed"]
        release.set()
        await wait_all_tasks_blocked()
        came = talk.waiting()
        assert [message.get("method") for message in came if "id" not in message] == ["notifications/resources/updated"]
        assert [message["id"] for message in came if "id" in message] == [call]
        old.resource_updated("note://x")
        await wait_all_tasks_blocked()
        assert talk.waiting() == []


# the rest of what a server has


@eras
async def test_middleware_of_both_kinds_is_replaced(era: type[Legacy]) -> None:
    seen: list[str] = []

    def watched(name: str) -> Server:
        server = version(name)

        @server.middleware
        async def around(call: Any, handler: Any) -> Any:
            seen.append(f"{name} {call.name}")
            return await handler()

        @server.message_middleware
        def messages(message: Any) -> None:
            if message.method == "tools/call":
                seen.append(f"{name} message")

        return server

    server = ReplaceableServer(version("old"))
    async with play(server, era) as player:
        for name in ("one", "two"):
            await server.replace(watched(name))
            await player.call("show")
            assert await player.text() == name
        await server.replace(version("plain"))
        await player.call("show")
        await player.text()
    assert seen == ["one message", "one show", "two message", "two show"]


async def test_mounted_servers_are_replaced_with_their_lifespans() -> None:
    events: list[str] = []

    def outer(name: str) -> Server:
        server = Server("tester", version="1")
        server.mount("in", asking(name, recorded(events, name)))
        return server

    server = ReplaceableServer(outer("1"))
    async with play(server, Legacy) as player:
        await player.call("in_ask")
        await player.question()
        await server.replace(outer("2"))
        await player.answer(accept(value="x"))
        assert await player.text() == "1 1 x"
        await wait_all_tasks_blocked()
        assert events == ["open 1", "open 2", "close 1"]
        await player.call("in_state")
        assert await player.text() == "2 2"


async def test_instructions_are_those_of_the_new_code_for_the_next_client() -> None:
    server = ReplaceableServer(version("x", instructions="Old."))
    async with talk_to(server) as talk:
        assert (await server.replace(version("x", instructions="New."))).for_reconnect == ("instructions",)
        assert (await talk.initialize())["instructions"] == "New."


# what does not succeed changes nothing


async def test_a_lifespan_that_fails_at_its_start_leaves_the_old_code() -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[None]:
        raise Broken
        yield

    server = ReplaceableServer(version("old"))
    async with play(server, Legacy) as player:
        with pytest.raises(Broken):
            await server.replace(version("new", lifespan=broken))
        await player.call("show")
        assert await player.text() == "old"
        await server.replace(version("newer"))
        await player.call("show")
        assert await player.text() == "newer"


async def test_a_cancel_while_the_new_lifespan_starts_leaves_the_old_code(autojump_clock: MockClock) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def slow(server: Server) -> AsyncIterator[None]:
        try:
            await trio.sleep_forever()
            yield
        finally:
            events.append("left")

    server = ReplaceableServer(version("old"))
    async with play(server, Legacy) as player:
        with trio.move_on_after(1) as scope:
            await server.replace(version("new", lifespan=slow))
        assert scope.cancelled_caught
        assert events == ["left"]
        await player.call("show")
        assert await player.text() == "old"


async def test_a_cancel_that_the_start_of_a_lifespan_could_not_notice_leaves_the_old_code(
    autojump_clock: MockClock,
) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def threaded(server: Server) -> AsyncIterator[None]:
        # As what runs in a thread: a cancel does not reach it.
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        events.append("opened")
        yield
        events.append("closed")

    @asynccontextmanager
    async def closing(server: Server) -> AsyncIterator[None]:
        try:
            yield
        finally:
            events.append("closed")

    mounted = version("mounted", lifespan=closing)
    new = version("new", lifespan=threaded)
    new.mount("below", mounted)
    server = ReplaceableServer(version("old"))
    async with play(server, Legacy) as player:
        with trio.move_on_after(1) as scope:
            await server.replace(new)
        assert scope.cancelled_caught
        assert trio.current_time() == 2
        await player.call("show")
        assert await player.text() == "old"
        await server.replace(version("newer"))
        await player.call("show")
        assert await player.text() == "newer"
    assert events == ["opened"]


async def test_offers_that_cannot_be_served_leave_the_old_code_and_close_the_new_lifespan() -> None:
    from trio_mcp import ToolSearch

    events: list[str] = []
    wrong = version("new", lifespan=recorded(events, "2"), tool_search=ToolSearch(search_name="show"))
    server = ReplaceableServer(version("old"))
    async with play(server, Legacy) as player:
        with pytest.raises(ValueError, match="show"):
            await server.replace(wrong)
        await wait_all_tasks_blocked()
        assert events == ["open 2", "close 2"]
        await player.call("show")
        assert await player.text() == "old"


async def test_a_server_that_begins_to_authenticate_is_not_served_open() -> None:
    async def authenticate(headers: Any) -> str:
        return "ann"

    server = ReplaceableServer(version("old"))
    async with server.open_service():
        with pytest.raises(ConfigurationError, match=naming("authenticate", "restart", "trio-mcp dev")):
            await server.replace(version("new", http=HttpOptions(authenticate=authenticate)))
        assert server.server.http is None


async def test_a_server_that_begins_to_mount_one_that_authenticates_is_not_served_open() -> None:
    async def authenticate(headers: Any) -> str:
        return "ann"

    new = version("new")
    new.mount("far", proxy(version("far", http=HttpOptions(authenticate=authenticate))))
    server = ReplaceableServer(version("old"))
    async with server.open_service():
        with pytest.raises(ConfigurationError, match="authenticate="):
            await server.replace(new)
        assert server.server is not new


async def test_nothing_is_replaced_in_a_server_that_is_not_served_or_shuts_down() -> None:
    server = ReplaceableServer(version("old"))
    with pytest.raises(RuntimeError):
        await server.replace(version("new"))
    async with server.open_service() as service:
        await service.drain(0)
        with pytest.raises(RuntimeError):
            await server.replace(version("new"))


async def test_it_is_served_once_at_a_time() -> None:
    server = ReplaceableServer(version("old"))
    async with server.open_service():
        with pytest.raises(RuntimeError):
            async with server.open_service():
                raise AssertionError("it was opened")
    async with server.open_service() as service:
        assert server.service is service


# the end of lifespans


async def test_a_lifespan_of_the_old_code_that_fails_at_its_end_disturbs_no_call(caplog: Any) -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[str]:
        yield "x"
        raise Broken

    server = ReplaceableServer(version("old", lifespan=broken))
    async with play(server, Legacy) as player:
        await server.replace(version("new"))
        await wait_all_tasks_blocked()
        assert [record.exc_info[0] for record in caplog.records] == [Broken]
        await player.call("show")
        assert await player.text() == "new"


async def test_a_lifespan_of_the_code_in_service_that_fails_ends_the_service() -> None:
    @asynccontextmanager
    async def broken(server: Server) -> AsyncIterator[str]:
        yield "x"
        raise Broken

    server = ReplaceableServer(version("old"))
    with pytest.raises(Broken):
        async with server.open_service():
            await server.replace(version("new", lifespan=broken))


async def test_a_lifespan_that_hangs_at_its_end_is_cancelled_in_time(autojump_clock: MockClock, caplog: Any) -> None:
    @asynccontextmanager
    async def hanging(server: Server) -> AsyncIterator[str]:
        yield "x"
        await trio.sleep_forever()

    server = ReplaceableServer(version("old", lifespan=hanging))
    async with server.open_service():
        await server.replace(version("new"))
        await server.replace(version("newer", lifespan=hanging))
        started = trio.current_time()
    assert trio.current_time() - started <= LIFESPAN_EXIT_SECONDS + 1
    assert len(caplog.records) == 2


async def test_the_end_of_the_service_cancels_old_calls_and_then_closes_their_lifespan() -> None:
    events: list[str] = []
    old = version("old", lifespan=recorded(events, "1"))

    @old.tool
    async def work() -> str:
        try:
            await trio.sleep_forever()
        finally:
            events.append("cancelled")
        return ""

    server = ReplaceableServer(old)
    async with talk_to(server) as talk:
        talk.call("work") if (await talk.initialize()) else None
        await wait_all_tasks_blocked()
        await server.replace(version("new", lifespan=recorded(events, "2")))
    assert events[:3] == ["open 1", "open 2", "cancelled"]
    assert sorted(events[3:]) == ["close 1", "close 2"]


# settings that only a restart applies


@pytest.mark.parametrize(
    ("new", "named"),
    [
        (Server("other", version="1"), "name"),
        (Server("tester", version="2"), "version"),
        (Server("tester", version="1", options=ServiceOptions(watchdog=9)), "options.watchdog"),
        (Server("tester", version="1", http=HttpOptions(allowed_hosts=["a.example"])), "http.allowed_hosts"),
    ],
)
async def test_a_setting_that_only_a_restart_applies_is_named(new: Server, named: str) -> None:
    server = ReplaceableServer(version("x"))
    async with server.open_service():
        assert (await server.replace(new)).for_restart == (named,)
        assert (await server.replace(version("y"))).for_restart == ()


async def test_objects_and_functions_that_each_version_recreates_are_no_difference() -> None:
    def settings() -> Server:
        async def authenticate(headers: Any) -> str:
            return "ann"

        async def handler(request: HttpRequest) -> HttpResponse:
            return HttpResponse("x")

        http = HttpOptions(authenticate=authenticate)
        options = ServiceOptions(memory=MemoryBudget(10_000_000), on_divergence=lambda text: None)
        server = Server("tester", version="1", http=http, options=options)
        server.route("/hook")(handler)
        return server

    server = ReplaceableServer(settings())
    async with server.open_service():
        assert (await server.replace(settings())).for_restart == ()


def told(how: str) -> Any:
    def on_divergence(text: str) -> None:
        _ = [how for _ in text]

    return on_divergence


def noted(how: str, text: str, *, again: Any = None) -> None:
    """A function of which a part is a setting."""


def settings_of(code: str) -> Server:
    """The server of a file with these options."""
    scope: dict[str, Any] = {
        "MemoryBudget": MemoryBudget,
        "ServiceOptions": ServiceOptions,
        "KeyRing": KeyRing,
        "partial": partial,
        "told": told,
    }
    exec(code, {**scope, "noted": noted}, scope)
    return Server("tester", version="1", options=scope["options"])


SETTINGS = {
    "another key": ('keys=KeyRing([b"1" * 32])', 'keys=KeyRing([b"2" * 32])', "keys"),
    "one more key": ('keys=KeyRing([b"1" * 32])', 'keys=KeyRing([b"1" * 32, b"2" * 32])', "keys"),
    "a fixed key": ("keys=KeyRing.random()", 'keys=KeyRing([b"2" * 32])', "keys"),
    "another budget": ("memory=MemoryBudget(10_000_000)", "memory=MemoryBudget(20_000_000)", "memory"),
    "another name in the code": (
        "on_divergence=lambda text: repr(text)",
        "on_divergence=lambda text: ascii(text)",
        None,
    ),
    "another default": ("on_divergence=lambda text, n=1: n", "on_divergence=lambda text, n=2: n", None),
    "another value around": ("on_divergence=told('a')", "on_divergence=told('b')", None),
    "another argument": ("on_divergence=partial(noted, 'a')", "on_divergence=partial(noted, 'b')", None),
}


@pytest.mark.parametrize(("before", "after", "name"), SETTINGS.values(), ids=SETTINGS)
async def test_a_changed_value_is_named_and_a_recreated_one_is_not(before: str, after: str, name: str | None) -> None:
    server = ReplaceableServer(settings_of(f"options = ServiceOptions({before})"))
    async with server.open_service():
        # Further down in its file.
        assert (await server.replace(settings_of(f"\n\noptions = ServiceOptions({before})"))).for_restart == ()
        changed = await server.replace(settings_of(f"options = ServiceOptions({after})"))
        assert changed.for_restart == (f"options.{name or 'on_divergence'}",)


async def test_a_function_that_holds_itself_can_be_compared() -> None:
    def settings() -> Server:
        def again(text: str) -> None:
            again(text)

        return Server("tester", version="1", options=ServiceOptions(on_divergence=again))

    server = ReplaceableServer(settings())
    async with server.open_service():
        assert (await server.replace(settings())).for_restart == ()


async def test_routes_and_authentication_run_the_newest_functions() -> None:
    def served(name: str, path: str) -> Server:
        async def authenticate(headers: Any) -> str:
            return name

        async def handler(request: HttpRequest) -> HttpResponse:
            return HttpResponse(name)

        server = version(name, http=HttpOptions(authenticate=authenticate))
        server.route(path)(handler)
        return server

    server = ReplaceableServer(served("old", "/hook"))
    options = server.http
    assert options is not None
    assert options.authenticate is not None
    (route,) = options.routes
    request = HttpRequest("GET", "/hook", "", {}, b"", None, None, "http", "", "", None)
    async with server.open_service():
        assert (await options.authenticate({}), (await route.handler(request)).body) == ("old", "old")
        await server.replace(served("new", "/hook"))
        assert (await options.authenticate({}), (await route.handler(request)).body) == ("new", "new")
        replacement = await server.replace(served("moved", "/other"))
        assert replacement.for_restart == ("the route /other", "the route /hook")
        assert (await route.handler(request)).status == 404
        await server.replace(version("open"))
        assert await options.authenticate({}) == "moved"


async def test_the_end_of_the_service_gives_up_a_lifespan_that_starts(autojump_clock: MockClock) -> None:
    @asynccontextmanager
    async def slow(server: Server) -> AsyncIterator[None]:
        await trio.sleep_forever()
        yield

    server, raised = ReplaceableServer(version("old")), trio.Event()

    async def replace() -> None:
        with pytest.raises(RuntimeError):
            await server.replace(version("new", lifespan=slow))
        raised.set()

    async with trio.open_nursery() as nursery:
        with trio.fail_after(BOUND):
            async with server.open_service():
                nursery.start_soon(replace)
                await wait_all_tasks_blocked()
            await raised.wait()


@eras
@pytest.mark.parametrize("kind", ["key", "task"])
async def test_a_call_that_is_being_recorded_when_the_code_is_replaced_runs_with_its_own_code_and_lifespan(
    era: type[Legacy], kind: str
) -> None:
    def stored(name: str) -> Server:
        options = ServiceOptions(store=store, keys=KEYS)
        server = Server("tester", version="1", lifespan=recorded(events, name), options=options)

        @server.tool(task="required" if kind == "task" else False)
        async def work(ctx: Context[str]) -> str:
            events.append(f"{name} {ctx.state}")
            return name

        return server

    events: list[str] = []
    store = CrashingStore(Disk())
    server = ReplaceableServer(stored("1"))
    with trio.fail_after(BOUND):
        async with Client.connect(server, mode=era.era) as client, trio.open_nursery() as nursery:
            store.hang = trio.Event()
            nursery.start_soon(client.call_tool, "work")
            await wait_all_tasks_blocked()
            await server.replace(stored("2"))
            await wait_all_tasks_blocked()
            assert events == ["open 1", "open 2"]
            store.hang.set()
            await wait_all_tasks_blocked()
            nursery.start_soon(client.call_tool, "work")
    ran = [event for event in events if event[0] in "12"]
    assert ran == ["1 1", "2 2"]
    assert events.index("1 1") < events.index("close 1")
