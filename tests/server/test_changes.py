"""Changing what a server offers while it is served: who hears of it, once, from any thread."""

from __future__ import annotations

import threading

import pytest
from talk import Json, Talk, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Server
from trio_mcp.server.registry import Registry

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"


@pytest.fixture
def server() -> Server:
    server = Server("busy")
    server.add_tool(lambda: "", name="first")
    server.add_prompt(lambda: "", name="first")
    server.add_resource("first:x", lambda: "")
    return server


async def methods(talk: Talk) -> list[str]:
    """What comes without being asked for, until nothing more does."""
    await wait_all_tasks_blocked()
    return [message["method"] for message in talk.waiting()]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda server: server.add_tool(lambda: "", name="new"), TOOLS),
        (lambda server: server.remove_tool("first"), TOOLS),
        (lambda server: server.add_prompt(lambda: "", name="new"), PROMPTS),
        (lambda server: server.remove_prompt("first"), PROMPTS),
        (lambda server: server.add_resource("new:x", lambda: ""), RESOURCES),
        (lambda server: server.add_resource("new:{x}", lambda x: x), RESOURCES),
        (lambda server: server.remove_resource("first:x"), RESOURCES),
    ],
)
async def test_a_session_hears_of_a_change(server: Server, change: object, expected: str) -> None:
    async with talk_to(server) as talk:
        await talk.initialize()
        change(server)
        assert await methods(talk) == [expected]


async def test_every_session_hears_of_it_and_none_before_it_is_initialized(server: Server) -> None:
    async with talk_to(server) as talk:
        other, silent = Talk(talk.service), Talk(talk.service)
        await talk.initialize()
        await other.initialize("2024-11-05")
        server.remove_tool("first")
        assert await methods(talk) == await methods(other) == [TOOLS]
        assert await methods(silent) == []


async def test_a_tool_in_a_thread_may_change_the_server(server: Server) -> None:
    @server.tool
    def grow() -> str:
        server.add_tool(lambda: "", name="grown")
        return "grown"

    async with talk_to(server) as talk:
        await talk.initialize()
        call = talk.call("grow")
        came = [await talk.receive(), await talk.receive()]  # in either order: the change is sent at once
    assert sorted(message.get("method", "") for message in came) == ["", TOOLS]
    assert [message["id"] for message in came if "id" in message] == [call]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/list", {}),
        ("prompts/get", {"name": "x"}),
        ("resources/list", {}),
        ("resources/read", {"uri": "a://b"}),
    ],
)
async def test_a_server_without_something_offers_no_method_for_it(method: str, params: Json) -> None:
    async with talk_to(Server("bare")) as talk:
        declared = (await talk.result(talk.ask("server/discover")))["capabilities"]
        assert {"prompts", "resources"}.isdisjoint(declared)
        assert (await talk.error(talk.ask(method, **params)))["code"] == -32601


async def test_what_is_offered_for_the_first_time_is_declared_from_then_on() -> None:
    server = Server("grows")
    async with talk_to(server) as talk:
        before = await talk.result(talk.ask("server/discover"))
        server.add_prompt(lambda: "hello", name="greet")
        after = await talk.result(talk.ask("server/discover"))
        server.remove_prompt("greet")
        later = await talk.result(talk.ask("prompts/list"))
    assert "prompts" not in before["capabilities"]
    assert after["capabilities"]["prompts"] == {"listChanged": True}
    assert later["prompts"] == []


async def test_two_threads_that_change_different_things_leave_both_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    read, go = threading.Event(), threading.Event()
    capabilities = Registry.capabilities.fget

    def slow(registry: Registry) -> object:
        found = capabilities(registry)
        if threading.current_thread() is late:
            read.set()
            go.wait(5)
        return found

    server = Server("grows")
    late = threading.Thread(target=lambda: server.add_tool(lambda: "", name="new"))
    early = threading.Thread(target=lambda: server.add_prompt(lambda: "", name="new"))
    async with talk_to(server) as talk:
        monkeypatch.setattr(Registry, "capabilities", property(slow))
        late.start()
        read.wait(5)
        early.start()
        early.join(0.1)  # it ends where nothing holds it back
        go.set()
        early.join(5)
        late.join(5)
        assert talk.service.capabilities.prompts is not None


def test_a_change_outside_of_any_service_notifies_no_session(server: Server) -> None:
    server.remove_tool("first")
    assert server.tools == ()
    with pytest.raises(LookupError, match="first"):
        server.remove_tool("first")


async def test_a_change_after_the_end_of_a_service_is_no_error(server: Server) -> None:
    async with talk_to(server) as talk:
        service = talk.service
    server.remove_tool("first")
    assert len(service.subscriptions) == 0
