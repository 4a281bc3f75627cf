"""From a function to a resource: what is listed, what reading gives, and what a URI may not do."""

from __future__ import annotations

import pytest
import trio
from naming import naming, unnamed
from talk import Json, Talk, talk_to

from trio_mcp import Context, ResourceNotFound, Server
from trio_mcp.types import Annotations, BlobResourceContents, Icon, ReadResourceResult, TextResourceContents


@pytest.fixture
def server() -> Server:
    server = Server("library", version="1")

    @server.resource("config://app", title="Settings", mime_type="application/json", size=12)
    def settings() -> str:
        """How it is set up."""
        return '{"dark": true}'

    @server.resource("logo://app", icons=[Icon(src="https://example.com/i.png")], annotations=Annotations(priority=1))
    async def logo() -> bytes:
        return b"\x89PNG"

    @server.resource("books://{shelf}/{number}")
    async def book(shelf: str, number: int) -> dict[str, object]:
        """A book by its place."""
        if number > 9:
            raise ResourceNotFound(f"books://{shelf}/{number}")
        return {"shelf": shelf, "number": number}

    return server


async def read(talk: Talk, uri: str) -> Json:
    return await talk.result(talk.ask("resources/read", uri=uri))


async def refusal(talk: Talk, uri: str) -> Json:
    return await talk.error(talk.ask("resources/read", uri=uri))


async def test_what_a_resource_says_of_itself_is_listed(server: Server) -> None:
    async with talk_to(server) as talk:
        listed = await talk.result(talk.ask("resources/list"))
    assert listed["resources"] == [
        {
            "uri": "config://app",
            "name": "settings",
            "title": "Settings",
            "description": "How it is set up.",
            "mimeType": "application/json",
            "size": 12,
        },
        {
            "uri": "logo://app",
            "name": "logo",
            "icons": [{"src": "https://example.com/i.png"}],
            "annotations": {"priority": 1},
        },
    ]


async def test_a_template_is_listed_apart(server: Server) -> None:
    async with talk_to(server) as talk:
        listed = await talk.result(talk.ask("resources/templates/list"))
    assert listed["resourceTemplates"] == [
        {"uriTemplate": "books://{shelf}/{number}", "name": "book", "description": "A book by its place."}
    ]


async def test_the_variables_of_a_template_are_the_arguments_by_their_types(server: Server) -> None:
    async with talk_to(server) as talk:
        (content,) = (await read(talk, "books://prose/7"))["contents"]
    assert content == {"uri": "books://prose/7", "mimeType": "application/json", "text": '{"shelf":"prose","number":7}'}


@pytest.mark.parametrize("uri", ["", "no scheme", "://", "a b://c", "file:", "config://\n", "1x://y", "x" * 70_000])
async def test_what_is_no_uri_is_refused_and_named(server: Server, uri: str) -> None:
    async with talk_to(server) as talk:
        error = await refusal(talk, uri)
    assert error["code"] == -32602
    assert repr(uri[:64])[1:-1] in error["message"] or repr(uri[:64]) in error["message"]


async def test_a_variable_of_the_wrong_type_is_refused_and_named(server: Server) -> None:
    async with talk_to(server) as talk:
        error = await refusal(talk, "books://prose/many")
    assert error["code"] == -32602
    assert "number" in error["message"]
    assert "books://prose/many" in error["message"]


async def test_an_answer_is_never_empty() -> None:
    server = Server("empty")

    @server.resource("nothing://here")
    async def nothing() -> ReadResourceResult:
        return ReadResourceResult(contents=[])

    async with talk_to(server) as talk:
        assert (await refusal(talk, "nothing://here"))["data"] == {"uri": "nothing://here"}


async def test_a_function_may_return_several_contents() -> None:
    server = Server("many")

    @server.resource("dir://all")
    async def everything() -> list[TextResourceContents | BlobResourceContents]:
        return [TextResourceContents(uri="dir://a", text="a"), BlobResourceContents(uri="dir://b", blob="Yg==")]

    async with talk_to(server) as talk:
        contents = (await read(talk, "dir://all"))["contents"]
    assert [content["uri"] for content in contents] == ["dir://a", "dir://b"]


