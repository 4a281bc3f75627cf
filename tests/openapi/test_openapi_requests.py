"""How arguments become a request."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest
import trio
from hypothesis import given, settings, strategies as st
from recorded_api import Api, Json, operation, param, target

COLOURS = ["blue", "light red"]
SIZE = {"w": 1, "h": "2&3"}

STYLES: list[tuple[Json, Any, str]] = [
    (param("id", schema={"type": "integer"}), 5, "/x?id=5"),
    (param("id"), True, "/x?id=true"),
    (param("id"), 1.5, "/x?id=1.5"),
    (param("id"), None, "/x"),
    (param("id"), "a&b=c", "/x?id=a%26b%3Dc"),
    (param("c"), COLOURS, "/x?c=blue&c=light%20red"),
    (param("c"), [], "/x"),
    (param("c", explode=False), COLOURS, "/x?c=blue,light%20red"),
    (param("c", style="spaceDelimited", explode=False), COLOURS, "/x?c=blue%20light%20red"),
    (param("c", style="pipeDelimited", explode=False), COLOURS, "/x?c=blue%7Clight%20red"),
    (param("c", style="pipeDelimited", explode=True), COLOURS, "/x?c=blue&c=light%20red"),
    (param("s"), SIZE, "/x?w=1&h=2%263"),
    (param("s", explode=False), SIZE, "/x?s=w,1,h,2%263"),
    (param("s", style="deepObject"), {"a": 1, "b": {"c": [2, 3]}}, "/x?s%5Ba%5D=1&s%5Bb%5D%5Bc%5D=2&s%5Bb%5D%5Bc%5D=3"),
    (param("q", allowReserved=True), "/a?b&c#d", "/x?q=/a?b%26c%23d"),
    (param("q", allowReserved=True), "a;key=b", "/x?q=a%3Bkey%3Db"),
    (param("filter[a]"), "b", "/x?filter%5Ba%5D=b"),
    ({"name": "f", "in": "query", "content": {"application/json": {}}}, {"a": [1]}, "/x?f=%7B%22a%22%3A%5B1%5D%7D"),
    (param("id", "path"), "a b&c", "/p/a%20b%26c"),
    (param("id", "path"), COLOURS, "/p/blue,light%20red"),
    (param("id", "path"), SIZE, "/p/w,1,h,2%263"),
    (param("id", "path", explode=True), SIZE, "/p/w=1,h=2%263"),
    (param("id", "path", style="label"), 5, "/p/.5"),
    (param("id", "path", style="label"), COLOURS, "/p/.blue,light%20red"),
    (param("id", "path", style="label", explode=True), COLOURS, "/p/.blue.light%20red"),
    (param("id", "path", style="label", explode=True), SIZE, "/p/.w=1.h=2%263"),
    (param("id", "path", style="matrix"), 5, "/p/;id=5"),
    (param("id", "path", style="matrix"), COLOURS, "/p/;id=blue,light%20red"),
    (param("id", "path", style="matrix", explode=True), COLOURS, "/p/;id=blue;id=light%20red"),
    (param("id", "path", style="matrix"), SIZE, "/p/;id=w,1,h,2%263"),
    (param("id", "path", style="matrix", explode=True), SIZE, "/p/;w=1;h=2%263"),
]


@pytest.mark.parametrize(("parameter", "value", "expected"), STYLES)
async def test_a_parameter_is_written_in_its_style(parameter: Json, value: Any, expected: str) -> None:
    path = "/p/{id}" if parameter["in"] == "path" else "/x"
    name = {"filter[a]": "filter_a"}.get(parameter["name"], parameter["name"])
    request = await Api().sent(operation([parameter], path=path), {name: value})
    assert target(request) == expected


@pytest.mark.parametrize("name", ["X-Tag", "x-tag"])
async def test_headers_are_written_as_they_are(name: str) -> None:
    request = await Api().sent(operation([param(name, "header")]), {name: ["a b", 2]})
    assert request.headers["x-tag"] == "a b,2"


async def test_cookies_are_written_as_one_header() -> None:
    parameters = [param("session", "cookie"), param("kinds", "cookie", explode=False)]
    request = await Api().sent(operation(parameters), {"session": 'a;b="c"', "kinds": ["x", "y"]})
    assert request.headers["cookie"] == "session=a%3Bb=%22c%22; kinds=x,y"


@pytest.mark.parametrize("value", ["a\r\nx-evil: 1", "a\nb", "a\0b", "ä", "a\x7f"])
async def test_a_header_that_would_be_two_is_refused(value: str) -> None:
    api = Api()
    result = await api.call(operation([param("X-Tag", "header")]), {"X-Tag": value})
    assert (result.is_error, api.requests) == (True, [])


@pytest.mark.parametrize("value", ["..", ".", "", "../admin", "a/../b", "a/b", "a\\..\\b", "..\\admin", " .. "])
async def test_a_value_that_leads_out_of_its_segment_is_refused(value: str) -> None:
    api = Api()
    result = await api.call(operation([param("id", "path")], path="/users/{id}"), {"id": value})
    assert (result.is_error, api.requests) == (True, [])


@pytest.mark.parametrize("value", [["a", ".."], {"..": "a"}, {"a": "b/c"}, {}, [], [None]])
async def test_no_part_of_a_value_leads_out_of_its_segment(value: Any) -> None:
    api = Api()
    result = await api.call(operation([param("id", "path")], path="/users/{id}"), {"id": value})
    assert (result.is_error, api.requests) == (True, [])


async def test_values_that_are_dots_together_are_refused() -> None:
    api = Api()
    parameters = [param("a", "path"), param("b", "path")]
    source = operation(parameters, path="/users/{a}{b}/x")
    assert (await api.call(source, {"a": ".", "b": "x"})).is_error
    assert (await api.call(operation([param("a", "path")], path="/users/.{a}/x"), {"a": "."})).is_error
    assert api.requests == []


async def test_slashes_may_be_allowed_and_are_encoded_then() -> None:
    source = operation([param("id", "path")], path="/projects/{id}")
    request = await Api().sent(source, {"id": "group/project"}, slashes=True)
    assert target(request) == "/projects/group%2Fproject"
    assert (await Api().call(source, {"id": "group/../project"}, slashes=True)).is_error


@given(st.text(), st.text(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_value_changes_the_host_or_the_fixed_parts_of_the_path(value: str, tag: str, slashes: bool) -> None:
    api = Api()
    parameters = [param("id", "path"), param("tag")]
    source = operation(parameters, path="/users/{id}/name")
    try:
        result = trio.run(_call, api, source, value, tag, slashes)
    except UnicodeEncodeError:  # a lone surrogate, which no message can hold
        return
    for request in api.requests:
        assert (request.url.scheme, request.url.host, request.url.port) == ("https", "api.example", None)
        base, version, users, segment, name = request.url.raw_path.partition(b"?")[0].decode().split("/")
        assert (base, version, users, name) == ("", "v1", "users", "name")
        assert unquote(segment) == value
        assert slashes or "/" not in value
        assert request.url.fragment == ""
    assert result.is_error is not bool(api.requests)


async def _call(api: Api, source: Json, value: str, tag: str, slashes: bool) -> Any:
    return await api.call(source, {"id": value, "tag": tag}, slashes=slashes)


async def test_of_two_parameters_with_one_name_the_second_has_its_place_in_its_name() -> None:
    parameters = [param("id"), param("id", "path"), param("id", "header")]
    request = await Api().sent(operation(parameters, path="/x/{id}"), {"id": "a", "id_query": "b", "id_header": "c"})
    assert (target(request), request.headers["id"]) == ("/x/a?id=b", "c")


async def test_parameters_of_the_path_are_replaced_by_those_of_the_operation() -> None:
    source = operation([param("a", schema={"type": "integer"})])
    source["paths"]["/x"]["parameters"] = [param("a", schema={"type": "string"}), param("b", required=True)]
    (tool,) = Api().server(source).tools
    assert tool.model.input_schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {}},
        "additionalProperties": False,
        "required": ["b"],
    }


BODIES: list[tuple[str, Json, Any, bytes]] = [
    ("application/json", {}, {"a": [1, None]}, b'{"a":[1,null]}'),
    ("application/merge-patch+json", {}, {"a": 1}, b'{"a":1}'),
    ("text/plain", {}, "Grüße", "Grüße".encode()),
    ("application/xml", {}, "<a/>", b"<a/>"),
    ("application/octet-stream", {}, {"data": "AAE="}, b"\0\1"),
    ("image/png", {}, {"text": "no image"}, b"no image"),
    ("application/x-www-form-urlencoded", {"type": "object"}, {"a": "b c", "d": [1, 2], "e": None}, b"a=b%20c&d=1&d=2"),
]


@pytest.mark.parametrize(("media_type", "schema", "value", "expected"), BODIES)
async def test_a_body_is_written_in_its_media_type(media_type: str, schema: Json, value: Any, expected: bytes) -> None:
    source = operation(method="post", requestBody={"content": {media_type: {"schema": schema}}})
    request = await Api().sent(source, {"body": value})
    assert request.content == expected
    assert request.headers["content-type"].startswith(media_type)


async def test_a_form_with_files_has_a_part_for_each_property() -> None:
    schema = {
        "type": "object",
        "properties": {
            "photos": {"type": "array", "items": {"type": "string", "format": "binary"}},
            "info": {"type": "object"},
            "title": {"type": "string"},
        },
    }
    source = operation(method="post", requestBody={"content": {"multipart/form-data": {"schema": schema}}})
    files = [{"data": "AA==", "name": 'a"\r\n.png', "mime_type": "image/png"}, {"text": "b"}]
    request = await Api().sent(source, {"body": {"photos": files, "info": {"a": 1}, "title": "T"}})
    text = request.content.decode()
    assert text.count("\r\n\r\n") == 4
    assert 'name="photos"; filename="a%22%0D%0A.png"' in text
    assert 'name="info"\r\nContent-Type: application/json\r\n\r\n{"a":1}' in text
    assert request.headers["content-type"].startswith("multipart/form-data; boundary=")


async def test_a_type_of_a_file_that_would_be_a_header_is_refused() -> None:
    schema = {"type": "object", "properties": {"photo": {"type": "string", "format": "binary"}}}
    source = operation(method="post", requestBody={"content": {"multipart/form-data": {"schema": schema}}})
    api = Api()
    result = await api.call(source, {"body": {"photo": {"text": "a", "mime_type": "image/png\r\nx: y"}}})
    assert (result.is_error, api.requests) == (True, [])


async def test_json_is_preferred_among_the_forms_of_a_body_and_the_report_mentions_it() -> None:
    content = {"application/xml": {}, "multipart/form-data": {}, "application/json": {}}
    server = Api().server(operation(method="post", requestBody={"content": content, "required": True}))
    assert server.tools[0].model.input_schema["required"] == ["body"]
    assert "multipart/form-data" in server.report.taken[0].notes[0]


async def test_headers_of_the_connection_and_of_credentials_are_no_arguments() -> None:
    names = ["Authorization", "Content-Type", "Accept", "Host", "Transfer-Encoding", "Cookie", "Content-Length", "X-Ok"]
    server = Api().server(operation([param(name, "header") for name in names]))
    properties = server.tools[0].model.input_schema["properties"]
    assert isinstance(properties, dict)
    assert list(properties) == ["X-Ok"]
    refused = Api().server(operation([param("Host", "header", required=True)]))
    assert refused.report.left_out[0].reason == "it needs the header 'Host', which no caller may write"


async def test_what_is_accepted_is_what_the_document_declares() -> None:
    source = operation(responses={"200": {"description": "", "content": {"image/png": {}}}})
    assert (await Api().sent(source)).headers["accept"] == "image/png, */*;q=0.1"


async def test_the_base_of_the_client_counts_and_the_servers_of_the_document_do_not() -> None:
    source = operation() | {"servers": [{"url": "https://evil.example"}]}
    assert str((await Api().sent(source)).url) == "https://api.example/v1/x"
    request = await Api().sent(source, base_url="http://other.example:81/api/")
    assert str(request.url) == "http://other.example:81/api/x"
    api = Api()
    for wrong in ("", "ftp://a", "https://a/?b=c"):
        api.make_client(base_url=wrong)
        with pytest.raises(ValueError, match="base_url"):
            api.server(source)


async def test_an_argument_with_a_name_that_models_cannot_write_has_another() -> None:
    request = await Api().sent(operation([param("$top"), param("a b[]")]), {"top": 1, "a_b": 2})
    assert target(request) == "/x?%24top=1&a%20b%5B%5D=2"
