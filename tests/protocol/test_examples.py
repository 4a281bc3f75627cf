"""Every example of the specification goes through our models and comes out as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from spec_schemas import SPEC_DIR, request_definitions, validator
from wire_terms import MODERN

import trio_mcp.types as types
from trio_mcp.protocol.codec import codec_for
from trio_mcp.protocol.jsonrpc import ErrorDetail, ErrorResponse, Message, Notification, Request, Response, dump, parse
from trio_mcp.protocol.revisions import Side
from trio_mcp.types import JsonObject, JsonValue, Model

WITHOUT_CACHE_HINTS = "read-resource-result-response"
"""The one example that lacks members its own type requires; the codec adds them."""

EXAMPLES = sorted((SPEC_DIR / MODERN / "examples").glob("*/*.json"))

pytestmark = pytest.mark.usefixtures("spec_dir")

codec = codec_for(MODERN)


def through_a_model(name: str, example: JsonValue) -> tuple[JsonValue, bytes]:
    value = TypeAdapter(getattr(types, name)).validate_python(example, by_alias=True, by_name=False)
    if isinstance(value, Model):
        return value.wire(), value.encode()
    wire = {key: item.wire() if isinstance(item, Model) else item for key, item in value.items()}
    return wire, json.dumps(wire).encode()


def through_json_rpc(name: str, example: JsonObject) -> tuple[JsonValue, bytes]:
    message = parse(json.dumps(example).encode())
    raw = dump(recoded(name, message))
    return json.loads(raw), raw


def recoded(name: str, message: object) -> Message:
    match message:
        case Request(id, method, params):
            return Request(
                id, method, codec.encode_request(method, codec.decode_request(method, params, sender=Side.CLIENT))
            )
        case Notification(method, params):
            sender = Side.CLIENT if method == "notifications/cancelled" else Side.SERVER
            decoded = codec.decode_notification(method, params, sender=sender)
            assert decoded is not None
            return Notification(method, codec.encode_notification(method, decoded))
        case Response(id, result):
            request = name.removesuffix("ResultResponse") + "Request"
            method = {v: k for k, v in request_definitions(SPEC_DIR, MODERN).items()}[request]
            return Response(id, codec.encode_result(method, codec.decode_result(method, result)))
        case ErrorResponse():
            return message
        case other:
            raise AssertionError(other)


def through_an_error(name: str, example: JsonObject) -> tuple[JsonValue, bytes]:
    response = ErrorResponse(1, ErrorDetail(example["code"], example["message"], example.get("data")))
    parsed = parse(dump(response))
    assert parsed == response
    error = json.loads(dump(parsed))["error"]
    return error, json.dumps(error).encode()


def test_all_examples_are_here():
    assert len(EXAMPLES) == 129


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_example_comes_out_as_it_was_and_is_valid(path: Path):
    name = path.parent.name
    example = json.loads(path.read_text(encoding="utf-8"))
    if path.stem == WITHOUT_CACHE_HINTS:
        example["result"] |= {"ttlMs": 0, "cacheScope": "private"}
    if "jsonrpc" in example:
        wire, raw = through_json_rpc(name, example)
    elif name.endswith("Error"):
        wire, raw = through_an_error(name, example)
    else:
        wire, raw = through_a_model(name, example)
    assert example == wire
    assert example == json.loads(raw)
    validator(SPEC_DIR, MODERN, name).validate(json.loads(raw))
