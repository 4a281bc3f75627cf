"""Whatever a codec writes is valid in its revision and has no member that the revision does not name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from samples import NOTIFICATIONS, PARAMS, REQUEST_META, RESULTS
from spec_schemas import (
    VERSIONS,
    closed_validator,
    extension_methods,
    extension_validator,
    is_extension,
    request_definitions,
    validator,
)

from trio_mcp.protocol.codec import codec_for
from trio_mcp.protocol.revisions import MODERN, REVISIONS
from trio_mcp.types import CreateMessageResult, GetTaskPayloadResult, InputRequiredResult, JsonObject, Model

COMPOSED = {"EmptyResult", "GetTaskResult", "CancelTaskResult", "TaskStatusNotification"}
"""Definitions that are made of several, each of which would forbid the members of the others."""

UNOFFICIAL = {"TaskRequestParams": "GetTaskRequestParams"}
"""Our names for what the official types name otherwise."""


def cases(table: str, samples: list[Model]) -> list[tuple[str, str, Model]]:
    """Every (version, method, model) in which the model is what the method takes or gives."""
    found = []
    for version in VERSIONS:
        for method in getattr(REVISIONS[version], table).values():
            kinds = (method.params, *method.modes.values()) if samples is not RESULTS else (method.result,)
            found += [(version, method.name, model) for model in samples if type(model) in kinds]
    return found


def official_cases(samples: list[Model]) -> list[tuple[str, str, Model]]:
    """Those that the official types have too: not the tasks extension, nor what is inside a task's payload."""
    every = cases("requests", samples)
    return [case for case in every if not is_extension(*case[:2]) and not isinstance(case[2], GetTaskPayloadResult)]


def name(value: object) -> str:
    return type(value).__name__ if isinstance(value, Model) else str(value)


def check(spec_dir: Path, version: str, definition: str, value: JsonObject) -> None:
    validator(spec_dir, version, definition).validate(value)
    if definition not in COMPOSED:
        closed_validator(spec_dir, version, definition).validate(value)


@pytest.mark.parametrize(("version", "method", "params"), cases("requests", PARAMS), ids=name)
def test_a_request(spec_dir: Path, version: str, method: str, params: Model):
    sent = params.model_copy(update={"meta": REQUEST_META}) if version == MODERN else params
    encoded = codec_for(version).encode_request(method, sent)
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": json.loads(encoded.raw)}
    if is_extension(version, method):
        extension_validator(spec_dir, extension_methods()[method]).validate(message)
        return
    definition = request_definitions(spec_dir, version)[method]
    validator(spec_dir, version, definition).validate(message)
    if version >= "2025-11-25":
        check(spec_dir, version, definition, message)
    else:  # older definitions leave the envelope to a general one
        del message["jsonrpc"], message["id"]
        check(spec_dir, version, definition, message)


@pytest.mark.parametrize(("version", "method", "params"), cases("notifications", NOTIFICATIONS), ids=name)
def test_a_notification(spec_dir: Path, version: str, method: str, params: Model):
    encoded = codec_for(version).encode_notification(method, params)
    message = {"jsonrpc": "2.0", "method": method, "params": json.loads(encoded.raw)}
    if is_extension(version, method):
        extension_validator(spec_dir, extension_methods()[method]).validate(message)
        return
    if version < "2025-11-25":
        del message["jsonrpc"]
    check(spec_dir, version, request_definitions(spec_dir, version)[method], message)


@pytest.mark.parametrize(("version", "method", "result"), cases("requests", RESULTS), ids=name)
def test_a_result(spec_dir: Path, version: str, method: str, result: Model):
    raw = codec_for(version).encode_result(method, result).raw
    value = json.loads(raw)
    definition = type(result).__name__
    if is_extension(version, method):
        extension_validator(spec_dir, "UpdateTaskResult" if method == "tasks/update" else definition).validate(value)
    else:
        check(spec_dir, version, definition, value)
    late = b"resultType", b"ttlMs", b"cacheScope", b"io.modelcontextprotocol/"
    assert version == MODERN or not any(member in raw for member in late)
    assert version != MODERN or value["resultType"] == "complete"


@pytest.mark.parametrize(("version", "method", "params"), cases("inputs", PARAMS), ids=name)
def test_an_input_request(spec_dir: Path, version: str, method: str, params: Model):
    interim = json.loads(codec_for(version).encode_round("tools/call", {"k": (method, params)}, "state").raw)
    validator(spec_dir, version, "InputRequiredResult").validate(interim)
    wire = interim["inputRequests"]["k"]
    check(spec_dir, version, request_definitions(spec_dir, version)[method], wire)
    asking = InputRequiredResult.model_validate({"inputRequests": {"k": wire}})
    raw = codec_for(version).encode_result("tools/call", asking).raw
    validator(spec_dir, version, "InputRequiredResult").validate(json.loads(raw))


@pytest.mark.parametrize(("version", "method", "result"), cases("inputs", RESULTS), ids=name)
def test_an_input_response(spec_dir: Path, version: str, method: str, result: Model):
    wire = codec_for(version).encode_input_response(method, result)
    check(spec_dir, version, type(result).__name__, wire)
    assert codec_for(version).decode_input_response(method, wire) == as_sent(result)


def as_sent(result: Model) -> Model:
    """An answer of one block is sent as that block."""
    if isinstance(result, CreateMessageResult) and isinstance(result.content, list) and len(result.content) == 1:
        return result.model_copy(update={"content": result.content[0]})
    return result


@pytest.mark.parametrize(("version", "method", "result"), official_cases(RESULTS), ids=name)
def test_the_official_types_read_our_results_and_we_read_theirs(version: str, method: str, result: Model):
    codec = codec_for(version)
    ours = json.loads(codec.encode_result(method, result).raw)
    theirs = getattr(mcp_types, type(result).__name__)
    if isinstance(result, CreateMessageResult) and needs_tools(ours["content"]):
        theirs = mcp_types.CreateMessageResultWithTools
    written = theirs.model_validate(ours).model_dump(mode="json", by_alias=True, exclude_unset=True)
    again = json.loads(codec.encode_result(method, codec.decode_result(method, written)).raw)
    assert ours == again


def needs_tools(content: Any) -> bool:
    """Without tools the official SDK takes one plain block."""
    return isinstance(content, list) or content["type"] == "tool_use"


@pytest.mark.parametrize(("version", "method", "params"), official_cases(PARAMS), ids=name)
def test_the_official_types_read_our_requests(version: str, method: str, params: Model):
    ours = json.loads(codec_for(version).encode_request(method, params).raw)
    name = type(params).__name__
    getattr(mcp_types, UNOFFICIAL.get(name, name)).model_validate(ours)


def test_every_method_of_every_revision_has_a_sample():
    for version in VERSIONS:
        revision = REVISIONS[version]
        requests = {method for of, method, _ in cases("requests", PARAMS) if of == version}
        results = {method for of, method, _ in cases("requests", RESULTS) if of == version}
        notifications = {method for of, method, _ in cases("notifications", NOTIFICATIONS) if of == version}
        assert requests == results == set(revision.requests)
        assert notifications == set(revision.notifications)
