"""The state of a conversation, for either side: messages in, events out; intents in, messages out."""

from __future__ import annotations

import pytest
from naming import unnamed

from trio_mcp.errors import Disconnected, LocalProtocolError, PeerError, RemoteProtocolError
from trio_mcp.protocol.codec import codec_for
from trio_mcp.protocol.connection import (
    CancelIn,
    Connection,
    Event,
    Ignored,
    NotificationIn,
    Phase,
    Rejected,
    ReplyIn,
    RequestIn,
)
from trio_mcp.protocol.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    ErrorDetail,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    Unanswered,
    dump,
    parse,
)
from trio_mcp.protocol.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY, SUPPORTED, Side
from trio_mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    InitializeRequestParams,
    InputRequiredResult,
    JsonObject,
    ProgressNotificationParams,
    RequestParams,
)

HELLO: JsonObject = {
    "protocolVersion": NEWEST_LEGACY,
    "capabilities": {},
    "clientInfo": {"name": "tester", "version": "1"},
}


def call(request_id: RequestId = 1, **meta: object) -> Request:
    return Request(request_id, "tools/call", {"name": "book", **({"_meta": meta} if meta else {})})


def modern(request_id: RequestId = 1, version: str = MODERN) -> Request:
    return call(request_id, **{PROTOCOL_VERSION: version, CLIENT_CAPABILITIES: {}})


def opened(peer: Side = Side.CLIENT, *, shared_channel: bool = True) -> Connection:
    connection = Connection(peer, shared_channel=shared_channel)
    connection.set_version(NEWEST_LEGACY)
    return connection


def refusal(event: Event) -> RemoteProtocolError:
    assert isinstance(event, Rejected)
    return event.error


def asked(connection: Connection, method: str = "tools/call") -> RequestId:
    params = CallToolRequestParams(name="book") if method == "tools/call" else RequestParams()
    return connection.new_request(method, params).id


# phases


def test_a_server_takes_initialize_and_ping_before_anything_else() -> None:
    connection = Connection(Side.CLIENT)
    assert Phase.OPENING is connection.terms.phase
    event = connection.receive(Request(1, "initialize", HELLO))
    assert isinstance(event, RequestIn)
    assert isinstance(event.params, InitializeRequestParams)
    assert not event.terms.asks_in_rounds
    assert isinstance(connection.receive(Request(2, "ping", {})), RequestIn)


def test_initialize_alone_does_not_open_the_session() -> None:
    connection = Connection(Side.CLIENT)
    connection.receive(Request(1, "initialize", HELLO))
    assert Phase.OPENING is connection.terms.phase


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "logging/setLevel"])
def test_a_call_before_initialize_is_refused_and_told_both_ways_out(method: str) -> None:
    error = refusal(Connection(Side.CLIENT).receive(Request(1, method, {})))
    assert (error.code, error.request_id) == (INVALID_REQUEST, 1)
    assert unnamed(str(error), "initialize", PROTOCOL_VERSION) == []


def test_a_second_initialize_is_refused_and_changes_nothing() -> None:
    connection = Connection(Side.CLIENT)
    connection.set_version("2025-03-26")
    error = refusal(connection.receive(Request(2, "initialize", HELLO)))
    assert error.code == INVALID_REQUEST
    assert "initialized already" in str(error)
    assert (connection.terms.phase, connection.terms.codec.revision.name) == (Phase.OPEN, "2025-03-26")


@pytest.mark.parametrize("version", [version for version in SUPPORTED if version != MODERN])
def test_the_revision_that_was_agreed_on_is_the_one_spoken(version: str) -> None:
    connection = Connection(Side.CLIENT)
    connection.set_version(version)
    event = connection.receive(call())
    assert isinstance(event, RequestIn)
    assert version == event.terms.codec.revision.name


def test_a_method_that_the_agreed_revision_lacks_is_not_found() -> None:
    client = Connection(Side.SERVER)
    client.set_version("2025-03-26")  # elicitation came with 2025-06-18
    error = refusal(client.receive(Request(1, "elicitation/create", {"message": "?", "requestedSchema": {}})))
    assert error.code == METHOD_NOT_FOUND


