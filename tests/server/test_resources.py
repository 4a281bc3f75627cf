"""From a function to a resource: what is listed, what reading gives, and what a URI may not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from naming import naming, unnamed
from talk import Json, talk_to

from trio_mcp import Context, ResourceNotFound, Server
from trio_mcp.server.data.resources import MAX_MATCH_STEPS
from trio_mcp.types import Annotations, BlobResourceContents, Icon, ReadResourceResult, TextResourceContents

MAX_URI = 8 * 1024


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


def offering(uri: str, function: Callable[..., object], **options: Any) -> Server:
    """A server with this one resource."""
    server = Server("tester")
    server.add_resource(uri, function, name="it", **options)
    return server


async def read(server: Server, uri: str) -> Json:
    async with talk_to(server) as talk:
        return await talk.result(talk.ask("resources/read", uri=uri))


async def refusal(server: Server, uri: str) -> Json:
    async with talk_to(server) as talk:
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
    (content,) = (await read(server, "books://prose/7"))["contents"]
    assert content == {"uri": "books://prose/7", "mimeType": "application/json", "text": '{"shelf":"prose","number":7}'}


def quoted(uri: str) -> str:
    """A URI as an error shows it."""
    return repr(uri[:64])[1:-1]


INVALID = ["", "no scheme", "://", "a b://c", "file:", "config://\n", "1x://y", "x" * 70_000]


@pytest.mark.parametrize(
    ("uri", "names"),
    [
        *((uri, [quoted(uri)]) for uri in INVALID),
        ("books://prose/" + "7" * MAX_URI, [str(MAX_URI)]),
        ("books://prose/many", ["number", "books://prose/many"]),
    ],
    ids=[*(uri[:10] for uri in INVALID), "over the limit", "a variable of the wrong type"],
)
async def test_an_invalid_uri_is_rejected_by_name(server: Server, uri: str, names: list[str]) -> None:
    error = await refusal(server, uri)
    assert error["code"] == -32602
    assert [name for name in names if name not in error["message"]] == []


async def test_a_uri_that_costs_too_much_to_compare_with_many_templates_is_refused_with_the_limit() -> None:
    server = Server("tester")
    for number in range(MAX_MATCH_STEPS // MAX_URI):
        server.add_resource("files:///" + "a/" * number + "{+path}", lambda path: path, name=str(number))
    error = await refusal(server, "files:///" + "a/" * 4000 + "..")
    assert error["code"] == -32602
    assert unnamed(error["message"], str(MAX_MATCH_STEPS)) == []
    assert await text_at(server, "files:///" + "a/" * 4000 + "b") == "a/" * 4000 + "b"


async def test_an_answer_is_never_empty() -> None:
    server = offering("nothing://here", lambda: ReadResourceResult(contents=[]))
    assert (await refusal(server, "nothing://here"))["data"] == {"uri": "nothing://here"}


async def test_a_function_may_return_several_contents() -> None:
    several = [TextResourceContents(uri="dir://a", text="a"), BlobResourceContents(uri="dir://b", blob="Yg==")]
    contents = (await read(offering("dir://all", lambda: several), "dir://all"))["contents"]
    assert [content["uri"] for content in contents] == ["dir://a", "dir://b"]


async def test_how_long_it_may_be_kept_is_said_in_milliseconds() -> None:
    async with talk_to(offering("news://today", lambda: "", ttl=1.5, cache_scope="public")) as talk:
        fresh = await talk.result(talk.ask("resources/read", uri="news://today"))
        await talk.initialize()
        legacy = await talk.result(talk.request("resources/read", {"uri": "news://today"}))
    assert (fresh["ttlMs"], fresh["cacheScope"]) == (1500, "public")
    assert legacy.keys().isdisjoint({"ttlMs", "cacheScope"})


async def test_the_state_of_one_resource_is_refused_for_another() -> None:
    async def greeting(word: str, ctx: Context) -> str:
        await ctx.elicit("Your name?", str)
        return word

    async with talk_to(offering("greeting://{word}", greeting)) as talk:
        asked = await talk.round(talk.ask("resources/read", uri="greeting://hello"))
        error = await talk.error(talk.ask("resources/read", uri="greeting://goodbye", requestState=asked.state))
    assert error["code"] == -32602
    assert "requestState" in error["message"]


async def test_reading_has_a_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async def slow() -> str:
        await trio.sleep(60)
        return ""

    error = await refusal(offering("slow://one", slow, timeout=3), "slow://one")
    assert error["code"] == -32000
    assert unnamed(error["message"], "slow://one", "3 seconds") == []


async def test_an_internal_failure_is_reported_by_a_number_only(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> str:
        raise RuntimeError("the password is swordfish")

    error = await refusal(offering("broken://one", broken), "broken://one")
    assert error["code"] == -32603
    assert "swordfish" not in error["message"]
    assert "swordfish" in caplog.text


@pytest.mark.parametrize(
    ("uri", "function", "error", "named"),
    [
        ("users://{user_id}", lambda name: name, TypeError, naming("user_id", "name")),
        ("users://all", lambda name: name, TypeError, "no variables"),
        ("users://all{?page}", lambda page: page, TypeError, naming("page", "default")),
        ("users", lambda: "", ValueError, "is not a URI"),
        ("users://{user_id", lambda user_id: user_id, ValueError, r"users://\{user_id"),
    ],
)
def test_the_parameters_are_the_variables(
    uri: str, function: Callable[..., str], error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        Server("wrong").add_resource(uri, function)


async def test_a_variable_that_a_uri_leaves_out_takes_its_default() -> None:
    server = offering("users://all{?page,size}", lambda page="1", size="10": f"{page}/{size}")
    assert [await text_at(server, uri) for uri in ("users://all", "users://all?page=2")] == ["1/10", "2/10"]


async def text_at(server: Server, uri: str) -> str:
    """The text of its only content."""
    (content,) = (await read(server, uri))["contents"]
    return content["text"]


async def test_a_resource_with_a_fixed_uri_goes_before_a_template() -> None:
    server = offering("a://{x}", lambda x: f"template {x}")
    server.add_resource("a://b", lambda: "itself", name="one")
    assert [await text_at(server, uri) for uri in ("a://b", "a://c")] == ["itself", "template c"]
