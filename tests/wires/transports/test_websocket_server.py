"""What a server does on a WebSocket, seen from a raw socket: `docs/websocket.md`, rule by rule."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from hypercorn_peer import frame
from pydantic import BaseModel
from talk import Json, modern_meta
from websocket_peer import BINARY, CLOSE, PING, PONG, SOON, TEXT, RawPeer, raw, served

from trio_mcp import CancelReason, Context, Server
from trio_mcp.protocol.jsonrpc import SERVER_BUSY
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY
from trio_mcp.session import ServiceOptions
from trio_mcp_transports.http import HttpLimits, McpApp, asgi_app
from trio_mcp_transports.hypercorn.config import GuardedConfig, guarded_config
from trio_mcp_transports.hypercorn.serve import serve_asgi

LIMIT = 60.0


class Value(BaseModel):
    value: int


class Stage:
    """A server whose tool `wait` waits until it is told to go on, and whose runs are counted."""

    def __init__(self) -> None:
        self.server = Server("stage", version="1.0")
        self.running = 0
        self.started = trio.Event()
        self.go_on = trio.Event()
        self.ended = trio.Event()
        self.reason: CancelReason | None = None
        for tool in (self.echo, self.wait, self.ask):
            self.server.tool(tool)

    async def echo(self, text: str) -> str:
        return text

    async def wait(self, ctx: Context) -> str:
        self.running += 1
        self.started.set()
        try:
            await self.go_on.wait()
            return "waited"
        finally:
            self.running -= 1
            self.reason = ctx.cancel_reason
            self.ended.set()

    async def ask(self, ctx: Context) -> str:
        answer = await ctx.elicit("Which?", Value)
        return f"got {answer.content.value}" if answer.action == "accept" else answer.action


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
async def url(stage: Stage) -> AsyncIterator[str]:
    with trio.fail_after(LIMIT):
        async with served(stage.server) as url:
            yield url


# the handshake


async def test_the_url_is_that_of_http_with_another_scheme(url: str) -> None:
    assert url.startswith("ws://127.0.0.1:")
    assert url.endswith("/mcp")


async def test_the_subprotocol_is_echoed_and_no_extension_is(url: str) -> None:
    async with raw(url, connected=False) as peer:
        offered = {"sec-websocket-protocol": "chat, mcp", "sec-websocket-extensions": "permessage-deflate"}
        status, headers, _ = await peer.upgrade(offered)
        assert (status, headers["sec-websocket-protocol"]) == (101, "mcp")
        assert "sec-websocket-extensions" not in headers


REFUSED: list[tuple[Mapping[str, str | None], int, str]] = [
    ({"host": "evil.example"}, 421, "This server is not 'evil.example'"),
    ({"origin": "https://evil.example"}, 403, "The origin 'https://evil.example' may not call this server"),
    ({"origin": "null"}, 403, "The origin 'null' may not call this server"),
    ({"sec-websocket-protocol": None}, 400, 'speaks the subprotocol "mcp"'),
    ({"sec-websocket-protocol": "chat"}, 400, 'speaks the subprotocol "mcp"'),
    ({"sec-websocket-protocol": "MCP"}, 400, 'speaks the subprotocol "mcp"'),
]


@pytest.mark.parametrize(("headers", "status", "words"), REFUSED)
async def test_an_upgrade_is_refused_before_it_is_accepted_with_a_sentence(
    url: str, headers: Mapping[str, str | None], status: int, words: str
) -> None:
    async with raw(url, connected=False) as peer:
        got, received, body = await peer.upgrade(headers)
        assert (got, received["content-type"]) == (status, "application/json")
        assert words in json.loads(body)["error"]["message"]
        assert await peer.client.rest() == b""


NONE_AT_ALL: list[dict[str, str | None]] = [
    {"sec-websocket-protocol": "m\xe9p"},
    {"sec-websocket-version": "12"},
    {"sec-websocket-key": "c2hvcnQ="},
    {"sec-websocket-key": "dGhlIHNhbXBsZSBub25j*Q=="},
    {"sec-websocket-key": "\xe9"},
]


@pytest.mark.parametrize("headers", NONE_AT_ALL)
async def test_an_upgrade_that_is_none_is_400_and_hurts_nobody(url: str, headers: dict[str, str | None]) -> None:
    async with raw(url) as bystander, raw(url, connected=False) as peer:
        assert (await peer.upgrade(headers))[0] == 400
        assert await bystander.text(await bystander.call("echo", {"text": "still here"})) == "still here"


async def test_another_path_is_404(url: str) -> None:
    async with raw(url + "/else", connected=False) as peer:
        status, _, body = await peer.upgrade()
        assert status == 404
        assert "/mcp" in json.loads(body)["error"]["message"]


async def test_a_page_of_a_listed_origin_may_connect(stage: Stage) -> None:
    with trio.fail_after(LIMIT):
        async with served(stage.server, allowed_origins=["https://app.example"]) as url:
            async with raw(url, connected=False) as peer:
                await peer.open({"origin": "https://app.example"})


# messages


async def test_one_connection_speaks_both_eras_message_by_message(url: str) -> None:
    async with raw(url) as peer:
        modern = await peer.result(await peer.ask_modern("server/discover"))
        assert MODERN in modern["supportedVersions"]
        assert (await peer.initialize())["protocolVersion"] == NEWEST_LEGACY
        legacy = await peer.ask("tools/call", {"name": "echo", "arguments": {"text": "old"}})
        assert await peer.text(legacy) == "old"
        assert await peer.text(await peer.call("echo", {"text": "new"})) == "new"


async def test_a_question_of_the_handshake_era_is_a_request_of_its_own(url: str) -> None:
    async with raw(url) as peer:
        await peer.initialize()
        call = await peer.ask("tools/call", {"name": "ask", "arguments": {}})
        question = await peer.hear()
        assert question["method"] == "elicitation/create"
        await peer.say({"id": question["id"], "result": {"action": "accept", "content": {"value": 7}}})
        assert await peer.text(call) == "got 7"


async def test_text_that_is_no_json_is_answered_and_the_connection_stays(url: str) -> None:
    async with raw(url) as peer:
        await peer.say("{nonsense")
        assert (await peer.hear())["error"]["code"] == -32700
        await peer.say("")
        assert (await peer.hear())["error"]["code"] == -32700
        assert await peer.text(await peer.call("echo", {"text": "still here"})) == "still here"


async def test_a_message_in_fragments_with_a_ping_between_them_is_one_message(url: str) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 5, "method": "ping"}).encode()
    async with raw(url) as peer:
        await peer.client.send(frame(TEXT, text[:9], first=0) + frame(PING, b"now") + frame(0, text[9:12], first=0))
        assert await peer.client.frame() == (0x80 | PONG, b"now")
        await peer.client.send(frame(0, text[12:]))
        assert (await peer.hear())["id"] == 5


async def test_a_cancellation_is_a_message_and_ends_the_call(stage: Stage, url: str) -> None:
    async with raw(url) as peer:
        call = await peer.call("wait")
        await stage.started.wait()
        await peer.say({"method": "notifications/cancelled", "params": {"requestId": call}})
        await stage.ended.wait()
        assert stage.reason is CancelReason.CLIENT


async def test_an_id_that_is_running_is_refused(stage: Stage, url: str) -> None:
    async with raw(url) as peer:
        await peer.initialize()
        request = {"id": 77, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
        await peer.say(request)
        await stage.started.wait()
        await peer.say(request)
        assert (await peer.hear())["error"]["code"] == -32600
        stage.go_on.set()
        assert (await peer.hear())["result"]["content"][0]["text"] == "waited"


# the end of a connection


async def test_a_close_is_answered_and_cancels_what_runs(stage: Stage, url: str) -> None:
    async with raw(url) as peer:
        await peer.call("wait")
        await stage.started.wait()
        await peer.client.send(frame(CLOSE, (1000).to_bytes(2, "big")))
        assert (await peer.closed())[0] == 1000
        assert await peer.client.rest() == b""
    with trio.fail_after(SOON):
        await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT


async def test_a_connection_that_breaks_cancels_what_runs(stage: Stage, url: str) -> None:
    async with raw(url) as peer:
        await peer.call("wait")
        await stage.started.wait()
    with trio.fail_after(SOON):
        await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT


async def test_a_binary_frame_is_1003(url: str) -> None:
    async with raw(url) as peer:
        await peer.client.send(frame(BINARY, b"{}"))
        assert await peer.closed() == (1003, "a message is JSON in a text frame")


async def test_text_that_is_no_utf_8_is_1007(url: str) -> None:
    async with raw(url) as peer:
        await peer.client.send(frame(TEXT, b"\xff"))
        assert (await peer.closed())[0] == 1007


async def test_a_frame_without_a_mask_is_1002(url: str) -> None:
    async with raw(url) as peer:
        await peer.client.send(b"\x81\x02{}")
        assert (await peer.closed())[0] == 1002


@pytest.mark.parametrize("payload", [b"a" * 1001, "é".encode() * 501])
async def test_a_message_over_the_limit_is_1009_and_names_it(stage: Stage, payload: bytes) -> None:
    with trio.fail_after(LIMIT):
        async with served(stage.server, limits=HttpLimits(body=1000)) as url, raw(url) as peer:
            await peer.client.send(frame(TEXT, payload))
            assert await peer.closed() == (1009, "a message may have 1000 bytes")


async def test_no_call_is_left_by_a_client_that_broke_the_rules(stage: Stage, url: str) -> None:
    async with raw(url) as peer:
        await peer.call("wait")
        await stage.started.wait()
        await peer.client.send(frame(BINARY, b"{}"))
        assert (await peer.closed())[0] == 1003
    with trio.fail_after(SOON):
        await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT


# who may connect, and how many


async def test_credentials_are_asked_for_before_the_upgrade_and_are_on_every_message(stage: Stage) -> None:
    principals: list[str | None] = []

    @stage.server.tool
    async def who(ctx: Context) -> str:
        return str(ctx.request.principal)

    async def authenticate(headers: Mapping[str, str]) -> str | None:
        principals.append(headers.get("authorization"))
        return {"Bearer ada": "ada", "Bearer bob": "bob"}.get(headers.get("authorization", ""))

    with trio.fail_after(LIMIT):
        async with served(stage.server, authenticate=authenticate) as url:
            async with raw(url, connected=False) as peer:
                status, headers, body = await peer.upgrade()
                assert (status, headers["www-authenticate"]) == (401, "bearer")
                assert "must know who calls" in json.loads(body)["error"]["message"]
            async with raw(url, connected=False) as ada, raw(url, connected=False) as bob:
                await ada.open({"authorization": "Bearer ada"})
                await bob.open({"authorization": "Bearer bob"})
                assert await ada.text(await ada.call("who")) == "ada"
                assert await bob.text(await bob.call("who")) == "bob"
    assert principals == [None, "Bearer ada", "Bearer bob"]


async def test_credentials_that_expire_end_the_connection_with_1008(stage: Stage) -> None:
    accepted = {"Bearer ada"}
    asked = trio.Event()

    async def authenticate(headers: Mapping[str, str]) -> str | None:
        sent = headers.get("authorization", "")
        if not accepted:
            asked.set()
        return "ada" if sent in accepted else None

    with trio.fail_after(LIMIT):
        async with served(stage.server, authenticate=authenticate, limits=HttpLimits(recheck_seconds=0.05)) as url:
            async with raw(url, connected=False) as peer:
                await peer.open({"authorization": "Bearer ada"})
                await peer.call("wait")
                await stage.started.wait()
                accepted.clear()
                await asked.wait()
                assert await peer.closed() == (1008, "these credentials are no longer accepted")
                await stage.ended.wait()
    assert stage.reason is CancelReason.DISCONNECT


async def test_one_more_than_the_limit_is_503_until_one_has_gone(stage: Stage) -> None:
    with trio.fail_after(LIMIT):
        async with served(stage.server, limits=HttpLimits(websockets=1)) as url:
            async with raw(url) as first:
                async with raw(url, connected=False) as peer:
                    status, headers, body = await peer.upgrade()
                    assert (status, headers["retry-after"]) == (503, "1")
                    assert "holds 1 WebSockets" in json.loads(body)["error"]["message"]
                await first.client.send(frame(CLOSE, (1000).to_bytes(2, "big")))
                assert await first.client.rest()
            async with raw(url) as next_one:
                assert await next_one.text(await next_one.call("echo", {"text": "in"})) == "in"


async def test_a_principal_holds_so_many_and_leaves_the_rest_to_others(stage: Stage) -> None:
    async def authenticate(headers: Mapping[str, str]) -> str | None:
        return headers.get("x-user")

    limits = HttpLimits(per_principal=1)
    with trio.fail_after(LIMIT):
        async with (
            served(stage.server, authenticate=authenticate, limits=limits) as url,
            raw(url, connected=False) as first,
            raw(url, connected=False) as second,
            raw(url, connected=False) as other,
        ):
            await first.open({"x-user": "ada"})
            status, _, body = await second.upgrade({"x-user": "ada"})
            assert (status, "You already hold 1 WebSockets" in json.loads(body)["error"]["message"]) == (503, True)
            await other.open({"x-user": "bob"})


# shutdown


@asynccontextmanager
async def draining(stage: Stage, config: GuardedConfig | None = None) -> AsyncIterator[tuple[McpApp, str]]:
    """A served application whose `drain` a test may call."""
    app = asgi_app(stage.server)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(LIMIT):
            (address,) = await nursery.start(partial(serve_asgi, app, port=0, signals=False, config=config))
        with trio.fail_after(LIMIT):
            yield app, f"ws{address.partition(' ')[0].removeprefix('http')}/mcp"
        nursery.cancel_scope.cancel()


async def test_a_shutdown_answers_what_runs_refuses_what_is_new_and_closes_with_1001(stage: Stage) -> None:
    async with draining(stage) as (app, url), raw(url) as peer, trio.open_nursery() as nursery:
        listening = await peer.ask_modern("subscriptions/listen", notifications={"toolsListChanged": True})
        assert (await peer.hear())["method"] == "notifications/subscriptions/acknowledged"
        call = await peer.call("wait")
        await stage.started.wait()
        nursery.start_soon(app.drain, 30.0)
        ending = await peer.hear()  # others share the connection, so it is said which stream ends (M-CAN-2s)
        assert (ending["method"], ending["params"]["requestId"]) == ("notifications/cancelled", listening)
        await peer.result(listening)
        refused = await peer.call("echo", {"text": "late"})
        answer = await peer.hear()
        assert (answer["id"], answer["error"]["message"]) == (refused, "this server is shutting down")
        async with raw(url, connected=False) as late:
            assert (await late.upgrade())[0] == 503
        stage.go_on.set()
        assert await peer.text(call) == "waited"
        assert await peer.closed() == (1001, "this server is shutting down")


async def test_a_call_that_outlasts_the_drain_is_cancelled_and_answered_before_the_close(stage: Stage) -> None:
    async with draining(stage) as (app, url), raw(url) as peer, trio.open_nursery() as nursery:
        call = await peer.call("wait")
        await stage.started.wait()
        nursery.start_soon(app.drain, 0.0)
        answer = await peer.hear()
        assert (answer["id"], answer["error"]["code"]) == (call, SERVER_BUSY)
        assert (await peer.closed())[0] == 1001
        assert stage.reason is CancelReason.SHUTDOWN


async def test_a_server_that_is_cut_still_says_goodbye(stage: Stage) -> None:
    with trio.fail_after(LIMIT):
        async with trio.open_nursery() as outer:
            async with served(stage.server) as url:
                peer = await outer.start(partial(keep_open, url))
            assert (await peer.closed())[0] == 1001
            outer.cancel_scope.cancel()


async def keep_open(url: str, *, task_status: trio.TaskStatus[RawPeer]) -> None:
    async with raw(url) as peer:
        task_status.started(peer)
        await trio.sleep_forever()


# slow and silent clients (reliability rows 33 and 34)


class Talker:
    """A server whose tool reports progress of a kilobyte each, as often as it is told, and counts."""

    def __init__(self) -> None:
        self.server = Server("talker", version="1.0", options=ServiceOptions(outbox=8))
        self.said = 0
        self.ended = trio.Event()
        self.server.tool(self.talk)
        self.server.tool(self.echo)

    async def talk(self, ctx: Context, times: int) -> str:
        try:
            for number in range(times):
                await ctx.progress(number + 1, message="x" * 1000)
                self.said = number + 1
            return "said"
        finally:
            self.ended.set()

    async def echo(self, text: str) -> str:
        return text


def talk(times: int) -> Json:
    meta = {**modern_meta(), "progressToken": "t"}
    return {"id": 1, "method": "tools/call", "params": {"name": "talk", "arguments": {"times": times}, "_meta": meta}}


async def test_a_client_that_does_not_read_holds_up_its_own_call_and_no_other() -> None:
    talker = Talker()
    with trio.fail_after(LIMIT):
        async with served(talker.server) as url, raw(url) as deaf, raw(url) as bystander:
            await deaf.say(talk(100_000))
            said = -1
            while said != talker.said:  # until nothing more goes out
                said = talker.said
                for number in range(20):
                    text = f"hello {number}"
                    assert await bystander.text(await bystander.call("echo", {"text": text})) == text
            assert 0 < said < 100_000


async def test_the_end_of_a_client_that_does_not_read_ends_its_call() -> None:
    talker = Talker()
    with trio.fail_after(LIMIT):
        async with served(talker.server) as url:
            async with raw(url) as deaf:
                await deaf.say(talk(1_000_000))
                assert (await deaf.hear())["params"]["progress"] == 1
            await talker.ended.wait()


async def test_a_client_that_reads_late_gets_everything_in_order() -> None:
    talker = Talker()
    with trio.fail_after(LIMIT):
        async with served(talker.server) as url, raw(url) as peer:
            await peer.say(talk(5_000))
            heard = [(await peer.hear())["params"]["progress"] for _ in range(5_000)]
            assert heard == list(range(1, 5_001))
            assert await peer.text(1) == "said"


async def test_a_client_that_answers_no_ping_is_cut_and_its_calls_are_cancelled(stage: Stage) -> None:
    async with draining(stage, guarded_config(websocket_ping_interval=0.1)) as (_, url), raw(url) as frozen:
        await frozen.call("wait")
        await stage.started.wait()
        async with raw(url) as alive, trio.open_nursery() as nursery:
            nursery.start_soon(answer_pings, alive)
            with trio.fail_after(SOON):
                await stage.ended.wait()
            nursery.cancel_scope.cancel()
            assert await alive.text(await alive.call("echo", {"text": "still here"})) == "still here"
    assert stage.reason is CancelReason.DISCONNECT


async def answer_pings(peer: RawPeer) -> None:
    while True:
        first, payload = await peer.client.frame()
        assert first == 0x80 | PING
        await peer.client.send(frame(PONG, payload))


async def test_pings_are_answered_while_a_tool_runs(stage: Stage, url: str) -> None:
    async with raw(url) as peer:
        await peer.call("wait")
        await stage.started.wait()
        for number in range(1000):
            await peer.client.send(frame(PING, b"%d" % number))
        for number in range(1000):
            assert await peer.client.frame() == (0x80 | PONG, b"%d" % number)
        stage.go_on.set()
        assert (await peer.hear())["result"]["content"][0]["text"] == "waited"