async def test_how_long_it_may_be_kept_is_said_in_milliseconds() -> None:
    server = Server("cached")

    @server.resource("news://today", ttl=1.5, cache_scope="public")
    async def news() -> str:
        return "Nothing new."

    async with talk_to(server) as talk:
        fresh = await read(talk, "news://today")
        await talk.initialize()
        legacy = await talk.result(talk.request("resources/read", {"uri": "news://today"}))
    assert (fresh["ttlMs"], fresh["cacheScope"]) == (1500, "public")
    assert "ttlMs" not in legacy
    assert "cacheScope" not in legacy


async def test_the_state_of_one_resource_is_refused_for_another() -> None:
    server = Server("asking")

    @server.resource("greeting://{word}")
    async def greeting(word: str, ctx: Context) -> str:
        await ctx.elicit("Your name?", str)
        return word

    async with talk_to(server) as talk:
        asked = await talk.round(talk.ask("resources/read", uri="greeting://hello"))
        error = await talk.error(talk.ask("resources/read", uri="greeting://goodbye", requestState=asked.state))
    assert error["code"] == -32602
    assert "requestState" in error["message"]


async def test_reading_has_a_deadline(autojump_clock: trio.testing.MockClock) -> None:
    server = Server("slow")

    @server.resource("slow://one", timeout=3)
    async def slow() -> str:
        await trio.sleep(60)
        return ""

    async with talk_to(server) as talk:
        error = await refusal(talk, "slow://one")
    assert error["code"] == -32000
    assert unnamed(error["message"], "slow://one", "3 seconds") == []


async def test_what_goes_wrong_inside_is_told_by_a_number_only(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @server.resource("broken://one")
    async def broken() -> str:
        raise RuntimeError("the password is swordfish")

    async with talk_to(server) as talk:
        error = await refusal(talk, "broken://one")
    assert error["code"] == -32603
    assert "swordfish" not in error["message"]
    assert "swordfish" in caplog.text


def test_the_parameters_are_the_variables() -> None:
    server = Server("wrong")
    with pytest.raises(TypeError, match=naming("user_id", "name")):
        server.add_resource("users://{user_id}", lambda name: name)
    with pytest.raises(TypeError, match="no variables"):
        server.add_resource("users://all", lambda name: name)
    with pytest.raises(TypeError, match=naming("page", "default")):
        server.add_resource("users://all{?page}", lambda page: page)
    with pytest.raises(ValueError, match="is not a URI"):
        server.add_resource("users", lambda: "")
    with pytest.raises(ValueError, match=r"users://\{user_id"):
        server.add_resource("users://{user_id", lambda user_id: user_id)


async def test_a_variable_that_a_uri_leaves_out_takes_its_default() -> None:
    server = Server("query")
    server.add_resource("users://all{?page,size}", lambda page="1", size="10": f"{page}/{size}", name="users")
    async with talk_to(server) as talk:
        assert (await read(talk, "users://all"))["contents"][0]["text"] == "1/10"
        assert (await read(talk, "users://all?page=2"))["contents"][0]["text"] == "2/10"


def test_a_uri_is_taken_once(server: Server) -> None:
    with pytest.raises(ValueError, match="config://app"):
        server.add_resource("config://app", lambda: "")


async def test_a_resource_of_its_own_goes_before_a_template() -> None:
    server = Server("order")
    server.add_resource("a://{x}", lambda x: f"template {x}", name="any")
    server.add_resource("a://b", lambda: "itself", name="one")
    async with talk_to(server) as talk:
        assert (await read(talk, "a://b"))["contents"][0]["text"] == "itself"
        assert (await read(talk, "a://c"))["contents"][0]["text"] == "template c"


async def test_a_server_without_resources_offers_no_method_of_theirs() -> None:
    async with talk_to(Server("bare")) as talk:
        discovered = await talk.result(talk.ask("server/discover"))
        error = await talk.error(talk.ask("resources/list"))
    assert "resources" not in discovered["capabilities"]
    assert error["code"] == -32601
