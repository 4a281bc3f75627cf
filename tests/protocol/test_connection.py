"""The state of a conversation, for either side: messages in, events out; intents in, messages out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from naming import unnamed

from trio_mcp.errors import Disconnected, LocalProtocolError, PeerError, RemoteProtocolError
from trio_mcp.protocol.codec import codec_for
from trio_mcp.protocol.codec.unknown import UnknownParams, UnknownResult, Unread
from trio_mcp.protocol.connection import (
    MAX_WITHDRAWN,
    CancelIn,
    Connection,
    Event,
    Ignored,
    NotificationIn,
    Phase,
    Rejected,
    ReplyIn,
    RequestIn,
    StrayKind,
    StrayReply,
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
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    Unanswered,
    decoded,
    dump,
    parse,
)
from trio_mcp.protocol.revisions import CLIENT_CAPABILITIES, MODERN, NEWEST_LEGACY, PROTOCOL_VERSION, SUPPORTED, Side
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

ME: JsonObject = {"name": "tester", "version": "1"}
HELLO: JsonObject = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": ME}


def call(request_id: RequestId = 1, **meta: object) -> Request:
    return Request(request_id, "tools/call", {"name": "book", **({"_meta": meta} if meta else {})})


def modern(request_id: RequestId = 1, version: str = MODERN) -> Request:
    return call(request_id, **{PROTOCOL_VERSION: version, CLIENT_CAPABILITIES: {}})


def opened(peer: Side = Side.CLIENT, *, shared_channel: bool = True) -> Connection:
    connection = Connection(peer, shared_channel=shared_channel)
    connection.set_version(NEWEST_LEGACY)
    return connection


def handshaken(version: str = NEWEST_LEGACY) -> Connection:
    """A server's end after the handshake HELLO, which it answered with this revision."""
    connection = Connection(Side.CLIENT)
    params = accepted(connection.receive(Request(1, "initialize", HELLO))).params
    assert isinstance(params, InitializeRequestParams)
    connection.accept_handshake(params, version)
    connection.release_id(1)
    return connection


def refused(event: Event, code: int, request_id: RequestId | None, *names: object) -> RemoteProtocolError:
    assert isinstance(event, Rejected)
    assert (event.error.code, event.error.request_id) == (code, request_id)
    assert unnamed(str(event.error), *names) == []
    return event.error


def accepted(event: Event) -> RequestIn:
    assert isinstance(event, RequestIn)
    return event


def stray(event: Event) -> StrayKind:
    assert isinstance(event, StrayReply)
    return event.kind


def result_of(event: Event) -> object:
    assert isinstance(event, ReplyIn)
    return event.result


def asked(connection: Connection, method: str = "tools/call") -> RequestId:
    params = CallToolRequestParams(name="book") if method == "tools/call" else RequestParams()
    return connection.new_request(method, params).id


@pytest.fixture
def client() -> Connection:
    """A client's end of an open session."""
    return opened(Side.SERVER)


@pytest.fixture
def server() -> Connection:
    """A server's end."""
    return opened()


# phases


def test_a_server_takes_initialize_and_ping_before_anything_else() -> None:
    connection = Connection(Side.CLIENT)
    assert Phase.OPENING is connection.terms.phase
    event = accepted(connection.receive(Request(1, "initialize", HELLO)))
    assert isinstance(event.params, InitializeRequestParams)
    assert not event.terms.asks_in_rounds
    accepted(connection.receive(Request(2, "ping", {})))
    assert Phase.OPENING is connection.terms.phase


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "logging/setLevel"])
def test_a_call_before_initialize_is_rejected_and_the_error_names_both_alternatives(method: str) -> None:
    refused(Connection(Side.CLIENT).receive(Request(1, method, {})), INVALID_REQUEST, 1, "initialize", PROTOCOL_VERSION)


