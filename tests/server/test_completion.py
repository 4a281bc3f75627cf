"""Suggestions for arguments: who is asked, what is cut, what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from talk import Json, Talk, talk_to

from trio_mcp import Server
from trio_mcp.protocol.jsonrpc import RequestId
from trio_mcp.types import Completion

LANGUAGES = ["pascal", "perl", "python", "rust"]


@pytest.fixture
def server() -> Server:
    server = Server("helper")
    server.add_prompt(lambda language, framework="": language, name="review")
    server.add_resource("docs://{language}/{page}", lambda language, page: page, name="docs")

    @server.complete(prompt="review", argument="language")
    async def languages(value: str) -> list[str]:
        return [name for name in LANGUAGES if name.startswith(value)]

    @server.complete(resource="docs://{language}/{page}", argument="page")
    def pages(value: str, arguments: Mapping[str, str]) -> Completion:
        return Completion(values=[f"{arguments.get('language', '?')}-{value}"], total=7, has_more=True)

    return server


PROMPT = {"type": "ref/prompt", "name": "review"}
TEMPLATE = {"type": "ref/resource", "uri": "docs://{language}/{page}"}


def asking(talk: Talk, ref: Json, name: str, value: str = "", **more: object) -> RequestId:
    return talk.ask("completion/complete", ref=ref, argument={"name": name, "value": value}, **more)


async def complete(server: Server, ref: Json, name: str, value: str = "", **more: object) -> Json:
    async with talk_to(server) as talk:
        return (await talk.result(asking(talk, ref, name, value, **more)))["completion"]


async def refusal(server: Server, ref: Json, name: str) -> Json:
    async with talk_to(server) as talk:
        return await talk.error(asking(talk, ref, name))


async def test_a_function_suggests_values_for_what_was_typed(server: Server) -> None:
    found = await complete(server, PROMPT, "language", "p")
    assert found == {"values": ["pascal", "perl", "python"], "total": 3, "hasMore": False}


async def test_it_is_given_what_was_settled_before(server: Server) -> None:
    found = await complete(server, TEMPLATE, "page", "in", context={"arguments": {"language": "perl"}})
    assert found == {"values": ["perl-in"], "total": 7, "hasMore": True}


async def test_a_uri_of_the_family_stands_for_its_template(server: Server) -> None:
    found = await complete(server, {"type": "ref/resource", "uri": "docs://perl/index"}, "page", "x")
    assert found["values"] == ["?-x"]


async def test_an_argument_without_a_completion_has_no_suggestions(server: Server) -> None:
    assert await complete(server, PROMPT, "framework") == {"values": []}


async def test_one_answer_has_a_hundred_values_at_most(server: Server) -> None:
    @server.complete(prompt="review", argument="framework")
    async def frameworks(value: str) -> list[str]:
        return [f"{value}{number}" for number in range(101)]

    found = await complete(server, PROMPT, "framework", "f")
    assert len(found["values"]) == 100
    assert (found["total"], found["hasMore"]) == (101, True)


@pytest.mark.parametrize(
    ("ref", "name", "named"),
    [
        ({"type": "ref/prompt", "name": "revue"}, "language", "revue"),
        ({"type": "ref/resource", "uri": "other://{x}"}, "x", "other://{x}"),
        (PROMPT, "colour", "colour"),
        (TEMPLATE, "colour", "colour"),
    ],
)
async def test_what_is_unknown_is_refused_by_its_name(server: Server, ref: Json, name: str, named: str) -> None:
    error = await refusal(server, ref, name)
    assert error["code"] == -32602
    assert named in error["message"]


async def test_a_reference_of_another_kind_is_refused(server: Server) -> None:
    assert (await refusal(server, {"type": "ref/tool", "name": "x"}, "y"))["code"] == -32602


async def test_the_oldest_revision_needs_no_capability_for_it(server: Server) -> None:
    async with talk_to(server) as talk:
        opened = await talk.initialize("2024-11-05")
        asked = talk.request("completion/complete", {"ref": PROMPT, "argument": {"name": "language", "value": "r"}})
        assert (await talk.result(asked))["completion"]["values"] == ["rust"]
    assert "completions" not in opened["capabilities"]


def test_what_is_completed_has_to_be_offered_first(server: Server) -> None:
    with pytest.raises(LookupError, match="revue"):
        server.complete(prompt="revue", argument="x")(lambda value: [])
    with pytest.raises(LookupError, match="other"):
        server.complete(resource="other://{x}", argument="x")(lambda value: [])
    with pytest.raises(LookupError, match="colour"):
        server.complete(prompt="review", argument="colour")(lambda value: [])
    with pytest.raises(ValueError, match="already"):
        server.complete(prompt="review", argument="language")(lambda value: [])
    with pytest.raises(TypeError, match="`value`"):
        server.complete(prompt="review", argument="framework")(lambda text: [])
    with pytest.raises(TypeError, match="either"):
        server.complete(argument="x")


async def test_a_completion_that_is_added_while_serving_is_declared_and_asked() -> None:
    server = Server("grows")
    server.add_prompt(lambda language: language, name="review")
    async with talk_to(server) as talk:
        assert "completions" not in (await talk.result(talk.ask("server/discover")))["capabilities"]
        assert (await talk.error(asking(talk, PROMPT, "language")))["code"] == -32601
        server.complete(prompt="review", argument="language")(lambda value: [value + "thon"])
        assert (await talk.result(talk.ask("server/discover")))["capabilities"]["completions"] == {}
        assert (await talk.result(asking(talk, PROMPT, "language", "py")))["completion"]["values"] == ["python"]


async def test_what_is_removed_takes_its_completions_along(server: Server) -> None:
    server.remove_prompt("review")
    server.add_prompt(lambda language: language, name="review")
    server.remove_resource(TEMPLATE["uri"])
    server.add_resource(TEMPLATE["uri"], lambda language, page: page)
    assert (await complete(server, PROMPT, "language", "p"))["values"] == []
    assert (await complete(server, TEMPLATE, "page", "x"))["values"] == []
    server.complete(prompt="review", argument="language")(lambda value: ["another"])
    assert (await complete(server, PROMPT, "language", "p"))["values"] == ["another"]