def test_a_closed_connection_ignores_everything() -> None:
    connection = opened()
    connection.close()
    assert Phase.CLOSED is connection.terms.phase
    for message in (call(), modern(), Notification("notifications/initialized", {}), Response(1, {})):
        assert isinstance(connection.receive(message), Ignored)


def test_closing_tells_which_requests_of_ours_will_never_be_answered() -> None:
    connection = opened(Side.SERVER)
    ids = [asked(connection), asked(connection)]
    assert ids == connection.close()
    assert connection.close() == []


def test_nothing_is_asked_on_a_closed_connection() -> None:
    connection = opened(Side.SERVER)
    connection.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        asked(connection)


# roles


@pytest.mark.parametrize(
    ("peer", "method"),
    [
        (Side.CLIENT, "roots/list"),
        (Side.CLIENT, "sampling/createMessage"),
        (Side.CLIENT, "elicitation/create"),
        (Side.SERVER, "tools/call"),
        (Side.SERVER, "initialize"),
        (Side.SERVER, "logging/setLevel"),
        (Side.CLIENT, "no/such/method"),
        (Side.SERVER, "no/such/method"),
    ],
)
def test_a_method_that_travels_the_other_way_is_not_found(peer: Side, method: str) -> None:
    connection = Connection(peer) if method == "initialize" else opened(peer)
    error = refusal(connection.receive(Request(9, method, {})))
    assert (error.code, error.request_id) == (METHOD_NOT_FOUND, 9)


@pytest.mark.parametrize("peer", list(Side))
def test_either_side_may_ping(peer: Side) -> None:
    assert isinstance(opened(peer).receive(Request(1, "ping", {})), RequestIn)


def test_the_clients_end_opens_with_the_answer_to_initialize() -> None:
    connection = Connection(Side.SERVER)
    request = connection.new_request("initialize", InitializeRequestParams.model_validate(HELLO))
    answer = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    event = connection.receive(Response(request.id, answer))
    assert isinstance(event, ReplyIn)
    connection.set_version(NEWEST_LEGACY)
    assert Phase.OPEN is connection.terms.phase


# modern requests


@pytest.mark.parametrize("connection", [Connection(Side.CLIENT), opened()], ids=["opening", "open"])
def test_a_modern_request_is_valid_in_every_phase_and_names_its_own_revision(connection: Connection) -> None:
    event = connection.receive(modern())
    assert isinstance(event, RequestIn)
    assert event.terms.codec.revision.name == MODERN
    assert event.terms.asks_in_rounds
    assert event.terms.codec.revision.name == MODERN


def test_a_modern_request_leaves_the_phase_and_the_agreed_revision_alone() -> None:
    connection = Connection(Side.CLIENT)
    connection.receive(modern())
    assert (connection.terms.phase, connection.terms.codec.revision.name) == (Phase.OPENING, NEWEST_LEGACY)


@pytest.mark.parametrize("version", ["1999-01-01", NEWEST_LEGACY, ""])
def test_an_unsupported_version_is_refused_with_all_that_are_supported(version: str) -> None:
    error = refusal(Connection(Side.CLIENT).receive(modern(version=version)))
    assert (error.code, error.request_id) == (UNSUPPORTED_VERSION, 1)
    assert {"supported": list(SUPPORTED), "requested": version} == error.data


def test_a_modern_request_without_capabilities_is_refused_by_name() -> None:
    error = refusal(opened().receive(call(**{PROTOCOL_VERSION: MODERN})))
    assert (error.code, error.request_id) == (INVALID_PARAMS, 1)
    assert CLIENT_CAPABILITIES in str(error)


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel"])
def test_what_the_modern_era_dropped_is_not_found_there(method: str) -> None:
    params: JsonObject = {"_meta": {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}}
    assert refusal(opened().receive(Request(1, method, params))).code == METHOD_NOT_FOUND


def test_the_answer_to_a_modern_request_of_ours_may_be_a_round() -> None:
    connection = Connection(Side.SERVER)
    request = connection.new_request("tools/call", CallToolRequestParams(name="book"), codec_for(MODERN))
    event = connection.receive(Response(request.id, {"resultType": "input_required", "requestState": "s"}))
    assert isinstance(event, ReplyIn)
    assert isinstance(event.result, InputRequiredResult)


