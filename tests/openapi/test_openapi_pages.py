"""The next page, where the API or its document says that there is one."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from recorded_api import Api, Json, operation, param

from trio_mcp.types import CallToolResult

PARAMETERS = [
    param("page", schema={"type": "integer"}),
    param("tags", schema={"type": "array", "items": {"type": "integer"}}),
    param("csv", schema={"type": "array", "items": {"type": "string"}}, explode=False),
    param("all", schema={"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
    param("q[x]", schema={"type": "string"}),
    param("id", "path", schema={"type": "string"}),
]
SOURCE = operation(PARAMETERS, path="/x/{id}")


def next_of(result: CallToolResult) -> Any:
    found = (result.meta or {}).get("trio-mcp/next-page")
    assert (found is not None) is ("There is a next page" in result.text)
    return found


async def paged(link: str, arguments: Json | None = None) -> Any:
    api = Api(lambda request: httpx2.Response(200, json=[], headers={"link": link}))
    return next_of(await api.call(SOURCE, {"id": "a b", **(arguments or {})}))


async def test_a_link_header_gives_the_arguments_of_the_next_page() -> None:
    link = '</v1/x/a%20b?page=2&tags=1&tags=2&csv=a,b&all=true&q%5Bx%5D=5>; rel="next"'
    assert await paged(link, {"page": 1, "q_x": "4"}) == {
        "id": "a b",
        "page": 2,
        "tags": [1, 2],
        "csv": ["a", "b"],
        "all": True,
        "q_x": "5",
    }


@pytest.mark.parametrize(
    "link",
    [
        '<?page=2>; rel="next"',
        "<https://api.example/v1/x/a%20b?page=2>;rel=next",
        '<https://api.example:443/v1/x/a%20b?page=2>; title="a, b"; rel=\'x\'; REL="last NEXT"',
        '<?page=1>; rel="prev", <?page=2>; rel="next", <?page=9>; rel="last"',
        '<?page=2&unknown=5>; rel="next"',
    ],
)
async def test_a_link_header_is_read_in_every_form(link: str) -> None:
    assert await paged(link, {"page": 1}) == {"id": "a b", "page": 2}


@pytest.mark.parametrize(
    "link",
    [
        "",
        "nonsense",
        '<?page=2>; rel="prev"',
        '<https://evil.example/v1/x/a%20b?page=2>; rel="next"',
        '<http://api.example/v1/x/a%20b?page=2>; rel="next"',
        '</v1/other?page=2>; rel="next"',
        '<http://[>; rel="next"',
        '<?page=1>; rel="next"',
        "<?a=1" + "&a=1" * 300 + '>; rel="next"',
        "<" * 10_000,
        "<?page=2>" + ";a" * 10_000,
    ],
)
async def test_another_link_is_no_next_page(link: str) -> None:
    assert await paged(link, {"page": 1}) is None


LINKS: list[tuple[Json, Json | None]] = [
    ({"operationId": "run", "parameters": {"cursor": "$response.body#/meta/next"}}, {"cursor": "abc", "limit": 5}),
    ({"operationId": "run", "parameters": {"query.cursor": "$response.header.x-next"}}, {"cursor": "h", "limit": 5}),
    ({"operationRef": "#/paths/~1x/get", "parameters": {"cursor": "constant"}}, {"cursor": "constant", "limit": 5}),
    ({"operationId": "run", "parameters": {"limit": "$response.body#/items/1"}}, {"limit": 8}),
    ({"operationId": "run", "parameters": {"cursor": "$request.query.limit"}}, {"cursor": 5, "limit": 5}),
    ({"operationId": "run", "parameters": {"cursor": "$response.body#/missing"}}, None),
    ({"operationId": "run", "parameters": {"cursor": "$response.body#/empty"}}, None),
    ({"operationId": "run", "parameters": {"cursor": "$method"}}, None),
    ({"operationId": "run", "parameters": {"other": "$response.body#/meta/next"}}, None),
    ({"operationId": "run", "parameters": {}}, None),
    ({"operationId": "other", "parameters": {"cursor": "$response.body#/meta/next"}}, None),
]


@pytest.mark.parametrize(("link", "expected"), LINKS)
async def test_a_link_of_the_document_gives_the_arguments_of_the_next_page(link: Json, expected: Json | None) -> None:
    body = {"meta": {"next": "abc"}, "items": [7, 8], "empty": ""}
    api = Api(lambda request: httpx2.Response(200, json=body, headers={"x-next": "h"}))
    parameters = [param("cursor"), param("limit", schema={"type": "integer"})]
    source = operation(parameters, responses={"200": {"description": "", "links": {"NextPage": link, "self": link}}})
    assert next_of(await api.call(source, {"limit": 5})) == expected


async def test_a_link_with_another_name_is_no_next_page() -> None:
    link = {"operationId": "run", "parameters": {"cursor": "a"}}
    source = operation([param("cursor")], responses={"200": {"description": "", "links": {"previous": link}}})
    assert next_of(await Api().call(source)) is None


async def test_an_error_has_no_next_page() -> None:
    api = Api(lambda request: httpx2.Response(500, headers={"link": '<?page=2>; rel="next"'}))
    assert next_of(await api.call(SOURCE, {"id": "a b"})) is None


async def test_a_result_with_a_next_page_still_matches_its_output_schema() -> None:
    content = {"application/json": {"schema": {"type": "array", "items": {"type": "integer"}}}}
    source = operation([param("page")], responses={"200": {"description": "", "content": content}})
    api = Api(lambda request: httpx2.Response(200, json=[1, 2], headers={"link": '<?page=2>; rel="next"'}))
    async with api.connected(source) as client:
        await client.list_tools()
        result = await client.call_tool("run")
    assert (result.structured_content, result.data) == ({"result": [1, 2]}, [1, 2])
