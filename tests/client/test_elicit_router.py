"""The elicit router: which handler answers a form, and the check that none is missing."""

from __future__ import annotations

from typing import Any

import pytest
from naming import naming
from scripted import as_modern, asking, conversation, said

from trio_mcp import Client, Context, Elicit, ElicitRouter, Server, accept, decline
from trio_mcp.errors import PeerError
from trio_mcp.types import ElicitRequestFormParams, ElicitResult, Tool

NAME, AGE = Elicit("name", str), Elicit("age", int)


@pytest.fixture
def server() -> Server:
    server = Server("people")

    @server.tool(elicits=[NAME, AGE])
    async def register(ctx: Context) -> str:
        first = await ctx.elicit("Who?", NAME)
        age = await ctx.elicit("How old?", AGE)
        again = await ctx.elicit("Who, again?", NAME)
        return f"{first.action} {age.action} {again.action}"

    @server.tool
    async def chat(ctx: Context) -> str:
        return (await ctx.elicit("Hello?", str)).action

    @server.prompt(elicits=[NAME])
    async def letter(ctx: Context) -> str:
        return (await ctx.elicit("To whom?", NAME)).action

    return server


def accept_value(asked: ElicitRequestFormParams) -> ElicitResult:
    return accept(value=1 if "old" in asked.message else "Ann")


async def test_each_question_goes_to_its_handler_whenever_it_is_asked(server: Server, mode: str) -> None:
    router, asked = ElicitRouter(), list[str]()

    @router.on("register", "name")
    async def tell_name(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(f"name: {params.message}")
        return accept(value="Ann")

    @router.on("register", "age")
    def tell_age(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(f"age: {params.message}")
        return accept(value=33)

    async with Client.connect(server, mode=mode, on_elicit=router) as client:
        assert (await client.call_tool("register")).text == "accept accept accept"
    assert asked == ["name: Who?", "age: How old?", "name: Who, again?"]


async def test_a_tool_and_a_declared_question_stand_for_their_names(server: Server, mode: str) -> None:
    router = ElicitRouter()
    async with Client.connect(server, mode=mode, on_elicit=router) as client:
        (register,) = [tool for tool in await client.list_tools() if tool.name == "register"]
        router.on(register, AGE)(accept_value)
        router.on(server.tools[0], NAME)(accept_value)
        assert (await client.call_tool("register")).text == "accept accept accept"


@pytest.mark.parametrize("tool", [len, 3, None])
def test_what_has_no_name_is_no_tool(tool: Any) -> None:
    with pytest.raises(TypeError, match="tool"):
        ElicitRouter().on(tool, "name")


async def test_a_prompt_is_an_asker_too(server: Server, mode: str) -> None:
    router = ElicitRouter()
    router.on("letter", "name")(accept_value)
    async with Client.connect(server, mode=mode, on_elicit=router) as client:
        prompt = await client.get_prompt("letter")
    assert prompt.messages[0].content.text == "accept"


async def test_a_question_without_a_handler_is_declined(server: Server, mode: str) -> None:
    router = ElicitRouter()
    router.on("register", "age")(accept_value)
    async with Client.connect(server, mode=mode, on_elicit=router) as client:
        assert (await client.call_tool("register")).text == "decline accept decline"
        assert (await client.call_tool("chat")).text == "decline"


async def test_the_default_answers_what_has_no_handler(server: Server, mode: str) -> None:
    router = ElicitRouter(default=accept_value)
    router.on("register", "age")(lambda _asked: decline())
    async with Client.connect(server, mode=mode, on_elicit=router) as client:
        assert (await client.call_tool("register")).text == "accept decline accept"
        assert (await client.call_tool("chat")).text == "accept"


async def test_what_a_handler_raises_is_an_error_and_no_choice_of_the_user(server: Server, mode: str) -> None:
    class Broken(Exception):
        pass

    def broken(_asked: object) -> ElicitResult:
        raise Broken

    router = ElicitRouter(default=broken)
    async with Client.connect(server, mode=mode, on_elicit=router) as client:
        if mode == "modern":
            with pytest.raises(Broken):
                await client.call_tool("chat")
        else:
            result = await client.call_tool("chat")
            assert result.is_error
            assert "cancel" not in result.text


async def test_an_error_response_of_a_handler_reaches_a_legacy_tool(server: Server) -> None:
    def away(_asked: object) -> ElicitResult:
        raise PeerError(-1, "the user is away")

    async with Client.connect(server, mode="legacy", on_elicit=ElicitRouter(default=away)) as client:
        assert "the user is away" in (await client.call_tool("chat")).text


async def test_the_check_passes_if_every_question_has_a_handler(server: Server, mode: str) -> None:
    router = ElicitRouter()
    for name, key in (("register", "name"), ("register", "age"), ("letter", "name"), ("elsewhere", "other")):
        router.on(name, key)(accept_value)
    async with Client.connect(server, mode=mode, on_elicit=router) as client:
        router.check(await client.list_tools())
        router.check(await client.list_prompts())


async def test_the_check_names_every_question_without_a_handler(server: Server, mode: str) -> None:
    router = ElicitRouter()
    router.on("register", "age")(accept_value)
    async with Client.connect(server, mode=mode, on_elicit=router) as client:
        tools, prompts = await client.list_tools(), await client.list_prompts()
    assert router.missing([*tools, *prompts]) == [("register", "name"), ("letter", "name")]
    with pytest.raises(LookupError, match=naming("register.name", "letter.name")):
        router.check([*tools, *prompts])


async def test_the_check_names_a_handler_of_a_question_that_no_tool_declares(server: Server) -> None:
    router = ElicitRouter()
    for key in ("name", "age", "adress"):
        router.on("register", key)(accept_value)
    async with Client.connect(server, on_elicit=router) as client:
        with pytest.raises(LookupError, match="adress"):
            router.check(await client.list_tools())


def test_a_listing_of_another_kind_declares_nothing() -> None:
    odd = Tool.model_validate({"name": "odd", "inputSchema": {}, "_meta": {"trio-mcp/elicits": ["name"]}})
    assert ElicitRouter().missing([odd]) == []


def test_a_question_has_one_handler() -> None:
    router = ElicitRouter()
    router.on("register", "name")(accept_value)
    with pytest.raises(ValueError, match=naming("register.name")):
        router.on("register", "name")(accept_value)


@pytest.mark.parametrize("wrong", [lambda: ElicitRouter(default=3), lambda: ElicitRouter().on("a", 3)])
def test_an_invalid_handler_or_key_is_a_type_error(wrong: object) -> None:
    with pytest.raises(TypeError):
        wrong()
    with pytest.raises(TypeError):
        ElicitRouter().on("a", "b")(3)


async def test_a_round_of_another_server_is_answered_by_its_keys() -> None:
    router = ElicitRouter()
    router.on("work", "a")(lambda _asked: accept(a=1))
    async with conversation(as_modern, on_elicit=router) as (client, wire, start):
        call = start(client.call_tool, "work")
        await wire.reply("tools/call", asking("a", "b", state="s"))
        second = await wire.reply("tools/call", said("done"))
        await call.result()
    answers = second["params"]["inputResponses"]
    assert (answers["a"]["action"], answers["b"]["action"]) == ("accept", "decline")
