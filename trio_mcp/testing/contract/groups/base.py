"""Group A: what a server offers arrives unchanged, and its changes are announced."""

from __future__ import annotations

import base64

from ....types import (
    BlobResourceContents,
    JsonObject,
    JsonValue,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)
from ..makers import Trait
from ..pair import Pair
from ..peer import Peer, text_of
from ..rules import ELICITS, rule
from ..subjects.offers import ODD_TEXT, PAGE
from ..watch import LISTS, changes, watch

# tools


@rule("A")
async def structured_content_is_sent_as_text_too(pair: Pair) -> None:
    async with pair.peer() as peer:
        result = await (await peer.call("add", {"a": 2, "b": 3})).result()
        assert text_of(result) == '{"total":5}'
        structured = {"total": 5} if pair.revision in ELICITS else None
        assert result.get("structuredContent") == structured


@rule("A")
async def a_client_reads_the_structure_of_a_result(pair: Pair) -> None:
    async with pair.client() as client:
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert result.text == '{"total":5}'
        assert pair.revision not in ELICITS or result.structured_content == {"total": 5}


@rule("A")
async def content_of_every_kind_arrives_or_is_described_in_text_where_a_revision_lacks_it(pair: Pair) -> None:
    linked = "resource_link" if pair.revision in ELICITS else "text"
    heard = "audio" if pair.revision > "2024-11-05" else "text"
    async with pair.client() as client:
        blocks = (await client.call_tool("show")).content
        assert [block.type for block in blocks] == ["text", "image", heard, linked, "resource"]


@rule("A")
async def an_error_of_a_tool_is_a_result_in_its_own_words(pair: Pair) -> None:
    async with pair.peer() as peer:
        assert await (await peer.call("fail", {"text": "the shop is shut"})).failure() == "the shop is shut"


# prompts, resources, completion


@rule("A")
async def a_prompt_is_listed_with_its_arguments_and_rendered(pair: Pair) -> None:
    async with pair.client() as client:
        listed = {prompt.name: prompt for prompt in await client.list_prompts()}["review"]
        assert [(known.name, bool(known.required)) for known in listed.arguments or ()] == [
            ("code", True),
            ("language", False),
        ]
        rendered = await client.get_prompt("review", {"code": "x = 1"})
        said = [(message.role, message.content) for message in rendered.messages]
        assert said == [
            ("user", TextContent(text="Review this Python.")),
            ("assistant", TextContent(text="Gladly.")),
            ("user", TextContent(text="x = 1")),
        ]


@rule("A")
async def a_prompt_without_a_required_argument_is_rejected(pair: Pair) -> None:
    async with pair.peer() as peer:
        error = await peer.error(await peer.request("prompts/get", {"name": "review", "arguments": {}}))
        assert error["code"] == -32602
        assert "code" in str(error["message"])


@rule("A")
async def a_resource_is_listed_and_its_text_read_as_it_is(pair: Pair) -> None:
    async with pair.client() as client:
        assert "contract://text" in {resource.uri for resource in await client.list_resources()}
        (contents,) = (await client.read_resource("contract://text")).contents
        assert isinstance(contents, TextResourceContents)
        assert (contents.uri, contents.mime_type, contents.text) == ("contract://text", "text/plain", ODD_TEXT)


@rule("A")
async def every_byte_of_a_resource_is_read_as_it_is(pair: Pair) -> None:
    async with pair.client() as client:
        (contents,) = (await client.read_resource("contract://bytes")).contents
        assert isinstance(contents, BlobResourceContents)
        assert base64.b64decode(contents.blob) == bytes(range(256))


@rule("A")
async def a_resource_of_a_template_is_read_by_its_uri(pair: Pair) -> None:
    async with pair.client() as client:
        assert "contract://books/{number}" in {one.uri_template for one in await client.list_resource_templates()}
        (contents,) = (await client.read_resource("contract://books/7")).contents
        assert isinstance(contents, TextResourceContents)
        assert contents.text == "book 7"


