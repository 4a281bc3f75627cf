"""Listings: pages and their cursors, the order, what may be kept, and what a client is not shown."""

from __future__ import annotations

import pytest
from talk import Json, Talk, talk_to

from trio_mcp import Server, ServiceOptions
from trio_mcp.session import KeyRing

LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
KEYS = KeyRing([bytes(32)])


def filled(count: int = 5, **options: object) -> Server:
    """A server with `count` of everything."""
    server = Server("shop", **options)
    for number in range(count):
        server.add_tool(lambda: "", name=f"tool{number}")
        server.add_prompt(lambda: "", name=f"prompt{number}")
        server.add_resource(f"item://{number}", lambda: "", name=f"item{number}")
        server.add_resource(f"item://{number}/{{part}}", lambda part: part, name=f"part{number}")
    return server


async def page(talk: Talk, method: str, cursor: str | None = None, *, legacy: bool = False) -> Json:
    params = {} if cursor is None else {"cursor": cursor}
    return await talk.result(talk.request(method, params) if legacy else talk.ask(method, **params))


async def names(talk: Talk, method: str = "tools/list", *, legacy: bool = False) -> list[list[str]]:
    """The names on each page."""
    pages, cursor = [], None
    while True:
        found = await page(talk, method, cursor, legacy=legacy)
        pages.append([item["name"] for item in found[LISTS[method]]])
        cursor = found.get("nextCursor")
        if cursor is None:
            return pages


@pytest.mark.parametrize("method", LISTS)
async def test_pages_hold_everything_once_in_the_order_of_registration(method: str) -> None:
    async with talk_to(filled(page_size=2)) as talk:
        pages = await names(talk, method)
        again = await names(talk, method)
    async with talk_to(filled(4, page_size=2)) as talk:
        assert [len(found) for found in await names(talk, method)] == [2, 2]  # a last page that is full
    assert [len(found) for found in pages] == [2, 2, 1]
    assert [int(name[-1]) for found in pages for name in found] == [0, 1, 2, 3, 4]
    assert again == pages


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("cursor", ["", "1", "Q" * 55, "not a cursor\n"])
async def test_a_cursor_that_was_not_issued_here_is_refused_by_its_name(method: str, cursor: str) -> None:
    async with talk_to(filled()) as talk:
        error = await talk.error(talk.ask(method, cursor=cursor))
    assert error["code"] == -32602
    assert repr(cursor)[1:-1][:20] in error["message"]


async def test_a_cursor_of_another_list_is_refused() -> None:
    async with talk_to(filled(page_size=2)) as talk:
        cursor = (await page(talk, "tools/list"))["nextCursor"]
        error = await talk.error(talk.ask("prompts/list", cursor=cursor))
    assert error["code"] == -32602


async def test_nodes_that_share_keys_go_on_with_each_others_cursors() -> None:
    options = ServiceOptions(keys=KEYS)
    async with (
        talk_to(filled(page_size=2, options=options)) as one,
        talk_to(filled(page_size=2, options=options)) as two,
    ):
        cursor = (await page(one, "tools/list"))["nextCursor"]
        assert [tool["name"] for tool in (await page(two, "tools/list", cursor))["tools"]] == ["tool2", "tool3"]


async def test_a_list_that_changes_between_pages_skips_and_repeats_nothing_that_stayed() -> None:
    server = filled(6, page_size=2)
    async with talk_to(server) as talk:
        first = await page(talk, "tools/list")
        server.remove_tool("tool1")  # the last of the page that was read
        server.remove_tool("tool2")
        server.add_tool(lambda: "", name="new9")
        second = await page(talk, "tools/list", first["nextCursor"])
        third = await page(talk, "tools/list", second["nextCursor"])
    assert [tool["name"] for tool in second["tools"] + third["tools"]] == ["tool3", "tool4", "tool5", "new9"]


@pytest.mark.parametrize("method", LISTS)
async def test_modern_pages_say_how_long_and_for_whom_they_may_be_kept(method: str) -> None:
    async with talk_to(filled(page_size=2, list_ttl=0.25, list_scope="public")) as talk:
        first = await page(talk, method)
        second = await page(talk, method, first["nextCursor"])
        await talk.initialize()
        legacy = await talk.result(talk.request(method))
    assert [(found["ttlMs"], found["cacheScope"]) for found in (first, second)] == [(250, "public")] * 2
    assert not {"ttlMs", "cacheScope", "resultType"} & legacy.keys()


async def test_by_default_nothing_may_be_kept() -> None:
    async with talk_to(filled()) as talk:
        found = await page(talk, "tools/list")
    assert (found["ttlMs"], found["cacheScope"]) == (0, "private")


# what a client is not shown


def picky() -> Server:
    server = Server("picky", page_size=2)
    server.add_tool(lambda: "a", name="anybody")
    server.add_tool(lambda: "s", name="samplers", requires={"sampling"})
    server.add_tool(lambda: "f", name="forms", requires={"elicitation.form", "sampling"})
    server.add_tool(lambda: "z", name="last")
    return server


@pytest.mark.parametrize(
    ("capabilities", "shown"),
    [
        ({}, [["anybody", "last"]]),
        ({"sampling": {}}, [["anybody", "samplers"], ["last"]]),
        ({"sampling": {}, "elicitation": {}}, [["anybody", "samplers"], ["forms", "last"]]),
        ({"sampling": {}, "elicitation": {"url": {}}}, [["anybody", "samplers"], ["last"]]),
    ],
)
async def test_a_session_is_shown_what_its_client_can_call(capabilities: Json, shown: list[list[str]]) -> None:
    async with talk_to(picky()) as talk:
        await talk.initialize(capabilities=capabilities)
        assert await names(talk, legacy=True) == shown


async def test_sessions_on_one_server_do_not_see_each_others_lists() -> None:
    async with talk_to(picky()) as talk:
        other = Talk(talk.service)
        await talk.initialize(capabilities={"sampling": {}})
        await other.initialize(capabilities={})
        assert await names(talk, legacy=True) == [["anybody", "samplers"], ["last"]]
        assert await names(other, legacy=True) == [["anybody", "last"]]
        (_, gated) = (await page(talk, "tools/list"))["tools"]
    assert gated["_meta"] == {"trio-mcp/requires": ["sampling"]}
