"""The HTTP application: both eras on one path, and what bad input gets. No sockets here."""

from __future__ import annotations

import json
import re
import secrets
import sys
from typing import Any

import pytest
import trio
import trio.testing
from asgi_peer import JSON_HEADERS, LEGACY, AsgiPeer, initialize, legacy_call, modern_call, served
from stage import Stage
from talking import Session
from wire_terms import OUTCOME_UNKNOWN

from trio_mcp import CancelReason, Context, HttpRequest, HttpResponse, Server
from trio_mcp_transports.asgi.access import read_headers
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.http.server.entrance import ServedApp

BODY_LIMIT = 10_000

# the main job


async def test_a_legacy_session_is_opened_used_and_ended(peer: AsgiPeer) -> None:
    headers = await peer.open_session()
    reply = await peer.post(legacy_call("echo", {"text": "hi"}), headers)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.json["result"]["content"] == [{"type": "text", "text": "hi"}]
    assert (await peer.post(b"", headers, method="DELETE")).status == 204
    assert (await peer.post(legacy_call("echo", {"text": "hi"}), headers)).status == 404


@pytest.mark.parametrize("streams", [False, True], ids=["plain", "a stream"])
async def test_a_request_that_runs_when_its_session_is_deleted_gets_an_error(streams: bool) -> None:
    server, begun = Server("shop"), trio.Event()

    @server.tool
    async def wait(ctx: Context) -> None:
        if streams:
            await ctx.progress(1)
        begun.set()
        await trio.sleep_forever()

    async with served(asgi_app(server)) as peer:
        headers = await peer.open_session()
        call = peer.start(legacy_call("wait", id="mine", _meta={"progressToken": "t"}), headers)
        await begun.wait()
        assert (await peer.post(b"", headers, method="DELETE")).status == 204
        await call.end()
    assert call.status == 200, "404 would let its client send it again in another session"
    assert (call.last["id"], call.last["error"]["data"]) == ("mine", {OUTCOME_UNKNOWN: True})


async def test_a_request_that_was_cancelled_gets_no_reply_when_its_session_is_deleted() -> None:
    server, begun, cancelled, go_on = Server("shop"), trio.Event(), trio.Event(), trio.Event()

    @server.tool
    async def wait() -> None:
        try:
            begun.set()
            await trio.sleep_forever()
        finally:
            cancelled.set()
            with trio.CancelScope(shield=True):
                await go_on.wait()

    async with served(asgi_app(server)) as peer:
        headers = await peer.open_session()
        call = peer.start(legacy_call("wait"), headers)
        await begun.wait()
        await peer.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}, headers)
        await cancelled.wait()
        await peer.post(b"", headers, method="DELETE")
        go_on.set()
        await call.end()
    assert (call.status, call.body) == (202, b"")


async def test_a_modern_call_needs_no_session_and_is_given_none(peer: AsgiPeer) -> None:
    reply = await peer.post(*modern_call("echo", {"text": "hi"}))
    assert reply.json["result"]["resultType"] == "complete"
    assert "mcp-session-id" not in reply.headers


async def test_a_modern_request_ignores_a_session_id(peer: AsgiPeer) -> None:
    reply = await peer.post(*modern_call("echo", {"text": "hi"}, headers={"mcp-session-id": "made-up"}))
    assert reply.status == 200
    assert "mcp-session-id" not in reply.headers


async def test_a_legacy_question_travels_on_the_stream_of_its_call(peer: AsgiPeer) -> None:
    headers = await peer.open_session()
    reply = peer.start(legacy_call("ask"), headers)
    await reply.until("elicitation/create")
    answer = {"jsonrpc": "2.0", "id": reply.events[0]["id"], "result": {"action": "accept", "content": {"value": 7}}}
    assert (await peer.post(answer, headers)).status == 202
    await reply.end()
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["x-accel-buffering"] == "no"
    assert reply.events[-1]["result"]["content"][0]["text"] == "got 7"


async def test_without_a_progress_token_the_answer_is_plain_json(peer: AsgiPeer) -> None:
    reply = await peer.post(*modern_call("report"))
    assert reply.headers["content-type"] == "application/json"