@rule("A")
async def a_missing_resource_is_an_error_that_names_its_uri(pair: Pair) -> None:
    async with pair.peer() as peer:
        for uri in ("contract://books/100", "contract://nowhere"):
            error = await peer.error(await peer.request("resources/read", {"uri": uri}))
            assert error["code"] == (-32602 if peer.modern else -32002)
            assert error["data"] == {"uri": uri}


@rule("A")
async def arguments_of_prompts_and_templates_are_completed(pair: Pair) -> None:
    async with pair.client() as client:
        languages = await client.complete(PromptReference(name="review"), "language", "P")
        assert languages.values == ["Pascal", "Perl", "Python"]
        family = ResourceTemplateReference(uri="contract://books/{number}")
        assert (await client.complete(family, "number", "1")).values == ["1", "11"]


@rule("A")
async def the_pages_of_a_list_contain_each_item_once(pair: Pair) -> None:
    uris: list[JsonValue] = []
    place: JsonObject = {}
    async with pair.peer() as peer:
        await (await peer.call("stock", {"n": 2 * PAGE})).text()
        for more in (True, True, False):
            page = await peer.result(await peer.request("resources/list", place))
            uris += [resource["uri"] for resource in objects(page["resources"])]
            place = {"cursor": page.get("nextCursor")}
            assert ("nextCursor" in page) is more
        assert uris[-1] == f"contract://stock/{2 * PAGE - 1}"
        assert len({*map(str, uris)}) == len(uris)


# changes


@rule("A")
async def a_change_of_each_list_is_announced_and_the_list_has_it(pair: Pair) -> None:
    async with pair.peer() as peer:
        heard = await watch(peer, lists=True)
        for kind in LISTS:
            name = await (await peer.call("offer", {"kind": kind})).text()
            assert await heard.heard() == kind
            assert name in await names_of(peer, kind)


@rule("A", needs=(Trait.SERVES_MANY,))
async def a_change_is_announced_on_every_connection(pair: Pair) -> None:
    async with pair.peer() as one, pair.peer() as other:
        by_one, by_other = await watch(one, lists=True), await watch(other, lists=True)
        await (await one.call("offer", {"kind": "prompts"})).text()
        assert [await by_one.heard(), await by_other.heard()] == ["prompts", "prompts"]


@rule("A")
async def many_changes_in_a_row_are_announced_in_few_messages(pair: Pair) -> None:
    async with pair.peer() as peer:
        heard = await watch(peer, uris=["contract://text", "contract://bytes"])
        await (await peer.call("update", {"uri": "contract://text", "times": 1000})).text()
        await (await peer.call("update", {"uri": "contract://bytes"})).text()
        assert [await heard.heard(), await heard.heard()] == ["contract://text", "contract://bytes"]


@rule("A")
async def a_client_that_listens_is_notified_of_changes_in_either_era(pair: Pair) -> None:
    async with pair.client() as client, client.listen(tools=True, uris=["contract://text"]) as heard:
        await client.call_tool("offer", {"kind": "tools"})
        change = await anext(heard)
        assert change.kind == "tools"
        await client.call_tool("update", {"uri": "contract://text"})
        change = await anext(heard)
        assert (change.kind, change.uri) == ("updated", "contract://text")


@rule("A")
async def a_tool_that_was_added_while_serving_is_called(pair: Pair) -> None:
    async with pair.client() as client:
        name = (await client.call_tool("offer", {"kind": "tools"})).text
        assert (await client.call_tool(name)).text == "extra"


@rule("A")
async def changes_without_a_subscriber_are_not_announced(pair: Pair) -> None:
    async with pair.peer() as peer:
        heard = await watch(peer, uris=["contract://text"])
        await (await peer.call("update", {"uri": "contract://bytes"})).text()
        await (await peer.call("update", {"uri": "contract://text"})).text()
        assert await heard.heard() == "contract://text"
        assert changes(peer.unread()) == []


def objects(value: JsonValue) -> list[JsonObject]:
    """Return the objects of a JSON array of objects."""
    assert isinstance(value, list)
    return [each for each in value if isinstance(each, dict)]


async def names_of(peer: Peer, kind: str) -> list[JsonValue]:
    """Return the names in a list."""
    listed = await peer.result(await peer.request(f"{kind}/list"))
    return [each["name"] for each in objects(listed[kind])]
