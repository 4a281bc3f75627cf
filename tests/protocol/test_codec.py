"""What a codec reads, writes and refuses."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
from hypothesis import example, given, strategies as st
from naming import naming
from samples import LINK

from trio_mcp.errors import LocalProtocolError, RemoteProtocolError
from trio_mcp.protocol.codec import Codec, codec_for
from trio_mcp.protocol.codec.models import Dropped
from trio_mcp.protocol.jsonrpc import Encoded
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY, REVISIONS, SUPPORTED, Side
from trio_mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    CancelledNotificationParams,
    CompleteResult,
    DiscoverResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    EmptyResult,
    GetPromptResult,
    InputRequiredResult,
    JsonObject,
    JsonValue,
    ListToolsResult,
    LoggingMessageNotificationParams,
    Model,
    ProgressNotificationParams,
    PromptMessage,
    RequestedSchema,
    RequestParams,
    ServerCapabilities,
    StringSchema,
    SubscriptionsListenResult,
    TextContent,
    Tool,
    ToolAnnotations,
    UnknownContent,
)

modern = codec_for(MODERN)
legacy = codec_for(NEWEST_LEGACY)

QUESTION = ElicitRequestFormParams(message="?", requested_schema=RequestedSchema(properties={"a": StringSchema()}))
CALL: JsonObject = {"name": "a", "arguments": {}}


def result(codec: Codec, method: str, model: Model) -> JsonObject:
    return json.loads(codec.encode_result(method, model).raw)


# Choosing one


@pytest.mark.parametrize("version", SUPPORTED)
def test_every_supported_version_has_a_codec(version: str):
    assert codec_for(version).revision is REVISIONS[version]
    assert repr(codec_for(version)) == f"<Codec {version}>"


# Reading requests and notifications


@pytest.mark.parametrize(
    ("version", "method", "sender"),
    [
        (MODERN, "ping", Side.CLIENT),
        (MODERN, "initialize", Side.CLIENT),
        (MODERN, "logging/setLevel", Side.CLIENT),
        (MODERN, "sampling/createMessage", Side.SERVER),
        (NEWEST_LEGACY, "server/discover", Side.CLIENT),
        (NEWEST_LEGACY, "tools/call", Side.SERVER),
        (NEWEST_LEGACY, "roots/list", Side.CLIENT),
        ("2025-03-26", "elicitation/create", Side.SERVER),
        (NEWEST_LEGACY, "x" * 10_000, Side.CLIENT),
    ],
)
def test_a_method_that_the_sender_cannot_ask_for_is_not_found(version: str, method: str, sender: Side):
    with pytest.raises(RemoteProtocolError) as error:
        codec_for(version).decode_request(method, {}, sender=sender)
    assert error.value.code == -32601
    assert len(str(error.value)) < 200


ARGUMENT: JsonObject = {"name": "a", "value": ""}
LAST = "params.notifications.resourceSubscriptions"


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        ("tools/call", {}, "params.name: "),
        ("tools/call", {"name": 1}, "params.name: "),
        ("tools/call", {"name": "a", "arguments": [1]}, "params.arguments: "),
        ("tools/call", {"name": "a", "inputResponses": {"k": 1}}, "params.inputResponses.k: "),
        ("prompts/get", {"name": "a", "arguments": {"x": 1}}, "params.arguments.x: "),
        ("completion/complete", {"ref": {"type": "ref/prompt"}, "argument": ARGUMENT}, "params.ref.name: "),
        ("completion/complete", {"ref": {"type": "?"}, "argument": ARGUMENT}, "params.ref: "),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a", 1]}}, LAST + "[1]: "),
    ],
)
def test_bad_params_are_refused_with_the_path_as_the_peer_wrote_it(method: str, params: JsonObject, path: str):
    with pytest.raises(RemoteProtocolError, match=f"^{re.escape(path)}") as error:
        modern.decode_request(method, params, sender=Side.CLIENT)
    assert error.value.code == -32602


@pytest.mark.parametrize(
    "params", [{"name": "a", "arguments": {"x" * 10_000: 1}}, {"ref": {"type": "x" * 10_000}, "argument": ARGUMENT}]
)
def test_an_error_does_not_repeat_what_a_peer_sent_at_length(params: JsonObject):
    with pytest.raises(RemoteProtocolError) as error:
        legacy.decode_request("prompts/get" if "name" in params else "completion/complete", params, sender=Side.CLIENT)
    assert len(str(error.value)) < 300


def test_the_mode_of_an_elicitation_selects_its_params():
    url: JsonObject = {"mode": "url", "message": "?", "url": "https://example.org", "elicitationId": "e"}
    form: JsonObject = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    decoded = [legacy.decode_request("elicitation/create", params, sender=Side.SERVER) for params in (url, form)]
    assert [type(params) for params in decoded] == [ElicitRequestURLParams, ElicitRequestFormParams]


@pytest.mark.parametrize("mode", ["telepathy", 1, []])
def test_another_mode_is_refused_with_its_path(mode: JsonValue):
    params: JsonObject = {"mode": mode, "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    with pytest.raises(RemoteProtocolError, match=r"^params\.mode: "):
        legacy.decode_request("elicitation/create", params, sender=Side.SERVER)
    assert legacy.decode_request("elicitation/create", {**params, "mode": None}, sender=Side.SERVER)


def test_a_legacy_request_cannot_bring_answers_or_state():
    params: JsonObject = {**CALL, "inputResponses": {"k": {"action": "accept"}}, "requestState": "s"}
    assert CallToolRequestParams(name="a", arguments={}) == legacy.decode_request(
        "tools/call", params, sender=Side.CLIENT
    )
    decoded = modern.decode_request("tools/call", params, sender=Side.CLIENT)
    assert isinstance(decoded, CallToolRequestParams)
    assert decoded.request_state == "s"


@pytest.mark.parametrize(
    ("version", "method", "sender"),
    [
        (NEWEST_LEGACY, "notifications/unheard/of", Side.CLIENT),
        (NEWEST_LEGACY, "notifications/message", Side.CLIENT),
        (MODERN, "notifications/initialized", Side.CLIENT),
        (MODERN, "notifications/progress", Side.CLIENT),
    ],
)
def test_a_notification_that_is_unknown_here_is_none(version: str, method: str, sender: Side):
    assert codec_for(version).decode_notification(method, {}, sender=sender) is None


@pytest.mark.parametrize("params", [{}, {"requestId": None}, {"requestId": 1.5}, {"requestId": True}])
def test_a_malformed_notification_is_refused(params: JsonObject):
    with pytest.raises(RemoteProtocolError, match=r"^params\.requestId"):
        legacy.decode_notification("notifications/cancelled", params, sender=Side.CLIENT)


# Reading results


@pytest.mark.parametrize("wire", [{"content": []}, {"content": [], "resultType": "complete"}])
def test_a_modern_result_without_a_type_is_complete(wire: JsonObject):
    decoded = modern.decode_result("tools/call", wire)
    assert decoded == CallToolResult(content=[], result_type="complete")


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_three_methods_may_be_answered_by_questions(method: str):
    wire: JsonObject = {
        "resultType": "input_required",
        "inputRequests": {"k": {"method": "elicitation/create", "params": QUESTION.wire()}},
    }
    decoded = modern.decode_result(method, wire)
    assert decoded == InputRequiredResult(input_requests={"k": ElicitRequest(params=QUESTION)})


ASKING: JsonObject = {"resultType": "input_required"}


@pytest.mark.parametrize(
    ("method", "wire", "path"),
    [
        ("tools/list", {**ASKING, "requestState": "s"}, "result.resultType: "),
        ("tools/list", {"resultType": "task"}, "result.resultType: "),
        ("tools/call", {"resultType": 1, "content": []}, "result.resultType: "),
        ("tools/call", {"resultType": ["complete"], "content": []}, "result.resultType: "),
        ("tools/call", ASKING, "result: "),
        ("tools/call", {**ASKING, "inputRequests": {}}, "result: "),
        ("tools/call", {**ASKING, "inputRequests": {"k": {"method": "ping"}}}, "result.inputRequests.k"),
        ("tools/call", {}, "result.content: "),
        ("tools/call", {"content": [{"type": "text"}]}, "result.content[0].text: "),
        ("resources/read", {"contents": [{"uri": "a", "text": 1}]}, "result.contents[0].text: "),
    ],
)
def test_a_result_that_is_no_answer_is_refused(method: str, wire: JsonObject, path: str):
    with pytest.raises(RemoteProtocolError, match=f"^{re.escape(path)}"):
        modern.decode_result(method, wire)


def test_a_legacy_result_has_no_result_type_and_what_a_peer_sends_there_means_nothing():
    wire: JsonObject = {"resultType": "input_required", "requestState": "s", "content": []}
    assert isinstance(legacy.decode_result("tools/call", wire), CallToolResult)


# Writing modern results


HINTS: JsonObject = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
PUBLIC = ListToolsResult(tools=[], ttl_ms=5, cache_scope="public", result_type="complete")
BARE = DiscoverResult(supported_versions=[], capabilities=ServerCapabilities(), result_type="complete")


@pytest.mark.parametrize(
    ("method", "model", "wire"),
    [
        ("tools/call", CallToolResult(content=[]), {"resultType": "complete", "content": []}),
        ("subscriptions/listen", SubscriptionsListenResult(), {"resultType": "complete"}),
        ("tools/call", InputRequiredResult(request_state=""), {**ASKING, "requestState": ""}),
        ("tools/list", ListToolsResult(tools=[]), {**HINTS, "tools": []}),
        ("tools/list", ListToolsResult(tools=[], ttl_ms=5), {**HINTS, "ttlMs": 5, "tools": []}),
        ("tools/list", PUBLIC, PUBLIC.wire()),
        ("server/discover", BARE, {**HINTS, "supportedVersions": [], "capabilities": {}}),
    ],
)
def test_a_modern_result_has_a_type_and_the_cache_hints_that_are_unset(method: str, model: Model, wire: JsonObject):
    assert result(modern, method, model) == wire


@pytest.mark.parametrize("value", [None, 0, False, "", [], [1], {}, {"a": None}])
def test_modern_structured_content_is_any_json_value(value: JsonValue):
    model = CallToolResult(content=[], structured_content=value)
    assert result(modern, "tools/call", model)["structuredContent"] == value


# Rounds


def test_a_question_and_its_answer_travel_bare():
    interim = json.loads(modern.encode_round("tools/call", {"k": ("elicitation/create", QUESTION)}, "s").raw)
    assert interim["inputRequests"] == {"k": {"method": "elicitation/create", "params": QUESTION.wire()}}
    answer = ElicitResult(action="accept", content={"a": "b"})
    wire = modern.encode_input_response("elicitation/create", answer)
    assert modern.decode_input_response("elicitation/create", wire) == answer


@pytest.mark.parametrize("value", [None, 1, [], {}, {"action": "maybe"}])
def test_a_malformed_answer_is_refused_under_its_key(value: JsonValue):
    with pytest.raises(RemoteProtocolError, match=r"^params\.inputResponses\.k") as error:
        modern.decode_input_response("elicitation/create", value, path="params.inputResponses.k")
    assert error.value.code == -32602


# What writing refuses

BARE_CALL = CallToolRequestParams(name="a")


@pytest.mark.parametrize(
    ("version", "write"),
    [
        (MODERN, lambda codec: codec.encode_request("ping", RequestParams())),
        (MODERN, lambda codec: codec.encode_request("elicitation/create", QUESTION)),
        ("2025-03-26", lambda codec: codec.encode_request("elicitation/create", QUESTION)),
        (NEWEST_LEGACY, lambda codec: codec.encode_result("server/discover", EmptyResult())),
        (MODERN, lambda codec: codec.encode_notification("notifications/initialized", RequestParams())),
        (NEWEST_LEGACY, lambda codec: codec.encode_request("tools/call", RequestParams())),
        (NEWEST_LEGACY, lambda codec: codec.encode_result("tools/call", EmptyResult())),
        # An interim result has a question or a state, and answers three modern methods only.
        (MODERN, lambda codec: codec.encode_result("tools/call", InputRequiredResult())),
        (MODERN, lambda codec: codec.encode_result("tools/call", InputRequiredResult(input_requests={}))),
        (MODERN, lambda codec: codec.encode_result("tools/list", InputRequiredResult(request_state="s"))),
        (NEWEST_LEGACY, lambda codec: codec.encode_result("tools/call", InputRequiredResult(request_state="s"))),
        (NEWEST_LEGACY, lambda codec: codec.encode_round("tools/call", {"k": ("elicitation/create", QUESTION)}, "s")),
        (MODERN, lambda codec: codec.encode_round("tools/call", {"k": ("tools/call", BARE_CALL)}, "s")),
    ],
)
def test_what_a_revision_does_not_have_is_never_written(version: str, write: Callable[[Codec], object]):
    with pytest.raises(LocalProtocolError):
        write(codec_for(version))


class OwnResult(CallToolResult):
    """Written the general way, which looks at every member."""


def written(codec: Codec, kind: type[CallToolResult], identity: Encoded | None, members: JsonObject) -> bytes | str:
    try:
        return codec.encode_result("tools/call", kind.model_validate(members), identity).raw
    except LocalProtocolError as error:
        return str(error)


BLOCKS = st.fixed_dictionaries(
    {"type": st.just("text"), "text": st.text(st.characters() | st.sampled_from('"\\\n\ud800\u2028'), max_size=9)},
    optional={"annotations": st.just({"priority": 1}), "_meta": st.just({"a": 1}), "x": st.none() | st.just(1)},
)
RESULTS = st.fixed_dictionaries(
    {"content": st.lists(BLOCKS, max_size=2)},
    optional={
        "isError": st.booleans(),
        "structuredContent": st.none() | st.just({"a": 1}),
        "_meta": st.just({"a": 1}),
        "resultType": st.just("complete"),
        "x": st.just(1),
    },
)


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("identity", [None, Encoded(b'{"name":"x","version":"1"}')])
@given(members=RESULTS)
@example(members={"content": [{"type": "text", "text": "NaN"}]})
@example(members={"content": [{"type": "text", "text": "\ud800"}]})
def test_a_bare_text_is_written_as_the_general_way_writes_it(
    version: str, identity: Encoded | None, members: JsonObject
) -> None:
    codec = codec_for(version)
    assert written(codec, CallToolResult, identity, members) == written(codec, OwnResult, identity, members)


@given(text=st.text() | st.sampled_from(["", '"', "\\", "\x00", "\u2028", "é😀"]))
@pytest.mark.parametrize("version", SUPPORTED)
def test_a_text_is_encoded_as_the_result_with_this_text(version: str, text: str) -> None:
    codec, whole = codec_for(version), CallToolResult(content=[TextContent(text=text)])
    assert codec.encode_result("tools/call", text) == codec.encode_result("tools/call", whole)


def test_an_authors_own_result_class_is_written_as_the_type_it_extends():
    class Mine(CallToolResult):
        pass

    codec = codec_for("2024-11-05")
    mine, ours = (kind(content=[LINK], structured_content=[1]) for kind in (Mine, CallToolResult))
    assert codec.encode_result("tools/call", mine) == codec.encode_result("tools/call", ours)


@pytest.mark.parametrize("version", [MODERN, "2024-11-05"])
@pytest.mark.parametrize(
    ("content", "path"), [([math.nan], "result.structuredContent.a[0]"), ([10**320], "result.structuredContent.a[0]")]
)
def test_what_json_cannot_carry_is_refused_with_its_path(version: str, content: JsonValue, path: str):
    broken = GetPromptResult(messages=[], structuredContent={"a": content})  # type: ignore[call-arg]
    with pytest.raises(LocalProtocolError, match=naming(path)):
        codec_for(version).encode_result("prompts/get", broken)


@pytest.mark.parametrize("version", [MODERN, "2024-11-05"])
@pytest.mark.parametrize("text", ["\udfff", "\udfff NaN"])
def test_half_of_a_character_is_replaced_in_text_that_is_shown_and_refused_in_a_name(version: str, text: str) -> None:
    codec = codec_for(version)
    result = GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(text=text))])
    assert text.replace("\udfff", "\ufffd").encode() in codec.encode_result("prompts/get", result).raw
    with pytest.raises(LocalProtocolError, match=naming("params.name", "surrogate")):
        codec.encode_request("tools/call", CallToolRequestParams(name=text, arguments={}))


@pytest.mark.parametrize("version", [MODERN, "2024-11-05"])
def test_no_message_carries_a_number_that_its_reader_refuses(version: str) -> None:
    codec, long = codec_for(version), 10**320
    with pytest.raises(LocalProtocolError, match=naming("params.arguments.n", "320 characters")):
        codec.encode_request("tools/call", CallToolRequestParams(name="t", arguments={"n": long}))
    with pytest.raises(LocalProtocolError, match=naming("params.data", "320 characters")):
        codec.encode_notification("notifications/message", LoggingMessageNotificationParams(level="info", data=long))
    with pytest.raises(LocalProtocolError, match=naming("params.progress", "320 characters")):
        codec.encode_notification("notifications/progress", ProgressNotificationParams(progress_token=1, progress=long))


def test_no_answer_to_a_question_carries_a_number_that_its_reader_refuses() -> None:
    answer = ElicitResult(action="accept", content={"n": 10**320})
    with pytest.raises(LocalProtocolError, match=naming("result.content.n", "320 characters")):
        codec_for("2025-06-18").encode_result("elicitation/create", answer)
    retry = CallToolRequestParams(
        name="t", input_responses={"k": codec_for(MODERN).encode_input_response("elicitation/create", answer)}
    )
    with pytest.raises(LocalProtocolError, match=naming("params.inputResponses.k.content.n", "320 characters")):
        codec_for(MODERN).encode_request("tools/call", retry)


# What other languages write, and what cannot be read in a list


@pytest.mark.parametrize(
    ("method", "wire", "expected"),
    [
        ("tools/call", {"resultType": None, "content": []}, CallToolResult(content=[])),
        ("tools/call", {"content": None}, CallToolResult(content=[])),
        ("tools/list", {"tools": None, "nextCursor": None, "ttlMs": 5.0}, ListToolsResult(tools=[], ttl_ms=5)),
        (
            "tools/list",
            {"tools": [{"name": "t", "inputSchema": [], "annotations": {"readOnlyHint": None}}]},
            ListToolsResult(tools=[Tool(name="t", input_schema={}, annotations=ToolAnnotations())]),
        ),
    ],
)
def test_null_and_an_empty_list_in_a_result_stand_for_nothing(method: str, wire: JsonObject, expected: Model) -> None:
    found = modern.decode_result(method, wire)
    assert {**found.wire(), "resultType": None} == {**expected.wire(), "resultType": None}


def test_a_cancel_may_name_its_request_as_a_fraction() -> None:
    found = codec_for("2025-11-25").decode_notification(
        "notifications/cancelled", {"requestId": 7.0}, sender=Side.CLIENT
    )
    assert isinstance(found, CancelledNotificationParams)
    assert (found.request_id, type(found.request_id)) == (7, int)


@pytest.mark.parametrize("size", [1, 3000])
def test_a_member_of_a_list_that_cannot_be_read_is_left_out_and_named(size: int) -> None:
    good: JsonObject = {"name": "good", "inputSchema": {"type": "object"}}
    bad: list[JsonValue] = [{"name": "bad", "inputSchema": 5}] * size
    dropped: list[Dropped] = []
    found = modern.decode_result("tools/list", {"tools": [*bad, good, "no tool"]}, dropped=dropped)
    assert isinstance(found, ListToolsResult)
    assert [tool.name for tool in found.tools] == ["good"]
    assert [(each.kind, each.name) for each in dropped] == [("tool", "bad")] * size + [("tool", f"tools[{size + 1}]")]
    assert "result.tools[0].inputSchema" in dropped[0].why


@pytest.mark.parametrize(
    ("method", "member", "bad", "good", "name"),
    [
        ("prompts/list", "prompts", {"name": "p", "arguments": 1}, {"name": "q"}, "p"),
        ("resources/list", "resources", {"uri": "a:b"}, {"uri": "a:c", "name": "c"}, "a:b"),
        ("resources/templates/list", "resourceTemplates", {"name": "x"}, {"uriTemplate": "a:{b}", "name": "x"}, None),
        ("tools/call", "content", {"type": "text", "text": 1}, {"type": "text", "text": "a"}, "text"),
        (
            "prompts/get",
            "messages",
            {"role": "system", "content": {}},
            {"role": "user", "content": {"type": "text", "text": "a"}},
            "system",
        ),
        ("resources/read", "contents", {"uri": "a:b"}, {"uri": "a:b", "text": "t"}, "a:b"),
    ],
)
def test_each_list_of_a_server_loses_only_what_cannot_be_read(
    method: str, member: str, bad: JsonObject, good: JsonObject, name: str | None
) -> None:
    dropped: list[Dropped] = []
    found = modern.decode_result(method, {member: [bad, good]}, dropped=dropped).wire()
    assert found[member] == [good]
    assert [each.name for each in dropped] == [name or f"{member}[0]"]
    with pytest.raises(RemoteProtocolError):
        modern.decode_result(method, {member: [bad, good]})


@pytest.mark.parametrize("bad", [5, None, ["x"], {"label": "x"}])
def test_a_suggestion_that_cannot_be_read_costs_no_other(bad: JsonValue) -> None:
    dropped: list[Dropped] = []
    odd: JsonObject = {"completion": {"values": ["a", bad, "b"], "total": "many", "hasMore": True}}
    found = modern.decode_result("completion/complete", odd, dropped=dropped)
    assert isinstance(found, CompleteResult)
    assert (found.completion.values, found.completion.total, found.completion.has_more) == (["a", "b"], None, True)
    assert [(each.kind, each.name) for each in dropped] == [("suggestion", "values[1]"), ("member", "completion.total")]
    with pytest.raises(RemoteProtocolError):
        modern.decode_result("completion/complete", odd)


@pytest.mark.parametrize(
    ("method", "member", "odd"),
    [
        ("tools/list", "tools", {"nextCursor": 5}),
        ("prompts/list", "prompts", {"ttlMs": "soon"}),
        ("resources/list", "resources", {"cacheScope": "everyone"}),
        ("resources/read", "contents", {"ttlMs": -1.5}),
        ("prompts/get", "messages", {"description": 5}),
        ("tools/call", "content", {"_meta": "none"}),
    ],
)
def test_an_odd_member_beside_the_list_of_a_result_is_left_out(method: str, member: str, odd: JsonObject) -> None:
    dropped: list[Dropped] = []
    found = modern.decode_result(method, {member: [], **odd}, dropped=dropped).wire()
    assert found.keys() & {member, *odd} == {member}
    assert [(each.kind, each.name) for each in dropped] == [("member", *odd)]
    with pytest.raises(RemoteProtocolError):
        modern.decode_result(method, {member: [], **odd})


@pytest.mark.parametrize("odd", [{"isError": "yes"}, {"isError": 5}, {"content": 5}, {"resultType": 5}])
def test_what_decides_how_a_result_is_read_is_never_left_out(odd: JsonObject) -> None:
    with pytest.raises(RemoteProtocolError):
        modern.decode_result("tools/call", {"content": [], **odd}, dropped=[])


@pytest.mark.parametrize("odd", [{}, {"capabilities": 5}, {"capabilities": "tools"}])
def test_a_server_whose_capabilities_cannot_be_read_declares_none(odd: JsonObject) -> None:
    dropped: list[Dropped] = []
    said: JsonObject = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "s", "version": "1"}, **odd}
    found = codec_for("2025-06-18").decode_result("initialize", said, dropped=dropped).wire()
    assert found["capabilities"] == {}
    assert [each.name for each in dropped] == ["capabilities"]


def test_nothing_is_dropped_of_what_cannot_be_read_at_all() -> None:
    dropped: list[Dropped] = []
    with pytest.raises(RemoteProtocolError, match=naming("supportedVersions")):
        modern.decode_result("server/discover", {"serverInfo": 5}, dropped=dropped)
    assert dropped == []


def test_a_result_of_structure_alone_has_no_content() -> None:
    found = modern.decode_result("tools/call", {"structuredContent": {"a": 1}}, dropped=[])
    assert isinstance(found, CallToolResult)
    assert (found.content, found.structured_content) == ([], {"a": 1})
    for odd in ({}, {"content": 5, "structuredContent": {"a": 1}}):
        with pytest.raises(RemoteProtocolError, match=naming("result.content")):
            modern.decode_result("tools/call", odd, dropped=[])


def test_a_block_of_an_unknown_kind_keeps_its_members_and_one_of_a_known_kind_must_be_right() -> None:
    block: JsonObject = {"type": "video", "url": "https://a.example/v", "nested": {"n": None}}
    found = modern.decode_result("tools/call", {"content": [block]})
    assert isinstance(found, CallToolResult)
    assert isinstance(found.content[0], UnknownContent)
    assert found.content[0].wire() == block
    assert json.loads(found.encode())["content"] == [block]


@pytest.mark.parametrize(
    ("odd", "expected", "lost"),
    [
        (
            {"capabilities": {"tools": True, "logging": False, "prompts": []}},
            {"capabilities": {"tools": {}, "prompts": {}}},
            "",
        ),
        ({"capabilities": {"tools": "yes"}}, {"capabilities": {}}, "capabilities.tools"),
        (
            {"capabilities": {"tools": {"listChanged": "yes"}}},
            {"capabilities": {"tools": {}}},
            "capabilities.tools.listChanged",
        ),
        ({"instructions": ["a"]}, {"instructions": None}, "instructions"),
        ({"serverInfo": {"name": "s"}}, {"serverInfo": {"name": "s", "version": ""}}, "serverInfo.version"),
        (
            {"serverInfo": {"name": "s", "version": 1}},
            {"serverInfo": {"name": "s", "version": ""}},
            "serverInfo.version",
        ),
        ({"serverInfo": "s"}, {"serverInfo": {"name": "", "version": ""}}, "serverInfo"),
        (
            {"serverInfo": {"name": "s", "version": "1", "icons": [{}]}},
            {"serverInfo": {"name": "s", "version": "1"}},
            "serverInfo.icons.0.src",
        ),
    ],
)
def test_a_client_opens_a_session_with_a_server_that_says_something_odd_of_itself(
    odd: JsonObject, expected: JsonObject, lost: str
) -> None:
    whole = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    dropped: list[Dropped] = []
    found = legacy.decode_result("initialize", {**whole, **odd}, dropped=dropped).wire()
    assert {name: found.get(name) for name in expected} == expected
    assert ",".join(each.name for each in dropped) == lost
    with pytest.raises(RemoteProtocolError):
        legacy.decode_result("initialize", {**whole, "protocolVersion": 5}, dropped=dropped)


@pytest.mark.parametrize("capabilities", [{"sampling": True, "roots": False}, {"sampling": [], "roots": None}])
def test_a_capability_of_a_client_may_be_a_flag(capabilities: JsonObject) -> None:
    params = {
        "protocolVersion": NEWEST_LEGACY,
        "capabilities": capabilities,
        "clientInfo": {"name": "c", "version": "1"},
    }
    found = legacy.decode_request("initialize", params, sender=Side.CLIENT).wire()
    assert found["capabilities"] == {"sampling": {}}


# forms, of whose schemas the bytes are kept

FORM_METHOD = "elicitation/create"


def form_with(message: str, schema: RequestedSchema, **members: Any) -> ElicitRequestFormParams:
    return ElicitRequestFormParams(mode="form", message=message, requested_schema=schema, **members)


def new_schema() -> RequestedSchema:
    value = {"type": "integer", "title": '"message":"what"'}
    return RequestedSchema.model_validate({"type": "object", "properties": {"value": value}, "required": ["value"]})


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
@given(st.lists(st.text() | st.sampled_from(["NaN", "Infinity", "\ud800", "9" * 400, '"message":""']), min_size=2))
def test_a_form_whose_schema_was_sent_before_has_the_same_bytes(version: str, messages: list[str]) -> None:
    codec, schema = codec_for(version), new_schema()
    encode = codec.encode_question if version == "2026-07-28" else codec.encode_request
    for message in messages:
        assert result_of(encode, form_with(message, schema)) == result_of(encode, form_with(message, new_schema()))
        more = {"meta": {"k": 1}}
        assert result_of(encode, form_with(message, schema, **more)) == result_of(
            encode, form_with(message, new_schema(), **more)
        )


def result_of(encode: Callable[[str, Model], object], params: Model) -> object:
    try:
        return encode(FORM_METHOD, params)
    except LocalProtocolError as error:
        return str(error)


def test_the_bytes_of_a_schema_do_not_keep_it() -> None:
    schema = new_schema()
    gone = ref(schema)
    codec_for("2025-11-25").encode_request(FORM_METHOD, form_with("Which?", schema))
    del schema
    assert gone() is None
