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
from trio_mcp.protocol.revisions import CLIENT_CAPABILITIES, MODERN, PROTOCOL_VERSION, REVISIONS, SUPPORTED, Era, Side
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


def received(*members: Any, connection: Connection | None = None) -> list[Any]:
    """What each message of a batch means."""
    connection = connection or agreed()
    event = connection.receive(batch(*members))
    assert isinstance(event, BatchIn)
    return [connection.receive(message) for message in event.messages]


def refused(event: object, code: int, request_id: object, *names: object) -> None:
    assert isinstance(event, Rejected)
    assert event.answer
    assert (event.error.code, event.error.request_id) == (code, request_id)
    assert unnamed(str(event.error), *names) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_revisions_with_batches_are_those_of_the_schema_files(spec_dir: Path, version: str) -> None:
    assert codec_for(version).revision.batches == ("JSONRPCBatchRequest" in definitions(spec_dir, version))


# the array as a whole


@pytest.mark.parametrize(
    ("connection", "members", "names"),
    [
        *[pytest.param(agreed(version), [ping()], ["batches"], id=version) for version in OTHERS],
        pytest.param(Connection(Side.CLIENT), [ping()], ["batches"], id="before initialize"),
        pytest.param(agreed(), [], ["one message"], id="empty"),
        pytest.param(agreed(), [ping(n) for n in range(101)], [101, MAX_BATCH], id="over the limit"),
    ],
)
def test_a_batch_is_refused_as_one_message(connection: Connection, members: list[Any], names: list[object]) -> None:
    refused(connection.receive(batch(*members)), INVALID_REQUEST, None, *names)


def test_a_batch_after_the_end_is_ignored() -> None:
    connection = agreed()
    connection.close()
    assert isinstance(connection.receive(batch(ping())), Ignored)


# what is in it


def test_a_batch_is_received_message_by_message_in_its_order() -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}}
    connection = agreed()
    connection.new_request("ping", RequestParams())
    pings = [ping(n) for n in range(2, MAX_BATCH - 1)]
    first, *events = received(ping("a"), cancel, answer, *pings, connection=connection)
    assert events[:2] == [CancelIn("a", None), ReplyIn(1, EmptyResult())]
    assert all(isinstance(event, RequestIn) for event in (first, *events[2:]))
    assert [event.id for event in (first, *events[2:])] == ["a", *range(2, MAX_BATCH - 1)]


def asking(version: object) -> dict[str, Any]:
    """A request with a revision, as modern ones have it."""
    return ping(7, method="server/discover", params={"_meta": {PROTOCOL_VERSION: version, CLIENT_CAPABILITIES: {}}})


HELLO = {"protocolVersion": BATCHING, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.mark.parametrize(
    ("member", "code", "request_id", "names"),
    [
        *[(member, INVALID_REQUEST, None, []) for member in (1, "ping", None, True, {})],
        ({"id": 7, "jsonrpc": "1.0", "method": "ping"}, INVALID_REQUEST, 7, []),
        ({"id": 7, "method": "ping"}, INVALID_REQUEST, 7, []),
        ([], INVALID_REQUEST, None, ["another batch"]),
        ([ping(2)], INVALID_REQUEST, None, ["another batch"]),
        (ping(7, method="initialize", params=HELLO), INVALID_REQUEST, 7, ["initialize", "batch"]),
        *[(asking(version), INVALID_REQUEST, 7, ["batch"]) for version in (MODERN, "2030-01-01", BATCHING, 1)],
        (ping(7, method="no/such"), METHOD_NOT_FOUND, 7, []),
        (ping("in use"), INVALID_REQUEST, "in use", ["use"]),
    ],
    ids=str,
)
def test_a_bad_member_is_refused_alone(member: object, code: int, request_id: object, names: list[str]) -> None:
    connection = agreed()
    connection.receive(Request("in use", "ping"))
    bad, good = received(member, ping(8), connection=connection)
    refused(bad, code, request_id, *names)
    assert isinstance(good, RequestIn)


def test_an_answer_in_a_batch_that_is_malformed_fails_the_request_it_answers() -> None:
    connection = agreed()
    connection.new_request("ping", RequestParams())
    (reply,) = received({"jsonrpc": "2.0", "id": 1, "result": [1]}, connection=connection)
    assert isinstance(reply, ReplyIn)
    assert isinstance(reply.result, Exception)


@pytest.mark.parametrize("shared_channel", [True, False])
def test_requests_of_one_batch_that_share_an_id_are_all_refused(shared_channel: bool) -> None:
    first, other, second = received(
        ping("twice"), ping("once"), ping("twice"), connection=agreed(shared_channel=shared_channel)
    )
    for event in (first, second):
        refused(event, INVALID_REQUEST, "twice", "'twice'")
    assert isinstance(other, RequestIn)


def test_a_number_and_a_text_are_not_the_same_id() -> None:
    assert all(isinstance(event, RequestIn) for event in received(ping(1), ping("1")))


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


def test_a_batch_is_malformed_for_a_reader_without_batches() -> None:
    assert isinstance(batch(ping()), Malformed)
    assert batch(ping(), {"jsonrpc": "2.0", "method": "a"}).messages() == (Request(1, "ping"), Notification("a"))
