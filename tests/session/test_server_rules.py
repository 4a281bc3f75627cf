"""Rules of the checklist that hold for every request, whatever is asked."""

from __future__ import annotations

import json

import pytest
import trio
from peer import hello
from talk import Json, Talk, log_level, offering, talk_to
from trio.testing import wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY, MODERN, REVISIONS, SERVER_INFO

from trio_mcp.server import Context, Server

NOTIFICATIONS: list[Json] = [
    {"method": "notifications/initialized", "params": {}},
    {"method": "notifications/unheard_of", "params": {"a": 1}},
    {"method": "notifications/cancelled", "params": {"requestId": {}}},
    {"method": "notifications/progress", "params": {"progress": "much"}},
    {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}},
    {"method": "no/such/method"},
]


@pytest.fixture
def server() -> Server:
    made = Server("tester", version="1", instructions="Add.")

    @made.tool
    async def add(a: int) -> int:
        return a

    @made.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("How many?", int)).action

    return made


# notifications


@pytest.mark.parametrize("notification", NOTIFICATIONS, ids=lambda each: each["method"])
@pytest.mark.parametrize("opened", [False, True], ids=["before initialize", "after"])
async def test_a_notification_is_never_answered_whatever_is_wrong_with_it(
    server: Server, notification: Json, opened: bool
) -> None:
    async with talk_to(server) as talk:
        if opened:
            await talk.initialize()
        talk.send(notification)
        await talk.silence()
        assert talk.service.supervisor.statistics().started == 0
        assert await talk.result(talk.request("ping")) == {}


async def test_a_server_says_nothing_by_itself_before_the_session_is_open(server: Server) -> None:
    async with talk_to(server) as talk:
        await talk.silence()
        await talk.result(talk.request("initialize", hello()))
        await talk.silence()


# what a request says of itself


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
async def test_foreign_members_of_meta_reach_the_tool_and_change_nothing(modern: bool) -> None:
    async def look(ctx: Context) -> dict[str, object]:
        return dict(ctx.request.meta)

    foreign = {"com.example/trace": {"id": 1}, "io.modelcontextprotocol/unheard-of": True, "traceparent": "00-0-0-00"}
    async with talk_to(offering(look)) as talk:
        if modern:
            call = talk.leg("look", meta=foreign)
        else:
            await talk.initialize()
            call = talk.call("look", meta=foreign)
        seen = json.loads(await talk.text(call))
    assert foreign.items() <= seen.items()


async def test_answers_and_a_state_mean_nothing_where_there_are_no_rounds(server: Server) -> None:
    carried = {"inputResponses": {"elicit-1": {"action": "accept"}}, "requestState": "made up"}
    async with talk_to(server) as talk:
        for method in ("tools/list", "server/discover"):
            assert await talk.result(talk.ask(method, **carried)) == await talk.result(talk.ask(method))


# what a server says of itself


def full() -> Server:
    """A server with something of everything."""
    made = Server("full")
    made.add_tool(lambda: "", name="tool")
    made.add_prompt(lambda language: language, name="prompt")
    made.add_resource("config://app", lambda: "")
    made.complete(prompt="prompt", argument="language")(lambda value: [])
    return made


async def test_a_server_declares_what_it_has() -> None:
    expected: Json = {
        "logging": {},
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "completions": {},
    }
    async with talk_to(full()) as talk:
        expected["experimental"] = {IDEMPOTENCY: {"instance": talk.service.calls.node}}
        assert (await talk.initialize())["capabilities"] == expected
        assert (await talk.result(talk.ask("server/discover")))["capabilities"] == expected


async def test_a_server_without_tools_declares_them_so_that_a_later_one_is_found() -> None:
    server = Server("bare", version="1")

    async def add(a: int) -> int:
        return a

    async with talk_to(server) as talk:
        # A client of the legacy era reads the declaration once.
        assert (await talk.initialize())["capabilities"]["tools"] == {"listChanged": True}
        assert (await talk.result(talk.ask("tools/list")))["tools"] == []
        server.add_tool(add)
        assert [each["name"] for each in (await talk.result(talk.ask("tools/list")))["tools"]] == ["add"]


async def test_a_copy_with_one_tool_more_declares_nothing_for_the_original(server: Server) -> None:
    async def work() -> str:
        return "done"

    copied = server.copy(tools=[Server("other").add_tool(work, task=True)])
    async with talk_to(server) as original, talk_to(copied) as copy:
        for announces in (server, copied):
            announces.resource_updated("x://x")
            declared = [(await talk.result(talk.ask("server/discover")))["capabilities"] for talk in (original, copy)]
            assert ["extensions" in each for each in declared] == [False, True]


async def test_discover_tells_what_a_client_needs_and_no_more(server: Server) -> None:
    async with talk_to(server) as talk:
        result = await talk.result(talk.ask("server/discover"))
    assert result["supportedVersions"] == list(REVISIONS)
    assert result["instructions"] == "Add."
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")
    assert "serverInfo" not in result


async def test_every_modern_result_says_its_type_and_who_answers(server: Server) -> None:
    async with talk_to(server) as talk:
        results = [
            await talk.result(talk.ask("server/discover")),
            await talk.result(talk.ask("tools/list")),
            await talk.result(talk.ask("tools/call", name="add", arguments={"a": 1})),
            await talk.result(talk.ask("tools/call", name="add", arguments={"a": "one"})),
            await talk.result(talk.ask("tools/call", name="ask")),
        ]
    assert [result["resultType"] for result in results] == ["complete"] * 4 + ["input_required"]
    for result in results:
        assert result["_meta"][SERVER_INFO] == {"name": "tester", "version": "1"}


async def test_a_round_has_no_hints_for_caches(server: Server) -> None:
    async with talk_to(server) as talk:
        asked = await talk.result(talk.ask("tools/call", name="ask"))
    assert asked["resultType"] == "input_required"
    assert asked.keys().isdisjoint({"ttlMs", "cacheScope"})


@pytest.mark.parametrize("version", REVISIONS)
async def test_the_lists_are_the_same_for_everybody_and_in_the_same_order(server: Server, version: str) -> None:
    listed: list[list[Json]] = []
    async with talk_to(server) as first:
        for talk in (first, Talk(first.service, principal="somebody else")):
            for _ in range(2):
                listed.append(await tools(talk, version))
                if version == MODERN:
                    await talk.result(talk.leg("add", {"a": 1}))
    assert [tool["name"] for tool in listed[0]] == ["add", "ask"]
    assert all(each == listed[0] for each in listed)


async def tools(talk: Talk, version: str) -> list[Json]:
    if version == MODERN:
        return (await talk.result(talk.ask("tools/list")))["tools"]
    if not talk.session.initialized:
        await talk.initialize(version)
    return (await talk.result(talk.request("tools/list")))["tools"]


# calls that talk


async def test_a_call_that_only_talks_ends_without_a_listener_and_blocks_no_other() -> None:
    """Talking is a checkpoint, also where it says nothing: else such a call would stop the whole server."""
    said = 0

    async def chatter(ctx: Context) -> None:
        nonlocal said
        for said in range(100_000):
            await ctx.log("info", said)

    async with talk_to(offering(chatter)) as talk:
        request = talk.leg("chatter", meta=log_level("info"))
        while said < 5:  # it talks, and there is room for more
            await trio.lowlevel.checkpoint()
        talk.session.disconnect(talk.listeners[request])
        await wait_all_tasks_blocked()
        talk.outbox.take_nowait()
        assert await talk.result(talk.ask("tools/list"))
        assert talk.service.supervisor.actors == ()
    assert said < 1000