async def test_a_silent_call_gets_keep_alive_comments(peer: AsgiPeer, stage: Stage) -> None:
    headers = await peer.open_session()
    reply = peer.start(legacy_call("wait"), headers)
    await trio.sleep(40)
    assert reply.body.count(b": still here\n\n") == 2


# ends


async def test_a_modern_disconnect_cancels_at_once(peer: AsgiPeer, stage: Stage) -> None:
    reply = peer.start(*modern_call("wait"))
    await stage.started.wait()
    before = trio.current_time()
    reply.gone.set()
    await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT
    assert trio.current_time() == before


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_send_that_fails_cancels_the_call(stage: Stage, peer: AsgiPeer, session: Session, era: str) -> None:
    """An ASGI server may tell that the client has gone by raising `OSError` in `send`, and in no other way."""
    meta = {"progressToken": "t"}
    request = modern_call("wait", meta=meta) if era == "modern" else (legacy_call("wait", _meta=meta), session.headers)
    peer.start(*request).broken = True
    await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT


async def test_a_legacy_disconnect_cancels_after_the_grace(peer: AsgiPeer, stage: Stage) -> None:
    headers = await peer.open_session()
    reply = peer.start(legacy_call("wait"), headers)
    await stage.started.wait()
    before = trio.current_time()
    reply.gone.set()
    await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT
    assert trio.current_time() - before == pytest.approx(30)


async def test_a_legacy_call_that_ends_within_the_grace_is_left_alone(peer: AsgiPeer) -> None:
    headers = await peer.open_session()
    reply = peer.start(legacy_call("report"), headers)
    await trio.testing.wait_all_tasks_blocked()
    reply.gone.set()
    await trio.sleep(60)
    assert peer.app.service.supervisor.statistics().returned == 1


async def test_a_cancelled_legacy_call_gets_no_message(peer: AsgiPeer, stage: Stage) -> None:
    headers = await peer.open_session()
    reply = peer.start(legacy_call("wait", id="x"), headers)
    await stage.started.wait()
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x", "reason": "enough"}}
    assert (await peer.post(cancel, headers)).status == 202
    await reply.end()
    assert stage.reason is CancelReason.CLIENT
    assert reply.body == b""


async def test_a_drain_refuses_new_calls_and_answers_the_running_ones(peer: AsgiPeer, stage: Stage) -> None:
    running = peer.start(*modern_call("wait"))
    await stage.started.wait()
    peer.nursery.start_soon(peer.app.drain, 2.0)
    await trio.testing.wait_all_tasks_blocked()
    refused = await peer.post(*modern_call("echo", {"text": "late"}))
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    await running.end()
    assert running.last["error"]["data"] == {OUTCOME_UNKNOWN: True}, "it has run, and is not to be sent again as it is"
    assert stage.reason is CancelReason.SHUTDOWN


# sessions


async def test_an_unknown_session_and_a_missing_one_have_different_errors(peer: AsgiPeer) -> None:
    call = legacy_call("echo", {"text": "x"})
    unknown = await peer.post(call, {**JSON_HEADERS, "mcp-session-id": "nope"})
    missing = await peer.post(call)
    assert (unknown.status, missing.status) == (404, 400)
    assert "initialize" in unknown.json["error"]["message"]


async def test_an_equal_handshake_in_a_session_is_answered_with_its_id_and_opens_no_other(peer: AsgiPeer) -> None:
    headers = await peer.open_session()
    for more in ({}, {"_meta": {"progressToken": 7}}):
        message = initialize({"elicitation": {}})
        message["params"] |= more
        again = await peer.post({**message, "id": "again"}, headers)
        assert (again.status, again.headers["mcp-session-id"]) == (200, headers["mcp-session-id"])
        assert (again.json["id"], again.json["result"]["protocolVersion"]) == ("again", LEGACY)
    for opened in range(2):  # of three that may be open
        assert (await peer.open_session())["mcp-session-id"] != headers["mcp-session-id"], opened
    assert (await peer.post(legacy_call("echo", {"text": "x"}), headers)).status == 200


async def test_a_different_handshake_in_a_session_is_refused(peer: AsgiPeer) -> None:
    headers = await peer.open_session()
    refused = await peer.post(initialize({}), headers)
    assert refused.json["error"]["code"] == -32600
    assert "mcp-session-id" not in refused.headers
    assert (await peer.post(legacy_call("echo", {"text": "x"}), headers)).status == 200


