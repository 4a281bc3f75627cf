"""Suggestions for arguments: who is asked, what is cut, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from talk import Json, Talk, talk_to

from trio_mcp import Server
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


def asking(talk: Talk, ref: Json, name: str, value: str = "", **more: object) -> Any:
    return talk.ask("completion/complete", ref=ref, argument={"name": name, "value": value}, **more)


async def complete(server: Server, ref: Json, name: str, value: str = "", **more: object) -> Json:
    async with talk_to(server) as talk:
        return (await talk.result(asking(talk, ref, name, value, **more)))["completion"]


SETTLED = {"context": {"arguments": {"language": "perl"}}}
FAMILY = {"type": "ref/resource", "uri": "docs://perl/index"}


@pytest.mark.parametrize(
    ("ref", "name", "value", "more", "found"),
    [
        (PROMPT, "language", "p", {}, {"values": ["pascal", "perl", "python"], "total": 3, "hasMore": False}),
        (TEMPLATE, "page", "in", SETTLED, {"values": ["perl-in"], "total": 7, "hasMore": True}),
        (FAMILY, "page", "x", {}, {"values": ["?-x"], "total": 7, "hasMore": True}),
        (PROMPT, "framework", "", {}, {"values": []}),
    ],
    ids=["what was typed", "what was settled before", "a uri of the family", "no completion"],
)
async def test_a_function_suggests_values_for_what_was_typed(
    server: Server, ref: Json, name: str, value: str, more: Json, found: Json
) -> None:
    assert await complete(server, ref, name, value, **more) == found


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
        ({"type": "ref/tool", "name": "x"}, "y", ""),
        (PROMPT, "colour", "colour"),
        (TEMPLATE, "colour", "colour"),
    ],
)
async def test_what_is_unknown_is_refused_by_its_name(server: Server, ref: Json, name: str, named: str) -> None:
    async with talk_to(server) as talk:
        error = await talk.error(asking(talk, ref, name))
    assert error["code"] == -32602
    assert named in error["message"]


async def test_the_oldest_revision_needs_no_capability_for_it(server: Server) -> None:
    async with talk_to(server) as talk:
        opened = await talk.initialize("2024-11-05")
        asked = talk.request("completion/complete", {"ref": PROMPT, "argument": {"name": "language", "value": "r"}})
        assert (await talk.result(asked))["completion"]["values"] == ["rust"]
    assert "completions" not in opened["capabilities"]


@pytest.mark.parametrize(
    ("options", "function", "error", "named"),
    [
        ({"prompt": "revue", "argument": "x"}, lambda value: [], LookupError, "revue"),
        ({"resource": "other://{x}", "argument": "x"}, lambda value: [], LookupError, "other"),
        ({"prompt": "review", "argument": "colour"}, lambda value: [], LookupError, "colour"),
        ({"prompt": "review", "argument": "language"}, lambda value: [], ValueError, "already"),
        ({"prompt": "review", "argument": "framework"}, lambda text: [], TypeError, "`value`"),
        ({"argument": "x"}, lambda value: [], TypeError, "either"),
    ],
)
def test_what_is_completed_has_to_be_offered_first(
    server: Server, options: Json, function: object, error: type[Exception], named: str
) -> None:
    with pytest.raises(error, match=named):
        server.complete(**options)(function)


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
