"""Replies that nobody waits for: a connection tells a late one from a repeated one from one that was never asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trio_mcp.protocol.connection import MAX_WITHDRAWN, Connection, Event, StrayKind, StrayReply
from trio_mcp.protocol.jsonrpc import ErrorDetail, ErrorResponse, RequestId, Response, Unanswered
from trio_mcp.protocol.revisions import NEWEST_LEGACY, Side
from trio_mcp.types import ClientCapabilities, Implementation, InitializeRequestParams, RequestParams


def opened() -> Connection:
    connection = Connection(Side.SERVER)
    connection.set_version(NEWEST_LEGACY)
    return connection


def asked(connection: Connection) -> RequestId:
    return connection.new_request("ping", RequestParams()).id


def kind(event: Event) -> StrayKind:
    assert isinstance(event, StrayReply), event
    return event.kind


Reply = Callable[[RequestId], Response | ErrorResponse | Unanswered]
REPLIES: list[Reply] = [
    lambda id: Response(id, {}),
    lambda id: ErrorResponse(id, ErrorDetail(1, "no")),
    lambda id: Unanswered(id, "no"),
]


@pytest.mark.parametrize("reply", REPLIES, ids=["result", "error", "none will come"])
def test_a_stray_reply_is_late_or_a_duplicate_or_unknown(reply: Reply) -> None:
    connection = opened()
    withdrawn, answered = asked(connection), asked(connection)
    connection.withdraw(withdrawn, "not needed")
    connection.receive(reply(answered))
    assert kind(connection.receive(reply(withdrawn))) is StrayKind.LATE
    assert kind(connection.receive(reply(withdrawn))) is StrayKind.DUPLICATE
    assert kind(connection.receive(reply(answered))) is StrayKind.DUPLICATE
    assert kind(connection.receive(reply(99))) is StrayKind.UNKNOWN
    assert kind(connection.receive(reply("1"))) is StrayKind.UNKNOWN
    assert kind(connection.receive(reply(-1))) is StrayKind.UNKNOWN


def test_what_was_withdrawn_is_remembered_up_to_a_limit() -> None:
    connection = opened()
    ids = [asked(connection) for _ in range(MAX_WITHDRAWN + 1)]
    for request_id in ids:
        connection.withdraw(request_id, "not needed")
    assert kind(connection.receive(Response(ids[0], {}))) is StrayKind.DUPLICATE
    assert kind(connection.receive(Response(ids[1], {}))) is StrayKind.LATE
    assert kind(connection.receive(Response(ids[-1], {}))) is StrayKind.LATE


def test_initialize_is_never_cancelled_and_its_late_answer_is_late() -> None:
    connection = Connection(Side.SERVER)
    hello = InitializeRequestParams(
        protocol_version=NEWEST_LEGACY,
        capabilities=ClientCapabilities(),
        client_info=Implementation(name="x", version="1"),
    )
    request_id = connection.new_request("initialize", hello).id
    assert connection.withdraw(request_id, "too slow") is None
    assert kind(connection.receive(Response(request_id, {}))) is StrayKind.LATE