async def test_refused_requests_leave_no_session(peer: AsgiPeer) -> None:
    bad = initialize({})
    del bad["params"]["clientInfo"]
    for _ in range(10):
        reply = await peer.post(bad)
        assert reply.json["error"]["code"] == -32602
        assert "mcp-session-id" not in reply.headers
    await peer.open_session()


async def test_the_cap_on_sessions_is_named(peer: AsgiPeer) -> None:
    for _ in range(3):
        used = await peer.open_session()
        assert (await peer.post(legacy_call("echo", {"text": "x"}), used)).status == 200
    reply = await peer.post(initialize({}))
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    assert "HttpLimits.sessions" in reply.json["error"]["message"]


async def test_sessions_that_were_only_opened_make_room(peer: AsgiPeer) -> None:
    used = await peer.open_session()
    assert (await peer.post(legacy_call("echo", {"text": "x"}), used)).status == 200
    opened = [await peer.open_session() for _ in range(20)]
    assert (await peer.post(legacy_call("echo", {"text": "x"}), opened[-1])).status == 200
    assert (await peer.post(legacy_call("echo", {"text": "x"}), opened[0])).status == 404
    assert (await peer.post(legacy_call("echo", {"text": "x"}), used)).status == 200


async def test_an_idle_session_is_reaped_and_a_used_one_is_not(peer: AsgiPeer) -> None:
    idle, used = await peer.open_session(), await peer.open_session()
    for _ in range(4):
        await trio.sleep(50)
        assert (await peer.post(legacy_call("echo", {"text": "x"}), used)).status == 200
    assert (await peer.post(legacy_call("echo", {"text": "x"}), idle)).status == 404


async def test_a_session_id_is_visible_ascii_and_cannot_be_guessed(peer: AsgiPeer) -> None:
    ids = [(await peer.open_session())["mcp-session-id"] for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(re.fullmatch(r"[\x21-\x7e]{22,}", each) for each in ids)  # 22 characters of base64url hold 128 bits
    for place in range(22):
        assert len({each[place] for each in ids}) > 20  # no part of it is a counter or a clock


async def test_a_legacy_request_without_a_version_header_is_served(peer: AsgiPeer) -> None:
    headers = await peer.open_session()
    del headers["mcp-protocol-version"]
    reply = await peer.post(legacy_call("echo", {"text": "hi"}), headers)
    assert (reply.status, reply.json["result"]["content"][0]["text"]) == (200, "hi")


NOTHING_TO_ANSWER: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
    {"jsonrpc": "2.0", "method": "notifications/unheard_of"},
    {"jsonrpc": "2.0", "id": 99, "result": {}},
    {"jsonrpc": "2.0", "id": 99, "error": {"code": -1, "message": "no"}},
]


@pytest.mark.parametrize("message", NOTHING_TO_ANSWER, ids=str)
async def test_what_needs_no_answer_is_202_without_a_body(peer: AsgiPeer, message: dict[str, Any]) -> None:
    reply = await peer.post(message, await peer.open_session())
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("message", NOTHING_TO_ANSWER, ids=str)
async def test_what_needs_no_answer_is_refused_with_4xx(peer: AsgiPeer, message: dict[str, Any]) -> None:
    headers = await peer.open_session()
    refused = [
        await peer.post(message),
        await peer.post(message, {**headers, "mcp-session-id": "unknown"}),
        await peer.post(message, {**headers, "mcp-protocol-version": "1999-01-01"}),
        await peer.post([message], headers),
        await peer.post({**message, "jsonrpc": "1.0"}, headers),
    ]
    assert [reply.status for reply in refused] == [400, 404, 400, 400, 400]
    for reply in refused:
        assert reply.json.get("id") in (None, 99)
        assert reply.json["error"]["message"]