# ids


def test_an_id_in_use_is_refused_where_all_requests_share_a_channel() -> None:
    connection = opened()
    assert isinstance(connection.receive(call("a")), RequestIn)
    error = refusal(connection.receive(call("a")))
    assert (error.code, error.request_id) == (INVALID_REQUEST, "a")
    assert unnamed(str(error), "'a'") == []


def test_an_id_may_be_used_again_once_it_was_answered() -> None:
    connection = opened()
    for _ in range(500):
        assert isinstance(connection.receive(call(1)), RequestIn)
        connection.release_id(1)


def test_a_number_and_the_same_digits_are_different_ids() -> None:
    connection = opened()
    assert isinstance(connection.receive(call(1)), RequestIn)
    assert isinstance(connection.receive(call("1")), RequestIn)


def test_duplicate_ids_are_tolerated_where_every_request_has_a_stream_of_its_own() -> None:
    connection = opened(shared_channel=False)
    for _ in range(3):
        assert isinstance(connection.receive(call(1)), RequestIn)


def test_a_request_that_was_refused_does_not_occupy_its_id() -> None:
    connection = opened()
    assert isinstance(connection.receive(Request(1, "tools/call", {})), Rejected)  # no name
    assert isinstance(connection.receive(call(1)), RequestIn)


def test_our_ids_are_unique_for_the_life_of_the_connection() -> None:
    connection = opened(Side.SERVER)
    ids = []
    for _ in range(100):
        ids.append(asked(connection))
        connection.withdraw(ids[-1], "not needed")
    assert len(set(ids)) == 100


# answers


def test_an_answer_is_decoded_by_the_method_that_was_asked() -> None:
    connection = opened(Side.SERVER)
    tool, ping = asked(connection), asked(connection, "ping")
    assert ReplyIn(ping, EmptyResult()) == connection.receive(Response(ping, {}))
    event = connection.receive(Response(tool, {"content": []}))
    assert ReplyIn(tool, CallToolResult(content=[])) == event


@pytest.mark.parametrize("answer", [Response(99, {}), ErrorResponse(99, ErrorDetail(1, "no")), Response("1", {})])
def test_an_answer_to_an_unknown_id_is_ignored(answer: Response | ErrorResponse) -> None:
    connection = opened(Side.SERVER)
    asked(connection)
    event = connection.receive(answer)
    assert isinstance(event, Ignored)
    assert unnamed(event.why, "open") == []


def test_the_first_answer_wins_and_the_second_is_ignored() -> None:
    connection = opened(Side.SERVER)
    request = asked(connection, "ping")
    assert isinstance(connection.receive(Response(request, {})), ReplyIn)
    assert isinstance(connection.receive(Response(request, {})), Ignored)


def test_an_answer_that_comes_after_the_withdrawal_is_ignored() -> None:
    connection = opened(Side.SERVER)
    request = asked(connection)
    connection.withdraw(request, "too late")
    assert isinstance(connection.receive(Response(request, {"content": []})), Ignored)


def test_an_error_is_the_peers_own_error_where_the_answer_is_awaited() -> None:
    connection = opened(Side.SERVER)
    request = asked(connection)
    event = connection.receive(ErrorResponse(request, ErrorDetail(-32000, "busy", {"retry": 1})))
    assert isinstance(event, ReplyIn)
    assert isinstance(event.result, PeerError)
    assert (event.result.code, event.result.message, event.result.data) == (-32000, "busy", {"retry": 1})


def test_an_error_that_names_no_request_is_ignored() -> None:
    event = opened(Side.SERVER).receive(ErrorResponse(None, ErrorDetail(PARSE_ERROR, "what?")))
    assert isinstance(event, Ignored)


@pytest.mark.parametrize("result", [{}, {"content": "text"}, {"content": [{"type": "text"}]}])
def test_a_malformed_result_is_an_error_where_it_is_awaited(result: JsonObject) -> None:
    connection = opened(Side.SERVER)
    request = asked(connection)
    event = connection.receive(Response(request, result))
    assert isinstance(event, ReplyIn)
    assert isinstance(event.result, RemoteProtocolError)
    assert "result.content" in str(event.result)


