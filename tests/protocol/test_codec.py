"""What a codec reads, writes and refuses."""

from __future__ import annotations

import json
import math

import pytest
from samples import LINK

from trio_mcp.errors import LocalProtocolError, RemoteProtocolError
from trio_mcp.protocol.codec import Codec, codec_for
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY, REVISIONS, SUPPORTED, Side
from trio_mcp.types import (
    CallToolRequestParams,
    CallToolResult,
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
    Model,
    RequestedSchema,
    RequestParams,
    ServerCapabilities,
    StringSchema,
    SubscriptionsListenResult,
)

modern = codec_for(MODERN)
legacy = codec_for(NEWEST_LEGACY)

QUESTION = ElicitRequestFormParams(message="?", requested_schema=RequestedSchema(properties={"a": StringSchema()}))
CALL: JsonObject = {"name": "a", "arguments": {}}


def result(codec: Codec, method: str, model: Model) -> JsonObject:
    return json.loads(codec.encode_result(method, model).raw)


def code_and_text(error: pytest.ExceptionInfo[RemoteProtocolError]) -> tuple[int, str]:
    return error.value.code, str(error.value)


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
        ("tools/call", {"name": "a", "arguments": []}, "params.arguments: "),
        ("tools/call", {"name": "a", "inputResponses": {"k": 1}}, "params.inputResponses.k: "),
        ("prompts/get", {"name": "a", "arguments": {"x": 1}}, "params.arguments.x: "),
        ("completion/complete", {"ref": {"type": "ref/prompt"}, "argument": ARGUMENT}, "params.ref.name: "),
        ("completion/complete", {"ref": {"type": "?"}, "argument": ARGUMENT}, "params.ref: "),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["a", 1]}}, LAST + "[1]: "),
    ],
)
def test_bad_params_are_refused_with_the_path_as_the_peer_wrote_it(method: str, params: JsonObject, path: str):
    with pytest.raises(RemoteProtocolError) as error:
        modern.decode_request(method, params, sender=Side.CLIENT)
    code, text = code_and_text(error)
    assert code == -32602
    assert text.startswith(path)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", {"name": "a", "arguments": {"x" * 10_000: 1}}),
        ("completion/complete", {"ref": {"type": "x" * 10_000}, "argument": {"name": "a", "value": ""}}),
    ],
)
def test_an_error_does_not_repeat_what_a_peer_sent_at_length(method: str, params: JsonObject):
    with pytest.raises(RemoteProtocolError) as error:
        legacy.decode_request(method, params, sender=Side.CLIENT)
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
        ("tools/call", {"resultType": "task"}, "result.resultType: "),
        ("tools/call", {"resultType": None, "content": []}, "result.resultType: "),
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
    with pytest.raises(RemoteProtocolError) as error:
        modern.decode_result(method, wire)
    assert str(error.value).startswith(path)


def test_a_legacy_result_has_no_result_type_and_what_a_peer_sends_there_means_nothing():
    wire: JsonObject = {"resultType": "input_required", "requestState": "s", "content": []}
    assert isinstance(legacy.decode_result("tools/call", wire), CallToolResult)


# Writing modern results


def test_a_modern_result_says_that_it_is_complete():
    assert result(modern, "tools/call", CallToolResult(content=[])) == {"resultType": "complete", "content": []}
    assert result(modern, "subscriptions/listen", SubscriptionsListenResult()) == {"resultType": "complete"}


def test_a_cacheable_modern_result_gets_the_hints_that_are_unset():
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert result(modern, "tools/list", ListToolsResult(tools=[])) == {**hints, "tools": []}
    assert result(modern, "tools/list", ListToolsResult(tools=[], ttl_ms=5)) == {**hints, "ttlMs": 5, "tools": []}
    public = ListToolsResult(tools=[], ttl_ms=5, cache_scope="public", result_type="complete")
    assert result(modern, "tools/list", public) == public.wire()
    bare = DiscoverResult(supported_versions=[], capabilities=ServerCapabilities(), result_type="complete")
    assert result(modern, "server/discover", bare) == {**hints, "supportedVersions": [], "capabilities": {}}


@pytest.mark.parametrize("value", [None, 0, False, "", [], [1], {}, {"a": None}])
def test_modern_structured_content_is_any_json_value(value: JsonValue):
    model = CallToolResult(content=[], structured_content=value)
    assert result(modern, "tools/call", model)["structuredContent"] == value


def test_an_interim_result_needs_a_question_or_a_state():
    assert result(modern, "tools/call", InputRequiredResult(request_state="")) == {
        "resultType": "input_required",
        "requestState": "",
    }
    for empty in (InputRequiredResult(), InputRequiredResult(input_requests={})):
        with pytest.raises(LocalProtocolError):
            modern.encode_result("tools/call", empty)


@pytest.mark.parametrize(("codec", "method"), [(legacy, "tools/call"), (modern, "tools/list")])
def test_an_interim_result_has_its_place_in_three_modern_methods_only(codec: Codec, method: str):
    with pytest.raises(LocalProtocolError):
        codec.encode_result(method, InputRequiredResult(request_state="s"))


# Rounds


def test_a_question_and_its_answer_travel_bare():
    interim = json.loads(modern.encode_round("tools/call", {"k": ("elicitation/create", QUESTION)}, "s").raw)
    assert interim["inputRequests"] == {"k": {"method": "elicitation/create", "params": QUESTION.wire()}}
    answer = ElicitResult(action="accept", content={"a": "b"})
    wire = modern.encode_input_response("elicitation/create", answer)
    assert modern.decode_input_response("elicitation/create", wire) == answer


@pytest.mark.parametrize("value", [None, 1, [], {}, {"action": "maybe"}])
def test_a_malformed_answer_is_refused_under_its_key(value: JsonValue):
    with pytest.raises(RemoteProtocolError) as error:
        modern.decode_input_response("elicitation/create", value, path="params.inputResponses.k")
    code, text = code_and_text(error)
    assert code == -32602
    assert text.startswith("params.inputResponses.k")


def test_legacy_revisions_have_no_rounds():
    with pytest.raises(LocalProtocolError):
        legacy.encode_round("tools/call", {"k": ("elicitation/create", QUESTION)}, "s")
    with pytest.raises(LocalProtocolError):
        modern.encode_round("tools/call", {"k": ("tools/call", CallToolRequestParams(name="a"))}, "s")


# What writing refuses


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
    ],
)
def test_what_a_revision_does_not_have_is_a_bug_of_ours(version: str, write: object):
    assert callable(write)
    with pytest.raises(LocalProtocolError):
        write(codec_for(version))


def test_an_authors_own_result_class_is_written_as_the_type_it_extends():
    class Mine(CallToolResult):
        pass

    mine = Mine(content=[LINK], structured_content=[1])
    ours = CallToolResult(content=[LINK], structured_content=[1])
    assert codec_for("2024-11-05").encode_result("tools/call", mine) == codec_for("2024-11-05").encode_result(
        "tools/call", ours
    )


@pytest.mark.parametrize("version", [MODERN, "2024-11-05"])
@pytest.mark.parametrize(
    ("content", "path"),
    [([math.nan], "result.structuredContent.a[0]"), ("\udfff", "result.structuredContent.a")],
)
def test_what_json_cannot_carry_is_refused_with_its_path(version: str, content: JsonValue, path: str):
    broken = GetPromptResult(messages=[], structuredContent={"a": content})  # type: ignore[call-arg]
    with pytest.raises(LocalProtocolError) as error:
        codec_for(version).encode_result("prompts/get", broken)
    assert path in str(error.value)