# refusals: status, and nothing started


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "localhost.evil.example"}, 421),
        ({"host": "user@localhost"}, 421),
        ({"host": ""}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost.evil.example"}, 403),
        ({"origin": "file://localhost"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": ""}, 415),
        ({"content-encoding": "gzip"}, 415),
        ({"accept": "application/json"}, 406),
        ({"accept": "text/event-stream"}, 406),
        ({"mcp-protocol-version": "1999-01-01"}, 400),
    ],
)
async def test_a_request_that_no_mcp_client_sends_is_refused(
    peer: AsgiPeer, changed: dict[str, str], status: int
) -> None:
    headers = await peer.open_session()
    reply = await peer.post(legacy_call("echo", {"text": "x"}), {**headers, **changed})
    assert reply.status == status
    assert reply.json["error"]["message"].endswith(".")
    assert peer.app.service.supervisor.statistics().started == 0


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
async def test_a_foreign_host_is_refused_on_every_verb(peer: AsgiPeer, method: str) -> None:
    reply = await peer.post(b"", {**JSON_HEADERS, "host": "evil.example"}, method=method)
    assert reply.status == 421
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1234", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST", "localhost."]
)
async def test_loopback_names_are_served(peer: AsgiPeer, host: str) -> None:
    assert (await peer.post(*modern_call("echo", {"text": "x"}, headers={"host": host}))).status == 200


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1", "https://[::1]:1"])
async def test_pages_of_this_machine_may_call(peer: AsgiPeer, origin: str) -> None:
    assert (await peer.post(*modern_call("echo", {"text": "x"}, headers={"origin": origin}))).status == 200


async def test_with_allowed_hosts_loopback_is_no_longer_special(stage: Stage) -> None:
    app = asgi_app(stage.server, allowed_hosts=["mcp.example.com"], allowed_origins=["https://app.example.com"])
    async with served(app) as peer:
        body, headers = modern_call("echo", {"text": "x"})
        named = {**headers, "host": "mcp.example.com"}
        assert (await peer.post(body, named)).status == 200
        assert (await peer.post(body, {**named, "origin": "https://app.example.com"})).status == 200
        assert (await peer.post(body, headers)).status == 421
        assert (await peer.post(body, {**named, "origin": "http://localhost:1"})).status == 403


@pytest.mark.parametrize("name", ["host", "origin", "content-type", "mcp-session-id", "mcp-method"])
async def test_a_header_that_may_come_once_is_refused_when_it_comes_twice(peer: AsgiPeer, name: str) -> None:
    body, headers = modern_call("echo", {"text": "x"})
    raw = [
        (k.encode(), v.encode()) for k, v in {"mcp-session-id": "s", "origin": "http://localhost", **headers}.items()
    ]
    value = dict(raw)[name.encode()]
    reply = await peer.start_raw(json.dumps(body).encode(), [*raw, (name.encode(), value)], "POST", "/mcp").end()
    assert reply.status == 400
    assert name in reply.json["error"]["message"]


async def test_another_path_is_not_found_and_names_the_endpoint(peer: AsgiPeer) -> None:
    reply = await peer.post({}, path="/")
    assert reply.status == 404
    assert "/mcp" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"", -32700),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
        (b"\xff\xfe{\x00}\x00", -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b"7", -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * 100 + b"]" * 100 + b"}}", -32600),
    ],
)
async def test_bytes_that_are_no_message_get_400_and_a_code(peer: AsgiPeer, body: bytes, code: int) -> None:
    headers = await peer.open_session()
    reply = await peer.post(body, headers)
    assert (reply.status, reply.json["error"]["code"]) == (400, code)
    assert (await peer.post(legacy_call("echo", {"text": "x"}), headers)).status == 200


async def test_a_body_over_the_limit_is_413_and_names_the_limit(peer: AsgiPeer) -> None:
    reply = await peer.post(legacy_call("echo", {"text": "x" * BODY_LIMIT}))
    assert reply.status == 413
    assert str(BODY_LIMIT) in reply.json["error"]["message"]


async def test_an_announced_body_over_the_limit_is_refused_unread(peer: AsgiPeer) -> None:
    reply = await peer.post(b"", {**JSON_HEADERS, "content-length": str(BODY_LIMIT + 1)})
    assert reply.status == 413


async def test_an_announced_length_that_is_no_number_is_not_read(peer: AsgiPeer) -> None:
    # As a server that does not check it would hand it on.
    reply = await peer.post(legacy_call("echo", {"text": "x"}), {**JSON_HEADERS, "content-length": "\xb2"})
    assert reply.status == 400  # for the missing session


