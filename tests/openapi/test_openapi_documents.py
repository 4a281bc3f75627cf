"""What a document may be, and what is said about one that cannot be used."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from naming import naming
from recorded_api import BOUND, Api, Json, document, operation

from trio_mcp import Server
from trio_mcp.openapi import OpenApiError, OpenApiLimits, add_openapi, fetch_openapi
from trio_mcp.openapi.documents import parse_document

DOCUMENT = operation()
TEXT = json.dumps(DOCUMENT)
YAML = """
openapi: 3.0.3
info: {title: API, version: 2024-01-02}
paths:
  /on:
    get:
      operationId: run
      parameters:
        - {name: on, in: query, schema: {type: string, enum: [yes, no, on]}, example: 2024-01-02}
      responses:
        200: {description: fine}
"""


def names(source: Any, **options: Any) -> list[str]:
    return [tool.name for tool in Api().server(source, **options).tools]


def test_a_document_is_a_dict_a_text_a_path_or_an_application(tmp_path: Path) -> None:
    class App:
        def openapi(self) -> Json:
            return DOCUMENT

    file = tmp_path / "openapi.json"
    file.write_text(TEXT)
    for source in (DOCUMENT, TEXT, f"\n {TEXT}", file, str(file), App()):
        assert names(source) == ["run"]


def test_yaml_is_read_as_json_would_be(tmp_path: Path) -> None:
    file = tmp_path / "openapi.yaml"
    file.write_text(YAML)
    for source in (YAML, file):
        server = Api().server(source)
        assert server.identity.version == "2024-01-02"
        properties = server.tools[0].model.input_schema["properties"]
        assert properties == {"on": {"type": "string", "enum": ["yes", "no", "on"]}}


def test_yaml_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        names(YAML)
    assert names(TEXT) == ["run"]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


def yaml_with(text: str) -> str:
    return f"{YAML}x-more:\n  {text}\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[null, ~, true, False, 1, -2, 1.5, 1e3]", [None, None, True, False, 1, -2, 1.5, 1000.0]),
        (
            "[yes, 010, +1, 0x1F, 1_000, 12:30, .5, .inf, .nan]",
            ["yes", "010", "+1", "0x1F", "1_000", "12:30", ".5", ".inf", ".nan"],
        ),
        ("['1', \"true\", !!str 5, ! 6, !!int 7, !!float 1]", ["1", "true", "5", "6", 7, 1]),
        ("{1.10: a, true: b, ~: c}", {"1.10": "a", "true": "b", "~": "c"}),
        (
            "[&a {b: 1}, *a, {<<: *a, c: 2}, {<<: [*a, {b: 3, d: 4}], b: 5}]",
            [{"b": 1}, {"b": 1}, {"b": 1, "c": 2}, {"b": 5, "d": 4}],
        ),
        ("[&x name, {*x : 1}]", ["name", {"name": 1}]),
    ],
)
def test_what_yaml_says_is_what_json_can_say(text: str, value: Any) -> None:
    assert parse_document(yaml_with(text).encode(), 100_000)["x-more"] == value


MERGES = "  a: &a {k: 1}\n" + "".join(
    f"  {new}: &{new} {{<<: [{', '.join([f'*{old}'] * 50)}]}}\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (BOMB.replace("\n", "\n  "), "values"),
        (MERGES.strip(), "values"),
        (f"[&a '{'x' * 10_000}'{', *a' * 2000}]", "characters"),
        ("[" * 200 + "]" * 200, "levels"),
        ("- " * 200 + "x", "levels"),
        ("\n  ".join(f"a{n}: &a{n} {f'[*a{n - 1}]' if n else '[]'}" for n in range(200)), "levels"),
        ("9" * 321, "characters"),
        ("!!int " + "9" * 5_000, "characters"),
        ("1." + "0" * 400, "characters"),
        ("1e999", "double"),
        ("!!int 0b" + "1" * 100_000, "tag"),
        ("!!int 1" + ":10" * 100_000, "tag"),
        ("!!binary aGk=", "tag"),
        ("!!timestamp 2024-01-01", "tag"),
        ("!!set {a, b}", "tag"),
        ("!!bool 1", "tag"),
        ("&a [*a]", "refers"),
        ("[*b]", "refers"),
        ("{<<: 5}", "<<"),
        ("{[a]: 5}", "name"),
        ("1\n---\na: 1", "second"),
    ],
)
def test_a_document_in_yaml_has_the_limits_of_one_in_json(text: str, limit: str) -> None:
    with pytest.raises(OpenApiError, match=limit):
        parse_document(yaml_with(text).encode(), 10_000_000)


@pytest.mark.parametrize("text", ["{same: 1, same: 1}", "{same: 1, 'same': 2}", "[&x same, {same: 1, *x : 2}]"])
def test_a_name_that_occurs_twice_in_one_object_is_rejected_in_yaml_as_in_json(text: str) -> None:
    with pytest.raises(OpenApiError, match=naming("same", "twice")):
        parse_document(yaml_with(text).encode(), 100_000)
    with pytest.raises(OpenApiError, match=naming("same", "twice")):
        parse_document(b'{"same": 1, "same": 2}', 100_000)


def test_an_error_in_yaml_names_the_line() -> None:
    with pytest.raises(OpenApiError, match=rf"line {YAML.count(chr(10)) + 2} "):
        parse_document(yaml_with("!!binary aGk=").encode(), 100_000)


@pytest.mark.parametrize(
    "source",
    [
        '{"openapi": "3.1.0", "openapi": "3.0.0"}',
        '{"openapi": NaN}',
        "{nonsense",
        "a: [\n",
        "- a\n- b\n",
        "!!python/object/apply:os.system ['true']\n",
        BOMB,
        {},
        {"openapi": "4.0.0"},
        {"openapi": "3.2.0", "paths": {}},
        {"openapi": 3.1},
        {"swagger": "2.0"},
        {"openapi": "3.1.0", "jsonSchemaDialect": "https://other.example"},
        {"openapi": "3.1.0", "paths": []},
        {"openapi": "3.1.0", "x": float("nan")},
        {"openapi": "3.1.0", "x": object()},
        "https://api.example/openapi.json",
    ],
)
def test_an_invalid_document_is_rejected(source: Any) -> None:
    with pytest.raises(OpenApiError):
        names(source)


def test_a_document_that_contains_itself_is_refused() -> None:
    source = document({})
    source["x"] = source
    with pytest.raises(OpenApiError):
        names(source)


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(OpenApiError, match=r"Swagger 2\.0.*convert"):
        names({"swagger": "2.0"})
    with pytest.raises(OpenApiError, match="fetch_openapi"):
        names("https://api.example/openapi.json")
    with pytest.raises(TypeError, match="document"):
        names(5)
    with pytest.raises(FileNotFoundError):
        names("missing.json")


def test_a_document_has_limits(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(TEXT)
    small = OpenApiLimits(max_document=50)
    for source in (DOCUMENT, TEXT, file):
        with pytest.raises(OpenApiError, match="max_document"):
            names(source, limits=small)
    paths = {f"/x{number}": {"get": {"responses": {}}} for number in range(3)}
    with pytest.raises(OpenApiError, match="max_operations"):
        names(document(paths), limits=OpenApiLimits(max_operations=2))
    assert names(document(paths), limits=OpenApiLimits(max_operations=2), include=["GET /x1"]) == ["get_x1"]
    with pytest.raises(ValueError, match="max_response"):
        OpenApiLimits(max_response=0)


def test_a_document_is_a_regular_file(tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.symlink_to("/dev/null")
    with pytest.raises(OpenApiError, match="device"):
        names(file)


def test_a_long_description_is_cut() -> None:
    (tool,) = Api().server(operation(description="x" * 5000)).tools
    assert tool.model.description is not None
    assert len(tool.model.description) == 2000


async def test_a_document_is_fetched_with_the_client() -> None:
    api = Api(lambda request: httpx2.Response(200, text=TEXT if request.url.path.endswith("json") else YAML))
    with trio.fail_after(BOUND):
        assert await fetch_openapi("openapi.json", api.client) == DOCUMENT
        assert "paths" in await fetch_openapi("https://other.example/openapi.yaml", api.client)
    assert [str(each.url) for each in api.requests] == [
        "https://api.example/v1/openapi.json",
        "https://other.example/openapi.yaml",
    ]


async def test_the_headers_of_the_client_are_sent_to_fetch_a_document() -> None:
    api = Api(lambda request: httpx2.Response(200, text=TEXT))
    client = api.make_client(headers={"Cookie": "own=1", "X-Key": "own"}, cookies={"jar": "1"})
    with trio.fail_after(BOUND):
        await fetch_openapi("openapi.json", client)
    assert api.requests[0].headers.get_list("cookie") == ["own=1"]
    assert api.requests[0].headers["x-key"] == "own"


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(404, text=TEXT),
        httpx2.Response(302, headers={"location": "https://evil.example"}),
        httpx2.Response(200, text="<html>"),
        httpx2.Response(200, text="[" * 100_000),
        httpx2.Response(200, text=TEXT + " " * 2000),
    ],
)
async def test_what_is_fetched_and_is_no_document_is_refused(response: httpx2.Response) -> None:
    api = Api(lambda request: response)
    with trio.fail_after(BOUND), pytest.raises(OpenApiError):
        await fetch_openapi("openapi.json", api.client, limits=OpenApiLimits(max_document=1000))
    assert len(api.requests) == 1


async def test_reading_a_document_ends_with_its_timeout() -> None:
    # With the real clock: what reads is in a thread, which has to end by itself.
    api = Api(lambda request: httpx2.Response(200, text=YAML + "x-more:\n" + "  - {a: 1}\n" * 450_000))
    with trio.fail_after(BOUND), pytest.raises(OpenApiError, match=r"0\.05 seconds"):
        await fetch_openapi("openapi.yaml", api.client, timeout=0.05)


async def test_a_document_that_cannot_be_fetched_is_an_error() -> None:
    def respond(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectTimeout("no")

    with trio.fail_after(BOUND), pytest.raises(OpenApiError, match="ConnectTimeout"):
        await fetch_openapi("openapi.json", Api(respond).client)


def test_a_server_that_has_tools_gets_those_of_a_document_too() -> None:
    server = Server("mine")

    @server.tool
    async def own() -> None: ...

    report = add_openapi(server, DOCUMENT, Api().client)
    assert [tool.name for tool in server.tools] == ["own", "run"]
    assert report.tools == ("run",)


def test_if_one_name_is_taken_no_tool_is_added() -> None:
    server = Server("mine")

    @server.tool
    async def second() -> None: ...

    source = document(
        {"/a": {"get": {"operationId": "first", "responses": {}}}, "/b": {"get": {"operationId": "second"}}}
    )
    with pytest.raises(ValueError, match="second"):
        add_openapi(server, source, Api().client, resources=True)
    assert [tool.name for tool in server.tools] == ["second"]
    add_openapi(server, source, Api().client, rename={"second": "other"}, resources=True)
    assert [tool.name for tool in server.tools] == ["second", "first", "other"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"includes": []}, TypeError),
        ({"include": "run"}, TypeError),
        ({"include": ["ran"]}, LookupError),
        ({"include": 5}, TypeError),
        ({"rename": {"ran": "x"}}, LookupError),
        ({"rename": {"run": "a b"}}, ValueError),
        ({"resources": ["GET /y"]}, LookupError),
        ({"timeout": 0}, ValueError),
        ({"timeout": "1"}, TypeError),
        ({"credentials": {"a": "b"}}, TypeError),
        ({"slashes": 1}, TypeError),
        ({"limits": {}}, TypeError),
        ({"tool_options": lambda operation: {"name": "x"}}, TypeError),
        ({"tool_options": lambda operation: {"scopess": ["x"]}}, TypeError),
    ],
)
def test_a_wrong_option_is_refused(options: Json, error: type[Exception]) -> None:
    with pytest.raises(error):
        names(DOCUMENT, **options)


def test_a_wrong_name_suggests_the_nearest() -> None:
    with pytest.raises(LookupError, match="do you mean 'run'"):
        names(DOCUMENT, include=["ran"])
    with pytest.raises(TypeError, match="do you mean 'include'"):
        names(DOCUMENT, includes=[])