# bytes that were no message


def test_bytes_that_are_no_message_are_refused_and_answered() -> None:
    malformed = parse(b'{"jsonrpc": "2.0", "id": 7, "method": 3}')
    assert isinstance(malformed, Malformed)
    event = opened().receive(malformed)
    assert isinstance(event, Rejected)
    assert event.answer
    assert event.error.request_id == 7


def test_a_broken_answer_is_an_error_where_it_is_awaited() -> None:
    connection = opened(Side.SERVER)
    request = asked(connection)
    broken = RemoteProtocolError("the result is no object")
    assert ReplyIn(request, broken) == connection.receive(Malformed(broken, answers=request))
    assert isinstance(connection.receive(Malformed(broken, answers=request)), Ignored)


def test_a_request_that_will_never_be_answered_is_over_where_it_is_awaited() -> None:
    connection = opened(Side.SERVER)
    request = asked(connection)
    event = connection.receive(Unanswered(request, "the stream ended"))
    assert isinstance(event, ReplyIn)
    assert isinstance(event.result, Disconnected)
    assert str(event.result) == "the stream ended"
    assert isinstance(connection.receive(Unanswered(request, "again")), Ignored)


# notifications


def test_a_notification_is_decoded() -> None:
    connection = opened(Side.SERVER)
    event = connection.receive(Notification("notifications/progress", {"progressToken": 1, "progress": 0.5}))
    expected = ProgressNotificationParams(progress_token=1, progress=0.5)
    assert NotificationIn("notifications/progress", expected) == event


@pytest.mark.parametrize("method", ["notifications/unheard_of", "notifications/message", "tools/call"])
def test_an_unknown_notification_or_one_that_travels_the_other_way_is_ignored(method: str) -> None:
    assert isinstance(opened(Side.CLIENT).receive(Notification(method, {})), Ignored)


def test_a_broken_notification_is_dropped_and_not_answered() -> None:
    event = opened(Side.SERVER).receive(Notification("notifications/progress", {"progress": "much"}))
    assert isinstance(event, Rejected)
    assert not event.answer


# cancellation


def test_a_cancellation_names_its_request_and_its_reason() -> None:
    event = opened().receive(Notification("notifications/cancelled", {"requestId": "a", "reason": "bored"}))
    assert CancelIn("a", "bored") == event


def test_a_cancellation_that_names_no_request_is_dropped_without_an_answer() -> None:
    event = opened().receive(Notification("notifications/cancelled", {}))
    assert isinstance(event, Ignored) or (isinstance(event, Rejected) and not event.answer)


def test_a_withdrawal_tells_the_peer_once() -> None:
    connection = opened(Side.SERVER)
    request = asked(connection)
    notice = connection.withdraw(request, "the user left")
    assert notice is not None
    assert notice.method == "notifications/cancelled"
    sent = parse(dump(notice))
    assert Notification("notifications/cancelled", {"requestId": request, "reason": "the user left"}) == sent
    assert connection.withdraw(request, "again") is None


def test_the_withdrawal_of_an_answered_or_unknown_request_tells_nobody() -> None:
    connection = opened(Side.SERVER)
    request = asked(connection, "ping")
    connection.receive(Response(request, {}))
    assert connection.withdraw(request, "late") is None
    assert connection.withdraw(99, "unknown") is None


def test_initialize_is_never_cancelled() -> None:
    connection = Connection(Side.SERVER)
    request = connection.new_request("initialize", InitializeRequestParams.model_validate(HELLO))
    assert connection.withdraw(request.id, "too slow") is None


# writing


def test_a_request_that_this_revision_cannot_say_is_refused_and_nothing_is_awaited() -> None:
    connection = opened(Side.CLIENT)
    with pytest.raises(LocalProtocolError, match="server/discover"):
        connection.new_request("server/discover", RequestParams())
    assert connection.close() == []


def test_the_repr_shows_phase_revision_and_what_is_open() -> None:
    connection = opened()
    connection.receive(call(1))
    connection.new_request("ping", RequestParams())
    assert f"<Connection open {NEWEST_LEGACY} open=1 asked=1>" == repr(connection)