@pytest.mark.parametrize(
    "change",
    [
        {"protocolVersion": "2025-06-18"},
        {"capabilities": {"experimental": {"a": {}}}},
        {"clientInfo": {"name": "other", "version": "1"}},
        {"clientInfo": {**ME, "vendor": 1}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_different_second_initialize_is_refused_and_changes_nothing(change: JsonObject) -> None:
    connection = handshaken("2025-03-26")
    refused(connection.receive(Request(2, "initialize", {**HELLO, **change})), INVALID_REQUEST, 2, "already")
    assert (connection.terms.phase, connection.terms.codec.revision.name) == (Phase.OPEN, "2025-03-26")


@pytest.mark.parametrize(
    "change",
    [{}, {"_meta": {"progressToken": 7, "traceparent": "00-0af7"}}, {"vendor": 1}],
    ids=["nothing", "_meta", "unknown"],
)
def test_an_equal_second_initialize_is_taken(change: JsonObject) -> None:
    """`_meta` belongs to the request: its progress token and its trace are other ones. Unknown members mean nothing."""
    event = accepted(handshaken("2025-03-26").receive(Request(2, "initialize", {**HELLO, **change})))
    assert (event.id, isinstance(event.params, InitializeRequestParams)) == (2, True)


def test_a_malformed_second_initialize_is_refused() -> None:
    refused(handshaken().receive(Request(2, "initialize", {})), INVALID_PARAMS, 2, "params")


def test_a_client_takes_no_handshake(client: Connection) -> None:
    refused(client.receive(Request(2, "initialize", HELLO)), METHOD_NOT_FOUND, 2, "initialize")


@pytest.mark.parametrize("version", [version for version in SUPPORTED if version != MODERN])
def test_the_revision_that_was_agreed_on_is_the_one_spoken(version: str) -> None:
    connection = Connection(Side.CLIENT)
    connection.set_version(version)
    assert version == accepted(connection.receive(call())).terms.codec.revision.name


def test_a_closed_connection_ignores_everything(server: Connection) -> None:
    server.close()
    assert Phase.CLOSED is server.terms.phase
    for message in (call(), modern(), Notification("notifications/initialized", {}), Response(1, {})):
        assert isinstance(server.receive(message), Ignored)


def test_closing_tells_which_requests_of_ours_will_never_be_answered(client: Connection) -> None:
    ids = [asked(client), asked(client)]
    assert ids == client.close()
    assert client.close() == []


def test_nothing_is_asked_on_a_closed_connection(client: Connection) -> None:
    client.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        asked(client)


# roles


@pytest.mark.parametrize(
    ("peer", "method"), [(Side.CLIENT, "roots/list"), (Side.SERVER, "tools/call"), (Side.CLIENT, "no/such/method")]
)
def test_a_method_that_travels_the_other_way_is_not_found(peer: Side, method: str) -> None:
    refused(opened(peer).receive(Request(9, method, {})), METHOD_NOT_FOUND, 9)


@pytest.mark.parametrize("peer", list(Side))
def test_either_side_may_ping(peer: Side) -> None:
    accepted(opened(peer).receive(Request(1, "ping", {})))


def test_the_clients_end_opens_with_the_answer_to_initialize() -> None:
    connection = Connection(Side.SERVER)
    request = connection.new_request("initialize", InitializeRequestParams.model_validate(HELLO))
    answer = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    result_of(connection.receive(Response(request.id, answer)))
    connection.set_version(NEWEST_LEGACY)
    assert Phase.OPEN is connection.terms.phase


# modern requests


@pytest.mark.parametrize("connection", [Connection(Side.CLIENT), opened()], ids=["opening", "open"])
def test_a_modern_request_is_valid_in_every_phase_and_names_its_own_revision(connection: Connection) -> None:
    event = accepted(connection.receive(modern()))
    assert event.terms.asks_in_rounds
    assert event.terms.codec.revision.name == MODERN


def test_a_modern_request_leaves_the_phase_and_the_agreed_revision_alone() -> None:
    connection = Connection(Side.CLIENT)
    connection.receive(modern())
    assert (connection.terms.phase, connection.terms.codec.revision.name) == (Phase.OPENING, NEWEST_LEGACY)


def test_an_unsupported_version_is_refused_with_all_that_are_supported() -> None:
    error = refused(Connection(Side.CLIENT).receive(modern(version="1999-01-01")), UNSUPPORTED_VERSION, 1)
    assert {"supported": list(SUPPORTED), "requested": "1999-01-01"} == error.data


def test_the_answer_to_a_modern_request_of_ours_may_be_a_round() -> None:
    connection = Connection(Side.SERVER)
    request = connection.new_request("tools/call", CallToolRequestParams(name="book"), codec_for(MODERN))
    answer = Response(request.id, {"resultType": "input_required", "requestState": "s"})
    assert isinstance(result_of(connection.receive(answer)), InputRequiredResult)


# ids


def test_an_id_in_use_is_refused_where_all_requests_share_a_channel(server: Connection) -> None:
    accepted(server.receive(call("a")))
    refused(server.receive(call("a")), INVALID_REQUEST, "a", "'a'")


def test_an_id_may_be_used_again_once_it_was_answered(server: Connection) -> None:
    for _ in range(500):
        accepted(server.receive(call(1)))
        server.release_id(1)


def test_a_number_and_the_same_digits_are_different_ids(server: Connection) -> None:
    accepted(server.receive(call(1)))
    accepted(server.receive(call("1")))


def test_duplicate_ids_are_tolerated_where_every_request_has_its_own_stream() -> None:
    connection = opened(shared_channel=False)
    for _ in range(3):
        accepted(connection.receive(call(1)))


def test_a_request_that_was_refused_does_not_occupy_its_id(server: Connection) -> None:
    refused(server.receive(Request(1, "tools/call", {})), INVALID_PARAMS, 1, "name")
    accepted(server.receive(call(1)))


def test_our_ids_are_unique_for_the_life_of_the_connection(client: Connection) -> None:
    ids = []
    for _ in range(100):
        ids.append(asked(client))
        client.withdraw(ids[-1], "not needed")
    assert len(set(ids)) == 100


# answers


def test_an_answer_is_decoded_by_the_method_that_was_asked(client: Connection) -> None:
    tool, ping = asked(client), asked(client, "ping")
    assert ReplyIn(ping, EmptyResult()) == client.receive(Response(ping, {}))
    assert ReplyIn(tool, CallToolResult(content=[])) == client.receive(Response(tool, {"content": []}))


Reply = Callable[[RequestId], Message | Unanswered]
REPLIES: dict[str, Reply] = {
    "result": lambda id: Response(id, {}),
    "error": lambda id: ErrorResponse(id, ErrorDetail(1, "no")),
    "none will come": lambda id: Unanswered(id, "no"),
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_stray_reply_is_late_or_a_duplicate_or_unknown(client: Connection, reply: Reply) -> None:
    withdrawn, answered = asked(client), asked(client)
    client.withdraw(withdrawn, "not needed")
    assert isinstance(client.receive(reply(answered)), ReplyIn)
    assert stray(client.receive(reply(withdrawn))) is StrayKind.LATE
    assert stray(client.receive(reply(withdrawn))) is StrayKind.DUPLICATE
    assert stray(client.receive(reply(answered))) is StrayKind.DUPLICATE
    for unknown in (99, "1", -1):
        assert stray(client.receive(reply(unknown))) is StrayKind.UNKNOWN


def test_withdrawn_requests_are_remembered_up_to_a_limit(client: Connection) -> None:
    ids = [asked(client) for _ in range(MAX_WITHDRAWN + 1)]
    for request_id in ids:
        client.withdraw(request_id, "not needed")
    kinds = [stray(client.receive(Response(ids[place], {}))) for place in (0, 1, -1)]
    assert kinds == [StrayKind.DUPLICATE, StrayKind.LATE, StrayKind.LATE]


def test_an_error_is_the_peers_own_error_where_the_answer_is_awaited(client: Connection) -> None:
    detail = ErrorDetail(-32000, "busy", {"retry": 1})
    error = result_of(client.receive(ErrorResponse(asked(client), detail)))
    assert isinstance(error, PeerError)
    assert (error.code, error.message, error.data) == (-32000, "busy", {"retry": 1})


def test_an_error_that_names_no_request_is_ignored() -> None:
    event = opened(Side.SERVER).receive(ErrorResponse(None, ErrorDetail(PARSE_ERROR, "what?")))
    assert isinstance(event, Ignored)


def test_a_malformed_result_is_an_error_where_it_is_awaited(client: Connection) -> None:
    error = result_of(client.receive(Response(asked(client), {"content": "text"})))
    assert isinstance(error, RemoteProtocolError)
    assert "result.content" in str(error)


# bytes that were no message


def test_bytes_that_are_no_message_are_refused_and_answered() -> None:
    malformed = parse(b'{"jsonrpc": "2.0", "id": 7, "method": 3}')
    assert isinstance(malformed, Malformed)
    event = opened().receive(malformed)
    assert isinstance(event, Rejected)
    assert event.answer
    assert event.error.request_id == 7


def test_a_broken_answer_is_an_error_where_it_is_awaited(client: Connection) -> None:
    request = asked(client)
    broken = RemoteProtocolError("the result is no object")
    assert ReplyIn(request, broken) == client.receive(Malformed(broken, answers=request))
    assert isinstance(client.receive(Malformed(broken, answers=request)), Ignored)


def test_a_request_that_will_never_be_answered_is_over_where_it_is_awaited(client: Connection) -> None:
    error = result_of(client.receive(Unanswered(asked(client), "the stream ended")))
    assert isinstance(error, Disconnected)
    assert str(error) == "the stream ended"


# notifications


def test_a_notification_is_decoded(client: Connection) -> None:
    event = client.receive(Notification("notifications/progress", {"progressToken": 1, "progress": 0.5}))
    expected = ProgressNotificationParams(progress_token=1, progress=0.5)
    assert NotificationIn("notifications/progress", expected) == event


@pytest.mark.parametrize("method", ["notifications/unheard_of", "tools/call"])
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


def test_a_withdrawal_tells_the_peer_once(client: Connection) -> None:
    request = asked(client)
    notice = client.withdraw(request, "the user left")
    assert notice is not None
    assert notice.method == "notifications/cancelled"
    sent = parse(dump(notice))
    assert Notification("notifications/cancelled", {"requestId": request, "reason": "the user left"}) == sent
    assert client.withdraw(request, "again") is None


def test_withdrawing_an_answered_or_unknown_request_sends_nothing(client: Connection) -> None:
    request = asked(client, "ping")
    client.receive(Response(request, {}))
    assert client.withdraw(request, "late") is None
    assert client.withdraw(99, "unknown") is None


def test_a_lost_answer_may_have_been_that_of_a_request_that_was_withdrawn(client: Connection) -> None:
    first, second, third = asked(client), asked(client), asked(client)
    lost = ErrorResponse(None, ErrorDetail(-32603, "lost"))
    assert isinstance(client.receive(lost), Ignored)
    client.withdraw(second, "timed out")
    assert isinstance(client.receive(Response(first, {"content": []})), ReplyIn)
    assert isinstance(client.receive(Response(third, {"content": []})), ReplyIn)


def test_lost_answers_are_kept_for_open_requests_only(client: Connection) -> None:
    lost = ErrorResponse(None, ErrorDetail(-32603, "lost"))
    for _ in range(100):
        assert isinstance(client.receive(lost), StrayReply)
    request = asked(client)
    assert isinstance(client.receive(Response(request, {"content": []})), ReplyIn)


def test_initialize_is_never_cancelled_and_its_late_answer_is_late() -> None:
    connection = Connection(Side.SERVER)
    request = connection.new_request("initialize", InitializeRequestParams.model_validate(HELLO))
    assert connection.withdraw(request.id, "too slow") is None
    assert stray(connection.receive(Response(request.id, {}))) is StrayKind.LATE


# writing


def test_a_request_that_this_revision_cannot_say_is_refused_and_nothing_is_awaited() -> None:
    connection = opened(Side.CLIENT)
    with pytest.raises(LocalProtocolError, match="server/discover"):
        connection.new_request("server/discover", RequestParams())
    assert connection.close() == []


def test_the_repr_shows_phase_revision_and_what_is_open(server: Connection) -> None:
    server.receive(call(1))
    server.new_request("ping", RequestParams())
    assert f"<Connection open {NEWEST_LEGACY} open=1 asked=1>" == repr(server)


def test_what_no_revision_has_is_an_event_for_a_connection_that_passes_it_on() -> None:
    """A method that another revision has is none of these."""
    connection = Connection(Side.CLIENT, unread=Unread.UNKNOWN)
    connection.set_version(NEWEST_LEGACY)
    request = connection.receive(Request(1, "x/echo", {"a": None, "_meta": {"m": 1}}))
    assert isinstance(request, RequestIn)
    assert isinstance(request.params, UnknownParams)
    noted = connection.receive(Notification("notifications/x", {"b": [1]}))
    assert isinstance(noted, NotificationIn)
    assert isinstance(noted.params, UnknownParams)
    assert isinstance(connection.receive(Request(2, "subscriptions/listen", {})), Rejected)
    assert isinstance(connection.receive(Notification("notifications/tasks", {})), Ignored)
    codec = codec_for(NEWEST_LEGACY)
    assert request.params.wire() == {"a": None, "_meta": {"m": 1}}
    assert decoded(codec.encode_notification("notifications/x", noted.params)) == {"b": [1]}
    with pytest.raises(LocalProtocolError):
        codec.encode_request("x/echo", RequestParams())


def test_all_but_cancellations_is_unread_between_sides_of_one_revision() -> None:
    connection = Connection(Side.CLIENT, unread=Unread.ALL)
    connection.set_version(NEWEST_LEGACY)
    request = connection.receive(Request(1, "tools/call", {"name": 7, "x": None}))
    assert isinstance(request, RequestIn)
    assert isinstance(request.params, UnknownParams)
    assert request.params.wire() == {"name": 7, "x": None}
    noted = connection.receive(Notification("notifications/progress", {"progress": 1}))
    assert isinstance(noted, NotificationIn)
    assert isinstance(noted.params, UnknownParams)
    assert isinstance(connection.receive(Notification("notifications/cancelled", {"requestId": 1})), CancelIn)


def test_the_answer_to_a_request_that_is_sent_unread_is_unread() -> None:
    connection = Connection(Side.SERVER)
    connection.set_version(NEWEST_LEGACY)
    request = connection.new_request("tools/call", {"name": "look", "x": None})
    assert decoded(request.params) == {"name": "look", "x": None}
    reply = connection.receive(Response(request.id, {"content": 7, "x": None}))
    assert isinstance(reply, ReplyIn)
    assert isinstance(reply.result, UnknownResult)
    assert reply.result.wire() == {"content": 7, "x": None}
    assert connection.new_request("tools/list", {}).params == {}
    model = UnknownParams.model_validate({"cursor": None})
    assert decoded(connection.new_request("tools/list", model).params) == {"cursor": None}
