"""Which operations become tools, under which names, and what the report says of the others."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from recorded_api import Api, Json, document, operation, param

from trio_mcp.openapi import OpenApiError, Operation

SHOP: Json = document(
    {
        "/pets": {
            "get": {"operationId": "listPets", "tags": ["pets"], "responses": {}},
            "post": {"operationId": "addPet", "tags": ["pets", "write"], "responses": {}},
        },
        "/pets/{petId}": {
            "parameters": [param("petId", "path", required=True)],
            "get": {"operationId": "getPet", "tags": ["pets"], "responses": {}, "deprecated": True},
            "delete": {"tags": ["write"], "responses": {}},
        },
        "/health": {"get": {"responses": {}}},
    }
)


def tools(**options: Any) -> list[str]:
    return [tool.name for tool in Api().server(SHOP, **options).tools]


def test_an_operation_without_an_id_is_named_by_its_method_and_path() -> None:
    assert tools() == ["listPets", "addPet", "getPet", "delete_pets_by_petId", "get_health"]


def test_include_selects_by_id_key_tag_or_a_function() -> None:
    assert tools(include=["getPet", "GET /health"]) == ["getPet", "get_health"]
    assert tools(include={"#write"}) == ["addPet", "delete_pets_by_petId"]
    assert tools(include=lambda each: each.method == "GET" and not each.deprecated) == ["listPets", "get_health"]
    assert tools(include=[]) == []


def test_rename_names_tools() -> None:
    assert tools(rename={"getPet": "show_pet", "GET /health": "ping"})[2:] == [
        "show_pet",
        "delete_pets_by_petId",
        "ping",
    ]

    def by_tag(each: Operation) -> str | None:
        return f"{each.tags[0]}.{each.id}" if each.id else None

    assert tools(rename=by_tag)[0] == "pets.listPets"
    with pytest.raises(ValueError, match="two"):
        tools(rename=lambda each: "same")


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["a b/c", "a_b_c"], ["a_b_c", "a_b_c_2"]),
        (["x" * 100, "x" * 90], ["x" * 64, "x" * 59]),
        (["ü", "__"], ["get_p0", "get_p1"]),
        (["a", "a"], ["a", "a_2"]),
    ],
)
def test_names_are_valid_and_unique(ids: list[str], names: list[str]) -> None:
    paths = {f"/p{number}": {"get": {"operationId": name, "responses": {}}} for number, name in enumerate(ids)}
    found = [tool.name for tool in Api().server(document(paths)).tools]
    assert [name.removesuffix("_2") if len(name) > 50 else name for name in found] == names
    assert len(set(found)) == len(found)
    assert max(map(len, found)) <= 64


def test_the_ids_of_fastapi_are_shortened_where_that_is_clear() -> None:
    def named(*functions: str) -> list[str]:
        paths = {
            f"/items/{number}": {"get": {"operationId": f"{name}_items_{number}_get", "responses": {}}}
            for number, name in enumerate(functions)
        }
        return [tool.name for tool in Api().server(document(paths)).tools]

    assert named("read_item", "add_item") == ["read_item", "add_item"]
    assert named("read", "read") == ["read_items_0_get", "read_items_1_get"]


def test_a_hint_says_what_the_method_does() -> None:
    hints = {tool.name: tool.model.annotations for tool in Api().server(SHOP).tools}
    assert [(each and each.read_only_hint, each and each.idempotent_hint) for each in hints.values()] == [
        (True, True),
        (False, None),
        (True, True),
        (False, True),
        (True, True),
    ]


def test_a_tool_has_the_texts_and_the_tags_of_its_operation() -> None:
    source = operation(summary="Short", description="Long", tags=["a"], deprecated=True)
    (tool,) = Api().server(source).tools
    model = tool.model
    assert (model.title, model.description) == ("Short", "Deprecated.\n\nShort\n\nLong")
    assert (model.meta or {})["trio-mcp/tags"] == ["a"]
    (bare,) = Api().server(operation()).tools
    assert bare.model.description == "GET /x"


def test_the_author_gives_options_for_each_operation() -> None:
    def options(each: Operation) -> Any:
        return {"scopes": ["write"]} if each.method != "GET" else {"max_result": 4096}

    first, second, *_ = Api().server(SHOP, tool_options=options).tools
    assert (first.access, first.max_result) == (None, 4096)
    assert second.access is not None
    assert second.access.scopes == {"write"}


LEFT_OUT: list[tuple[Json, str]] = [
    (operation(servers=[{"url": "https://other.example"}]), "other servers"),
    (operation(method="options"), "method OPTIONS"),
    (operation(method="trace"), "method TRACE"),
    (operation([param("a", "body")]), "parameters[0]"),
    (operation([{"in": "query"}]), "parameters[0]"),
    (operation([5]), "get: parameters"),  # type: ignore[list-item]
    (operation("wrong"), "get: parameters"),  # type: ignore[arg-type]
    (operation([param("a", style="label")]), "style 'label'"),
    (operation([{"name": "a", "in": "query", "content": {"text/xml": {}}}]), "text/xml"),
    (operation([{"$ref": "#/components/parameters/Missing"}]), "leads to nothing"),
    (operation([{"$ref": "p.json"}]), "leads out of the document"),
    (operation(path="/x/{id}"), "do not agree about id"),
    (operation([param("id", "path")]), "do not agree about id"),
    (operation([param("id", "path")], path="/{id}/{id}"), "twice"),
    (operation(path="x"), "slash"),
    (operation(path="/x?a=b"), "query"),
    (operation(method="post", requestBody={"content": {}}), "no content"),
    (operation(method="post", requestBody={"$ref": "#/a"}), "leads to nothing"),
    (
        operation(method="post", requestBody={"content": {"multipart/form-data": {"schema": {"type": "array"}}}}),
        "is a form",
    ),
]


@pytest.mark.parametrize(("source", "reason"), LEFT_OUT)
def test_an_operation_that_cannot_be_called_is_left_out_with_the_reason(
    source: Json, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    source["paths"]["/ok"] = {"get": {"responses": {}}}
    with caplog.at_level(logging.WARNING, "trio_mcp.openapi"):
        server = Api().server(source)
    (left_out,) = server.report.left_out
    assert reason in left_out.reason
    assert server.report.tools == ("get_ok",)
    assert reason in caplog.text
    with pytest.raises(OpenApiError):
        Api().server(source, strict=True)


def test_a_path_that_refers_to_itself_or_out_of_the_document_is_left_out() -> None:
    source = document(
        {"/a": {"$ref": "#/paths/~1a"}, "/b": {"$ref": "b.json"}, "/c": {"$ref": "#/components/pathItems/C"}}
    )
    source["components"] = {"pathItems": {"C": {"get": {"responses": {}}}}}
    server = Api().server(source)
    assert [each.operation.path for each in server.report.left_out] == ["/a", "/b"]
    assert server.report.tools == ("get_c",)


def test_what_include_does_not_select_is_in_the_report_and_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "trio_mcp.openapi"):
        report = Api().server(SHOP, include=["getPet"], strict=True).report
    assert [each.chosen for each in report.left_out] == [True] * 4
    assert (report.impossible, caplog.text) == ((), "")


def test_the_report_is_a_text_too() -> None:
    source = operation([param("Host", "header")]) | {}
    source["paths"] |= {"/y": {"trace": {}}, "/z": {"get": {}}}
    report = Api().server(source, resources=True).report
    assert str(report).splitlines() == [
        "GET /x: tool run, resource openapi://api/x",
        "    the header 'Host' is left out, since no caller may write it",
        "GET /z: tool get_z, resource openapi://api/z",
        "    it has no operationId, so that its usual name is made of its method and path",
        "TRACE /y: left out: the method TRACE is not supported",
    ]


def test_only_what_the_path_decides_is_a_resource() -> None:
    server = Api().server(SHOP, resources=True)
    assert [each.resource for each in server.report.taken] == [
        "openapi://api/pets",
        None,
        "openapi://api/pets/{petId}",
        None,
        "openapi://api/health",
    ]
    needs = Api().server(operation([param("a", required=True)]), resources=["run"])
    assert needs.report.taken[0].resource is None
    assert "it is no resource" in needs.report.taken[0].notes[0]
