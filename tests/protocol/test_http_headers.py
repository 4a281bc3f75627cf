"""What a modern request repeats in its headers, and how a header carries any text."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, strategies as st

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.codec.reading import classify
from trio_mcp.protocol.http.headers import check_headers, decode_value, encode_value, headers_for, headers_of
from trio_mcp.protocol.jsonrpc import Request
from trio_mcp.protocol.revisions import MODERN, PROTOCOL_VERSION
from trio_mcp.types import (
    CallToolRequestParams,
    JsonObject,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
    TaskRequestParams,
    UpdateTaskRequestParams,
)

META: dict[str, JsonObject] = {"_meta": {PROTOCOL_VERSION: MODERN}}
ALWAYS = {"mcp-protocol-version": MODERN}


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/list", {}, None),
        ("tools/list", {"name": "not asked for"}, None),
        ("tools/call", {"name": "echo"}, "echo"),
        ("tools/call", {"name": "Žižkov"}, "=?base64?xb1pxb5rb3Y=?="),
        ("prompts/get", {"name": "review"}, "review"),
        ("resources/read", {"uri": "file:///a b"}, "file:///a b"),
        ("tasks/get", {"taskId": "t"}, "t"),
        ("tasks/update", {"taskId": "t", "inputResponses": {}}, "t"),
        ("tasks/cancel", {"taskId": "t"}, "t"),
    ],
)
def test_a_header_names_the_version_the_method_and_what_is_asked_for(
    method: str, params: JsonObject, name: str | None
) -> None:
    expected = {**ALWAYS, "mcp-method": method} | ({} if name is None else {"mcp-name": name})
    assert expected == headers_of(method, {**META, **params})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", PaginatedRequestParams(meta=META["_meta"])),
        ("tools/call", CallToolRequestParams(name="echo", meta=META["_meta"])),
        ("resources/read", ReadResourceRequestParams(uri="file:///a", meta=META["_meta"])),
        ("tasks/get", TaskRequestParams(task_id="t", meta=META["_meta"])),
        ("tasks/update", UpdateTaskRequestParams(task_id="t", input_responses={}, meta=META["_meta"])),
    ],
)
def test_a_client_writes_the_same_headers_from_the_params(method: str, params: RequestParams) -> None:
    assert headers_for(method, params) == headers_of(method, params.wire())


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_request_about_a_task_may_lack_its_id_in_the_headers_but_not_name_another(method: str) -> None:
    """The extension obliges the client to send it, for intermediaries, and no server to refuse a request without it."""
    request = Request(1, method, {**META, "taskId": "t"})
    headers = {**ALWAYS, "mcp-method": method}
    check_headers(headers, MODERN, request)
    with pytest.raises(RemoteProtocolError, match="mcp-name") as refused:
        check_headers({**headers, "mcp-name": "another"}, MODERN, request)
    assert refused.value.code == -32020


def test_what_is_mirrored_passes_the_check() -> None:
    params: JsonObject = {**META, "name": " Žižkov\n"}
    request = Request(1, "tools/call", params)
    check_headers(headers_of("tools/call", params), classify(request).version, request)


@pytest.mark.parametrize("value", ["echo", "a b", "=?base64?", "=?base64?abc", "abc?=", "=?BASE64?YQ==?=", "?=", ""])
def test_what_a_header_can_carry_is_written_as_it_is(value: str) -> None:
    assert value == encode_value(value)


@pytest.mark.parametrize(
    "value", ["Žižkov", "a\nb", "a\tb", "\x7f", " a", "a ", "\ta", "=?base64?YQ==?=", "=?base64??="]
)
def test_what_a_header_cannot_carry_is_written_in_base64_between_marks(value: str) -> None:
    assert encode_value(value) == f"=?base64?{base64.b64encode(value.encode()).decode()}?="


@pytest.mark.parametrize("value", ["=?base64?YQ==", "YQ==?=", "=?base64?=", "=?BASE64?YQ==?=", "=?utf-8?YQ==?="])
def test_half_of_the_marks_is_nothing_special(value: str) -> None:
    assert value == decode_value("mcp-name", value)


BAD_BASE64 = [f"=?base64?{inside}?=" for inside in ("!!", "YQ", "YQ=", "Y Q==", "/w==", "7aCA")]
READ_DIFFERENTLY = ["\u00e9", "\u00c3\u00a9", "a\tb", "\x7f", "=?base64?\u00e9?="]


@pytest.mark.parametrize("sent", [*BAD_BASE64, *READ_DIFFERENTLY])
def test_invalid_or_ambiguous_base64_is_rejected(sent: str) -> None:
    with pytest.raises(RemoteProtocolError, match="mcp-name") as refused:
        decode_value("mcp-name", sent)
    assert refused.value.code == -32020


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back_from_a_header_as_it_was(value: str) -> None:
    written = encode_value(value)
    assert written.isascii()
    assert written.isprintable()
    assert written == written.strip()
    assert value == decode_value("mcp-name", written)
