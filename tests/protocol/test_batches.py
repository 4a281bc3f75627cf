"""A batch: which revision has it, what may be in it, and what goes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from naming import unnamed
from spec_schemas import VERSIONS, definitions

from trio_mcp.protocol.codec import codec_for
from trio_mcp.protocol.connection import BatchIn, CancelIn, Connection, Ignored, Rejected, ReplyIn, RequestIn
from trio_mcp.protocol.jsonrpc import (
    INVALID_REQUEST,
    MAX_BATCH,
    METHOD_NOT_FOUND,
    Answers,
    Batch,
    Encoded,
    ErrorDetail,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    dump,
    parse,
)
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from trio_mcp.protocol.revisions import MODERN, REVISIONS, SUPPORTED, Era, Side
from trio_mcp.types import EmptyResult, RequestParams

BATCHING = "2025-03-26"
OTHERS = [version for version in SUPPORTED if version != BATCHING and REVISIONS[version].era is Era.LEGACY]


def batch(*members: Any) -> Batch:
    parsed = parse(json.dumps(list(members)).encode())
    assert isinstance(parsed, Batch)
    return parsed


def ping(id: Any = 1, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "ping", **more}


def agreed(version: str = BATCHING, *, shared_channel: bool = True) -> Connection:
    connection = Connection(Side.CLIENT, shared_channel=shared_channel)
    connection.set_version(version)
    return connection


def received(*members: Any) -> list[Any]:
    """What each message of a batch means."""
    connection = agreed()
    event = connection.receive(batch(*members))
    assert isinstance(event, BatchIn)
    return [connection.receive(message) for message in event.messages]


def refusal(event: object) -> str:
    assert isinstance(event, Rejected)
    assert event.answer
    assert event.error.code == INVALID_REQUEST
    return str(event.error)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_revisions_with_batches_are_those_of_the_schema_files(spec_dir: Path, version: str) -> None:
    assert codec_for(version).revision.batches == ("JSONRPCBatchRequest" in definitions(spec_dir, version))


# the array as a whole


@pytest.mark.parametrize("version", OTHERS)
def test_a_batch_is_refused_as_one_message_in_every_other_revision(version: str) -> None:
    event = agreed(version).receive(batch(ping()))
    assert unnamed(refusal(event), "batches") == []
    assert isinstance(event, Rejected)
    assert event.error.request_id is None


def test_a_batch_before_initialize_is_refused() -> None:
    assert unnamed(refusal(Connection(Side.CLIENT).receive(batch(ping()))), "batches") == []


def test_a_batch_after_the_end_is_ignored() -> None:
    connection = agreed()
    connection.close()
    assert isinstance(connection.receive(batch(ping())), Ignored)


def test_an_empty_batch_is_refused() -> None:
    assert unnamed(refusal(agreed().receive(batch())), "one message") == []


def test_a_batch_over_the_limit_is_refused_and_the_limit_is_named() -> None:
    assert MAX_BATCH == 100
    assert len(received(*map(ping, range(MAX_BATCH)))) == MAX_BATCH
    text = refusal(agreed().receive(batch(*map(ping, range(MAX_BATCH + 1)))))
    assert unnamed(text, 101, 100) == []


# what is in it


def test_a_batch_is_received_message_by_message_in_its_order() -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}}
    connection = agreed()
    connection.new_request("ping", RequestParams())
    event = connection.receive(batch(ping("a"), cancel, answer, ping("b")))
    assert isinstance(event, BatchIn)
    first, cancelled, reply, last = [connection.receive(message) for message in event.messages]
    assert isinstance(first, RequestIn)
    assert first.id == "a"
    assert cancelled == CancelIn("a", None)
    assert reply == ReplyIn(1, EmptyResult())
    assert isinstance(last, RequestIn)
    assert last.id == "b"


@pytest.mark.parametrize("member", [1, "ping", None, True, {}, {"jsonrpc": "1.0", "method": "ping"}], ids=str)
def test_a_member_that_is_no_message_is_refused_alone(member: object) -> None:
    refused, request = received(member, ping())
    refusal(refused)
    assert isinstance(request, RequestIn)


@pytest.mark.parametrize("member", [[], [ping(2)]], ids=["empty", "with a request"])
def test_a_batch_in_a_batch_is_refused_alone(member: object) -> None:
    refused, request = received(member, ping())
    assert "another batch" in refusal(refused)
    assert isinstance(request, RequestIn)


def test_a_member_keeps_the_id_that_could_be_read() -> None:
    (refused,) = received({"id": 7, "method": "ping"})
    assert refused.error.request_id == 7


def test_an_answer_in_a_batch_that_is_malformed_fails_the_request_it_answers() -> None:
    connection = agreed()
    connection.new_request("ping", RequestParams())
    event = connection.receive(batch({"jsonrpc": "2.0", "id": 1, "result": []}))
    assert isinstance(event, BatchIn)
    (reply,) = map(connection.receive, event.messages)
    assert isinstance(reply, ReplyIn)
    assert isinstance(reply.result, Exception)


@pytest.mark.parametrize("shared_channel", [True, False])
def test_requests_of_one_batch_that_share_an_id_are_all_refused(shared_channel: bool) -> None:
    connection = agreed(shared_channel=shared_channel)
    event = connection.receive(batch(ping("twice"), ping("once"), ping("twice")))
    assert isinstance(event, BatchIn)
    first, other, second = [connection.receive(message) for message in event.messages]
    assert unnamed(refusal(first), "'twice'") == []
    assert unnamed(refusal(second), "'twice'") == []
    assert isinstance(other, RequestIn)


def test_a_number_and_a_text_are_not_the_same_id() -> None:
    assert all(isinstance(event, RequestIn) for event in received(ping(1), ping("1")))


def test_an_id_that_is_in_use_by_an_open_request_is_refused_alone() -> None:
    connection = agreed()
    assert isinstance(connection.receive(Request(5, "ping")), RequestIn)
    event = connection.receive(batch(ping(5), ping(6)))
    assert isinstance(event, BatchIn)
    refused, request = map(connection.receive, event.messages)
    assert unnamed(refusal(refused), "use") == []
    assert isinstance(request, RequestIn)


def test_initialize_in_a_batch_is_refused() -> None:
    params = {"protocolVersion": BATCHING, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    refused, request = received(ping(1, method="initialize", params=params), ping(2))
    assert unnamed(refusal(refused), "initialize", "batch") == []
    assert isinstance(request, RequestIn)


@pytest.mark.parametrize("version", [MODERN, "2030-01-01", BATCHING, 1], ids=str)
def test_a_request_with_a_revision_of_its_own_is_refused_in_a_batch(version: object) -> None:
    meta = {PROTOCOL_VERSION: version, CLIENT_CAPABILITIES: {}}
    refused, request = received(ping(1, method="server/discover", params={"_meta": meta}), ping(2))
    assert unnamed(refusal(refused), "batch") == []
    assert refused.error.request_id == 1
    assert isinstance(request, RequestIn)


def test_an_unknown_method_in_a_batch_is_refused_alone() -> None:
    refused, request = received(ping(1, method="no/such"), ping(2))
    assert (refused.error.code, refused.error.request_id) == (METHOD_NOT_FOUND, 1)
    assert isinstance(request, RequestIn)


# writing


def test_answers_are_written_as_one_array_on_one_line() -> None:
    error = ErrorResponse("b", ErrorDetail(-32000, "no"))
    line = dump(Answers((Response(1, Encoded(b'{"a":\n1}')), error)))
    assert b"\n" not in line
    assert json.loads(line) == [
        {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}},
        {"jsonrpc": "2.0", "id": "b", "error": {"code": -32000, "message": "no"}},
    ]


def test_what_was_written_is_read_back() -> None:
    answers = (Response(1, {"a": 1}), Response("b", {}), ErrorResponse(3, ErrorDetail(1, "x")))
    read = parse(dump(Answers(answers)))
    assert isinstance(read, Batch)
    assert read.messages() == answers


def test_a_batch_is_malformed_to_whoever_knows_no_batches() -> None:
    assert isinstance(batch(ping()), Malformed)
    assert batch(ping(), {"jsonrpc": "2.0", "method": "a"}).messages() == (Request(1, "ping"), Notification("a"))
