"""Tags, scopes and visibility of a tool: who finds it in a list, and who may call it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from peer import text_of
from talk import Legacy, Modern, Talk, accept, play, talk_to
from task_talk import TASK_ERAS, LegacyTask
from wire_terms import INVALID_PARAMS

from trio_mcp import Caller, Context, Mirrored, Server
from trio_mcp.server.access import Restricted
from trio_mcp.session import Peer

ALICE = Caller("alice", ["books:read", "books:write"], {"team": "blue"})
BOB = Caller("bob", ["books:read"])


def is_alice(caller: Caller | None) -> bool:
    return caller is not None and caller.principal == "alice"


@pytest.fixture
def server() -> Server:
    server = Server("library", version="1", list_ttl=60, list_scope="public")

    @server.tool(tags={"admin", "books"}, visible=is_alice)
    def clear() -> str:
        return "cleared"

    @server.tool(scopes=["books:read", "books:write"])
    def donate() -> str:
        return "thank you"

    @server.tool
    def whoami(ctx: Context) -> str:
        caller = ctx.caller
        return "nobody" if caller is None else f"{caller.principal} {sorted(caller.scopes)} {caller.claims}"

    return server


@asynccontextmanager
async def called_by(caller: Caller | None, server: Server, era: type[Legacy]) -> AsyncIterator[Legacy]:
    """A client that is this caller."""
    async with play(server, era) as player:
        become(player.talk, caller)
        if era is Legacy:
            await player.call("whoami")
            await player.result()
        yield player


def become(talk: Talk, caller: Caller | None) -> None:
    talk.peer = Peer() if caller is None else Peer(caller.principal, known_caller=caller)


async def list_of(player: Legacy) -> Any:
    talk = player.talk
    request = talk.ask("tools/list") if isinstance(player, Modern) else talk.request("tools/list")
    return await talk.result(request)


def names(listed: Any) -> list[str]:
    return [tool["name"] for tool in listed["tools"]]


async def test_a_tool_knows_its_caller(server: Server, era: type[Legacy]) -> None:
    async with called_by(ALICE, server, era) as player:
        await player.call("whoami")
        assert await player.text() == "alice ['books:read', 'books:write'] {'team': 'blue'}"
        become(player.talk, None)
        await player.call("whoami")
        assert await player.text() == "nobody"
        player.talk.peer = Peer("carol")
        await player.call("whoami")
        assert await player.text() == "carol [] {}"


@pytest.mark.parametrize("caller", [BOB, None], ids=["too few", "none"])
async def test_a_call_without_the_scopes_is_an_error_result_that_names_them(
    server: Server, era: type[Legacy], caller: Caller | None
) -> None:
    async with called_by(caller, server, era) as player:
        await player.call("donate")
        result = await player.result()
        assert result["isError"]
        assert result["_meta"]["trio-mcp/requiredScopes"] == ["books:read", "books:write"]
        become(player.talk, ALICE)
        await player.call("donate")
        assert text_of(await player.result()) == "thank you"


async def test_tags_are_published(server: Server, era: type[Legacy]) -> None:
    async with called_by(ALICE, server, era) as player:
        clear, donate, _ = (await list_of(player))["tools"]
        assert clear["_meta"]["trio-mcp/tags"] == ["admin", "books"]
        assert "_meta" not in donate


RIGHTS: dict[str, tuple[Any, Caller, int]] = {
    "visible": ({"visible": lambda caller: "books:write" in caller.scopes}, Caller("alice"), -32602),
    "scopes": ({"scopes": ["books:write"]}, Caller("alice"), -32600),
}


@pytest.mark.parametrize(("option", "later", "code"), RIGHTS.values(), ids=RIGHTS)
async def test_a_call_that_waits_is_not_carried_on_by_a_caller_with_fewer_rights(
    option: Any, later: Caller, code: int
) -> None:
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    server = Server("library", version="1")
    server.add_tool(ask, **option)
    async with called_by(ALICE, server, Modern) as player:
        talk, headers = player.talk, {"host": "library.example"}
        talk.peer = Peer("alice", headers, known_caller=ALICE)
        asked = await talk.round(talk.leg("ask"))
        answers = {asked.key: accept(value=True)}
        talk.peer = Peer("alice", headers, known_caller=later)
        assert (await talk.error(asked.leg(answers)))["code"] == code
        talk.peer = Peer("alice", headers, known_caller=ALICE)
        assert await talk.text(asked.leg(answers)) == "accept"


@pytest.mark.parametrize("state", ["abc", "", "a" * 5000])
async def test_no_state_tells_a_hidden_tool_from_one_that_does_not_exist(server: Server, state: str) -> None:
    async with called_by(Caller("bob"), server, Modern) as player:
        talk = player.talk
        errors = [
            await talk.error(talk.ask("tools/call", {"name": name, "arguments": {}, "requestState": state}))
            for name in ("clear", "no_such_tool")
        ]
        assert errors[0] == errors[1]


async def test_the_headers_of_a_connection_are_not_compared_with_arguments() -> None:
    # A WebSocket has the headers of its upgrade; its messages have none.
    server = Server("regions", version="1")

    @server.tool
    def query(region: Annotated[str, Mirrored("Region")]) -> str:
        return region

    async with play(server, Modern) as player:
        player.talk.peer = Peer(headers={"upgrade": "websocket"})
        await player.call("query", {"region": "eu"})
        assert "eu" in str(await player.result())


# functions that fail, and wrong options


def fails(_caller: Caller | None) -> bool:
    raise LookupError("the database is down")


@pytest.mark.parametrize("visible", [fails, lambda _: "yes", lambda _: 1], ids=["fails", "text", "number"])
async def test_a_function_that_fails_hides_its_tool_and_is_logged_once(
    era: type[Legacy], visible: Callable[[Caller | None], bool], caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("library", version="1")
    server.add_tool(lambda: "secret", name="whoami")
    server.add_tool(lambda: "secret", name="clear", visible=visible)
    async with called_by(ALICE, server, era) as player:
        for _ in range(3):
            assert names(await list_of(player)) == ["whoami"]
            await player.call("clear")
            assert (await player.error())["code"] == -32602
    assert len([record for record in caplog.records if "visible failed" in record.getMessage()]) == 1


def test_restricted_items_are_looked_for_once_after_a_change(server: Server) -> None:
    restricted = Restricted(server._registry.tools)  # noqa: SLF001
    assert [tool.name for tool in restricted.hideable()] == ["clear"]
    assert restricted.items() is restricted.items()
    server.remove_tool("clear")
    assert restricted.hideable() == ()


@pytest.mark.parametrize("play_task", TASK_ERAS, ids=lambda kind: kind.era)
async def test_a_task_is_its_principals_with_whatever_scopes_a_later_token_has(play_task: type[LegacyTask]) -> None:
    server = Server("reports", version="1")

    @server.tool(task=True, scopes=["admin"])
    async def report(ctx: Context) -> str:
        assert ctx.caller is not None
        answer = await ctx.elicit("Which year?", int)
        return f"{answer.content} for {sorted(ctx.caller.scopes)}"

    async with talk_to(server) as talk:
        talk.peer = Peer("ada", known_caller=Caller("ada", ["admin"]))
        task = play_task(talk)
        await task.open()
        await task.start("report")
        # The task goes on with the scopes of its call, which no later token takes away.
        talk.peer = Peer("ada", known_caller=Caller("ada"))
        await task.answer(2030)
        assert (await task.result())["content"][0]["text"] == "2030 for ['admin']"
        talk.peer = Peer("ben", known_caller=Caller("ben", ["admin"]))
        assert (await task.reply(task.about("tasks/get")))["error"]["code"] == INVALID_PARAMS
