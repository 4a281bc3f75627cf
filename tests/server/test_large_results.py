"""`max_result`: a larger result becomes a preview and a link to a resource that only its caller can read, for a while."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from connected import connected
from naming import naming, unnamed
from one_tool import result_of
from pydantic import BaseModel
from talk import Json, Talk, talk_to
from trio.testing import MockClock

from trio_mcp import CallHandler, CallRequest, CallResult, Context, Image, Server, ServiceOptions, ToolResult
from trio_mcp.protocol.uri.uris import KEPT_HERE
from trio_mcp.server.large_results import LEAST_MAX_RESULT, cut
from trio_mcp.session import MemoryBudget
from trio_mcp.types import CallToolResult, ResourceLink, TextContent

LIMIT = 4096
KEPT_RESULT_SIZE = 2 * 1024
PNG = b"\x89PNG\r\n\x1a\n"


class Row(BaseModel):
    number: int


async def lines(count: int = 1000) -> str:
    return "".join(f"line {number}\n" for number in range(count))


async def rows(count: int = 1000) -> list[Row]:
    return [Row(number=number) for number in range(count)]


async def pictures() -> list[str | Image]:
    return ["Two pictures.", Image(data=PNG + b"0" * LIMIT), Image(data=PNG)]


async def failing() -> ToolResult:
    return ToolResult(content=[TextContent(text="no " * LIMIT)], structured_content={"code": 7}, is_error=True)


def limited(**options: Any) -> Server:
    server = Server("large", options=ServiceOptions(**options))
    for function in (lines, rows, pictures, failing):
        server.add_tool(function, max_result=LIMIT)
    return server


def link_in(result: Any) -> ResourceLink:
    (link,) = [block for block in result.content if isinstance(block, ResourceLink)]
    return link


async def test_a_large_result_is_a_preview_and_its_caller_reads_all_of_it(mode: str) -> None:
    async with connected(limited(), mode) as client:
        result = await client.call_tool("lines")
        assert len(result.encode()) <= LIMIT
        shown, notice, link = result.content
        assert (await lines()).startswith(shown.text)
        assert isinstance(notice, TextContent)
        assert isinstance(link, ResourceLink)
        # With the URI in the text, for revisions that have no links.
        assert unnamed(notice.text, str(len(shown.text)), str(len(await lines())), link.uri) == []
        (contents,) = (await client.read_resource(link.uri)).contents
        assert (contents.wire()["text"], contents.uri, contents.mime_type) == (await lines(), link.uri, link.mime_type)
        assert (result.is_error, link.size is not None and link.size > len(await lines())) == (False, True)


async def test_what_middleware_returns_has_the_same_limit_and_middleware_sees_the_whole_result(mode: str) -> None:
    server, seen = limited(), list[int]()

    @server.middleware
    async def double(call: CallRequest, handler: CallHandler) -> CallResult:
        result = await handler()
        if not isinstance(result, CallToolResult):
            return result
        seen.append(len(result.text))
        return ToolResult(content=[TextContent(text=result.text * 2)])

    async with connected(server, mode) as client:
        for count in (300, 1000):
            result = await client.call_tool("lines", {"count": count})
            assert len(result.encode()) <= LIMIT
            (contents,) = (await client.read_resource(link_in(result).uri)).contents
            assert contents.wire()["text"] == await lines(count) * 2
    assert seen == [len(await lines(300)), len(await lines(1000))]
    assert seen[0] < LIMIT


async def test_a_result_within_the_limit_is_sent_as_it_is(mode: str) -> None:
    async with connected(limited(), mode) as client:
        result = await client.call_tool("rows", {"count": 2})
        assert (result.data, len(result.content)) == ([{"number": 0}, {"number": 1}], 1)
        assert (await client.call_tool("lines", {"count": 2})).text == await lines(2)


async def test_a_structure_is_read_as_json_once(mode: str) -> None:
    async with connected(limited(), mode) as client:
        # The schema promises a structure, which a preview has not.
        assert {tool.output_schema is None for tool in await client.list_tools()} == {True}
        result = await client.call_tool("rows")
        assert result.structured_content is None
        (contents,) = (await client.read_resource(link_in(result).uri)).contents
        assert contents.mime_type == "application/json"
        assert json.loads(contents.wire()["text"]) == [{"number": number} for number in range(1000)]


async def test_all_parts_of_a_result_are_read(mode: str) -> None:
    async with connected(limited(), mode) as client:
        result = await client.call_tool("pictures")
        assert unnamed(result.content[1].wire()["text"], "2 other parts") == []
        contents = (await client.read_resource(link_in(result).uri)).contents
        assert [part.mime_type for part in contents] == ["text/plain", "image/png", "image/png"]
        assert {part.uri for part in contents} == {link_in(result).uri}


async def test_an_error_stays_an_error(mode: str) -> None:
    async with connected(limited(), mode) as client:
        result = await client.call_tool("failing")
        assert (result.is_error, len(result.encode()) <= LIMIT) == (True, True)
        assert unnamed((await client.read_resource(link_in(result).uri)).text, "no no", '{"code":7}') == []


async def test_a_server_with_such_a_tool_declares_resources(mode: str) -> None:
    async with connected(limited(), mode) as client:
        assert client.server_capabilities.resources is not None
        assert await client.list_resources() == []
    plain = Server("plain")
    plain.add_tool(lines)
    async with connected(plain, mode) as client:
        assert client.server_capabilities.resources is None


# who may read it


async def called(talk: Talk, legacy: bool, **arguments: int) -> Json:
    """The result of the tool `lines`."""
    return await talk.result(talk.call("lines", arguments) if legacy else talk.leg("lines", arguments))


async def preview(talk: Talk, legacy: bool) -> str:
    """The URI of a result that was kept."""
    return (await called(talk, legacy))["content"][-1]["uri"]


async def read_error(talk: Talk, uri: str) -> Json:
    error = await talk.error(talk.ask("resources/read", uri=uri))
    return {**error, "message": error["message"].replace(uri, "URI"), "data": None}


@pytest.mark.parametrize("legacy", [False, True], ids=["modern", "legacy"])
async def test_for_everybody_else_it_is_as_unknown_as_any_other(legacy: bool) -> None:
    server = limited()
    async with server.open_service() as service:
        alice, bob, again = (Talk(service, principal=name) for name in ("alice", "bob", "alice"))
        with alice.outbox, bob.outbox, again.outbox:
            if legacy:
                for talk in (alice, bob, again):
                    await talk.initialize()
            uri = await preview(alice, legacy)
            unknown = await read_error(bob, "config://none")
            assert await read_error(bob, uri) == unknown
            assert await read_error(alice, KEPT_HERE + "none") == unknown
            # Its principal reads it in every session.
            assert (await again.result(again.ask("resources/read", uri=uri)))["contents"]


async def test_without_a_principal_it_belongs_to_the_connection() -> None:
    async with limited().open_service() as service:
        one, other = Talk(service), Talk(service)
        with one.outbox, other.outbox:
            for talk in (one, other):
                await talk.initialize()
            uri = await preview(one, legacy=True)
            assert await read_error(other, uri) == await read_error(other, "config://none")
            assert (await one.result(one.ask("resources/read", uri=uri)))["contents"]


async def test_it_is_dropped_when_its_time_is_up(autojump_clock: MockClock) -> None:
    budget = MemoryBudget(10_000_000)
    async with talk_to(limited(memory=budget, result_ttl=30)) as talk:
        before = budget.drawn
        uris = [await preview(talk, legacy=False)]
        await trio.sleep(20)
        uris.append(await preview(talk, legacy=False))
        assert budget.drawn > before + 2 * KEPT_RESULT_SIZE
        await trio.sleep(11)
        assert (await read_error(talk, uris[0]))["code"] == -32602
        assert (await talk.result(talk.ask("resources/read", uri=uris[1])))["contents"]
        await trio.sleep(30)
        await read_error(talk, uris[1])
        # What is left is the message that was sent.
        assert (len(talk.service.calls.kept), budget.drawn - before < KEPT_RESULT_SIZE) == (0, True)


async def test_what_is_kept_at_the_end_of_the_service_is_given_back() -> None:
    budget = MemoryBudget(10_000_000)
    async with talk_to(limited(memory=budget)) as talk:
        await preview(talk, legacy=False)
        assert len(talk.service.calls.kept) == 1
    assert budget.drawn == 0


@pytest.mark.parametrize("legacy", [False, True], ids=["modern", "legacy"])
async def test_a_result_for_which_there_is_no_room_is_an_error_that_names_the_limit(legacy: bool) -> None:
    budget = MemoryBudget(200_000)
    async with talk_to(limited(memory=budget)) as talk:
        if legacy:
            await talk.initialize()
        result = await called(talk, legacy, count=20_000)
        assert result["isError"]
        assert unnamed(result["content"][0]["text"], "lines", str(LIMIT), "memory budget") == []
        # What is left is the message that was sent.
        assert (len(talk.service.calls.kept), budget.drawn < KEPT_RESULT_SIZE) == (0, True)


# the option


SCHEMA: Json = {"type": "object"}


@pytest.mark.parametrize(
    ("options", "error", "names"),
    [
        *(({"max_result": wrong}, ValueError, [LEAST_MAX_RESULT]) for wrong in (LEAST_MAX_RESULT - 1, -1)),
        *(({"max_result": wrong}, TypeError, []) for wrong in ("4096", 4096.0, True)),
        ({"max_result": LIMIT, "output_schema": SCHEMA}, ValueError, ["output_schema"]),
        *(({"result_ttl": wrong}, ValueError, []) for wrong in (0, -1, float("inf"))),
    ],
)
def test_a_wrong_limit_is_refused_by_name(options: Any, error: type[Exception], names: list[object]) -> None:
    with pytest.raises(error, match=naming(next(iter(options)), *names)):
        ServiceOptions(**options) if "result_ttl" in options else Server("large").add_tool(lines, **options)


@pytest.mark.parametrize("text", ["a" * 100, "é" * 100, "\x00" * 100, "😀" * 100, '"' * 100, ""])
def test_a_text_is_cut_so_that_its_json_fits(text: str) -> None:
    shown = cut(text, 50)
    assert text.startswith(shown)
    size = len(json.dumps(shown, ensure_ascii=False).encode())
    assert size <= 50
    assert size > 35 or shown == text


async def test_a_result_that_is_no_json_is_the_error_that_it_would_be_without_a_limit() -> None:
    result = await result_of(lambda: ToolResult(content=[], meta={"a": float("nan")}), name="tool", max_result=LIMIT)
    assert result["isError"]


async def test_a_tool_reads_a_result_that_was_kept_for_its_caller(mode: str) -> None:
    server = limited()

    @server.tool
    async def read(uri: str, ctx: Context) -> int:
        (contents,) = (await ctx.read_resource(uri)).contents
        return len(contents.text)

    async with connected(server, mode) as client:
        link = link_in(await client.call_tool("lines"))
        assert await client.call_tool("read", {"uri": link.uri}, returns=int) == len(await lines())


async def test_a_large_meta_is_no_part_of_the_preview(mode: str) -> None:
    server = limited()

    @server.tool(max_result=LIMIT)
    async def described(size: int) -> ToolResult:
        return ToolResult(content=[TextContent(text="a" * LIMIT)], meta={"com.example/note": "b" * size})

    async with connected(server, mode) as client:
        large, small = [await client.call_tool("described", {"size": size}) for size in (LIMIT, 3)]
    assert len(large.encode()) <= LIMIT
    assert "com.example/note" not in (large.meta or {})
    assert (small.meta or {})["com.example/note"] == "bbb"
    assert len(small.encode()) <= LIMIT


async def test_a_kept_result_draws_what_its_text_takes_in_memory() -> None:
    # One character beyond Latin-1 makes each of the others take four bytes.
    memory = MemoryBudget(2**30)
    server = limited(memory=memory)

    @server.tool(max_result=LIMIT)
    async def wide() -> str:
        return "a" * 1_000_000 + "\N{GRINNING FACE}"

    async with connected(server, "modern") as client:
        await client.call_tool("wide")
        assert memory.drawn > 4_000_000