async def test_a_body_that_never_comes_is_408(peer: AsgiPeer) -> None:
    reply = peer.start(b"", sends_body=False)
    await reply.ended.wait()
    assert reply.status == 408


# whatever the era


async def test_get_and_delete_without_a_session_are_405(peer: AsgiPeer) -> None:
    for method in ("GET", "DELETE", "PUT", "HEAD"):
        reply = await peer.post(b"", method=method)
        assert reply.status == 405
        assert reply.headers["allow"] == "POST, GET, DELETE"


async def test_options_is_answered_with_the_methods_of_a_path_unless_its_route_does_it_itself() -> None:
    server = Server("shop")

    async def hook(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("called")

    server.route("/hook", methods=["PUT"])(hook)
    server.route("/own", methods=["OPTIONS"])(hook)
    async with served(asgi_app(server)) as peer:
        for path, methods in (("/mcp", "POST, GET, DELETE, OPTIONS"), ("/hook", "PUT, OPTIONS")):
            reply = await peer.post(b"", method="OPTIONS", path=path)
            assert (reply.status, reply.headers.get("allow"), reply.body) == (204, methods, b"")
        assert (await peer.post(b"", method="OPTIONS", path="/own")).body == b"called"
        assert (await peer.post(b"", method="OPTIONS", path="/none")).status == 404


PREFLIGHT = {"host": "localhost", "access-control-request-method": "POST"}


async def test_a_preflight_needs_no_credentials_and_an_origin_that_may_call() -> None:
    async def nobody(_headers: object) -> None:
        return None

    async with served(asgi_app(Server("shop"), authenticate=nobody)) as peer:
        for origin, status in (("http://localhost:5173", 204), ("https://evil.example", 403)):
            assert (await peer.post(b"", {**PREFLIGHT, "origin": origin}, method="OPTIONS")).status == status
        assert (await peer.post(b"", {"host": "localhost"}, method="OPTIONS")).status == 401


async def test_what_is_added_to_every_response_is_added_to_streams_and_refusals_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ServedApp, "_headers", lambda *_: [(b"x-added", b"1")])
    server = Server("shop")

    @server.tool
    async def report(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    @server.route("/hook", public=True)
    async def hook(_request: HttpRequest) -> HttpResponse:
        return HttpResponse("called")

    async with served(asgi_app(server)) as peer:
        legacy = await peer.open_session()
        replies = [
            await peer.post(*modern_call("report")),
            await peer.post(legacy_call("report", _meta={"progressToken": "t"}), legacy),
            await peer.post(b"{"),
            await peer.post(b"", {**JSON_HEADERS, "host": "evil.example"}),
            await peer.post(b"", path="/none"),
            await peer.post(b"", method="GET", path="/hook"),
            await peer.post(b"", legacy, method="DELETE"),
            await peer.post(b"", PREFLIGHT, method="OPTIONS"),
        ]
    assert [reply.status for reply in replies] == [200, 200, 400, 421, 404, 200, 204, 204]
    assert replies[1].headers["content-type"] == "text/event-stream"
    assert {reply.headers.get("x-added") for reply in replies} == {"1"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 400), ({"mcp-session-id": "nobody's"}, 404), ({"mcp-protocol-version": "1999-01-01"}, 400)],
    ids=["no session", "an unknown session", "an unknown version"],
)
async def test_the_error_for_a_refused_request_has_its_id(headers: dict[str, str], status: int) -> None:
    async with served(asgi_app(Server("shop"))) as peer:
        body = {"jsonrpc": "2.0", "id": "mine", "method": "tools/list"}
        reply = await peer.post(body, {**JSON_HEADERS, **headers})
        notified = await peer.post(
            {"jsonrpc": "2.0", "method": "notifications/initialized"}, {**JSON_HEADERS, **headers}
        )
    assert (reply.status, notified.status) == (status, status)
    assert reply.json["id"] == "mine"
    assert "id" not in notified.json


def test_the_names_of_headers_that_a_client_invents_are_not_interned() -> None:
    unusual = secrets.token_hex()
    headers = read_headers([(b"host", b"localhost"), (unusual.encode(), b"")])
    assert list(headers) == ["host", unusual]
    again = f"{unusual[:1]}{unusual[1:]}"
    assert sys.intern(again) is again  # CPython 3.12 never frees interned strings
